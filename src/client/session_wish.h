/* session_wish.h - what somebody asks of a session, before a daemon has said a word about it: the options of
 * `gpuslice run`, `create` and `set`, a pod's or a job's. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/units.h"
#include "client/gpu_names.h"
#include "client/memory_limits.h"

struct session_wish {
    const char *name; /* NULL: not given, as in the other fields */
    struct gpu_names gpus;
    struct memory_limits memory;
    struct share compute; /* max 0: not given */
    const char *priority;
    uint64_t ttl_usec;         /* 0: not given; UINT64_MAX: never */
    const char *ttl_action;    /* "none" or "kill" */
    uint64_t wait_usec;        /* 0: not given; UINT64_MAX: for ever */
    const char *oversubscribe; /* "swap" or "managed" */
    const char *when_full;     /* "refuse", "wait" or "oversubscribe" */
    bool single_oversubscribe;
    uint64_t host_memory_bytes; /* 0: not given */
    uint64_t idle_suspend_usec; /* 0: not given; UINT64_MAX: never */
    bool own_socket;            /* with a socket of its own, for a container */
};

/* Judge the parts of a wish together: a GPU that --memory names must be one that --gpu names, if that names
 * any; --ttl is a whole number of seconds. */
int session_wish_check(const struct session_wish *wish, struct error *error);

/* The body of a POST or PATCH with what the wish names and nothing else. Where it names no GPU, those of
 * `visible_devices` (a value of CUDA_VISIBLE_DEVICES; NULL: none) are meant. The caller drops `*body`. */
int session_wish_body(const struct session_wish *wish, const char *visible_devices, json_t **body,
                      struct error *error);
