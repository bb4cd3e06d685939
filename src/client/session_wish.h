/* session_wish.h - what somebody asks of a session, before the daemon has seen it: the options of `gpuslice run`,
 * `create` and `set`, or what a pod or a job asks for. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "client/gpu_names.h"
#include "client/memory_limits.h"
#include "config/session_properties.h"

struct session_wish {
    const char *name; /* NULL: not given, as in the other fields */
    struct gpu_names gpus;
    struct memory_limits memory;
    struct session_properties properties;
    uint64_t wait_usec; /* 0: not given; UINT64_MAX: for ever */
    bool own_socket;    /* give it a socket of its own, for a container */
};

/* Check the parts of a wish against each other: a GPU that --memory names must be one of those that --gpu names, if
 * --gpu is given. */
int session_wish_check(const struct session_wish *wish, struct error *error);

/* The body of a POST or PATCH with what the wish names and nothing else. If the wish names no GPU, it gets those of
 * `visible_devices` (a value of CUDA_VISIBLE_DEVICES; NULL: none). The caller drops `*body`. */
int session_wish_body(const struct session_wish *wish, const char *visible_devices, json_t **body,
                      struct error *error);
