/* request.h - what users ask of a session, when it is made or changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/session_properties.h"
#include "ledger/ledger.h"

/* A limit asked for on one GPU. */
struct session_limit {
    unsigned gpu; /* index of daemon.gpus */
    bool has_bytes;
    uint64_t bytes;
    uint32_t part; /* of the card, in ten-thousandths, instead of `bytes`; 0: not given that way */
};

struct session_request {
    const char *name; /* NULL: the ID (new session), unchanged (change) */
    uid_t owner;
    /* `owner` was asked for, which only root may do; else the owner is the user who asks. */
    bool has_owner;
    unsigned limit_count; /* 0 for a new session: the card with the most room */
    struct session_limit limits[LEDGER_GPUS];
    bool has_bytes; /* `bytes` is for every GPU without a limit of its own */
    uint64_t bytes;
    uint32_t part; /* as in session_limit */
    /* Change: reserve nothing any more; each limit is then the card's memory. */
    bool drops_limits;
    /* What is not given: as the owner's section or [defaults] says, or unchanged. */
    struct session_properties properties;
    bool
        is_engine_default; /* neither engine nor `when_full` was given: a default says that its memory may leave */
    bool own_socket;       /* with a socket of its own; in a change: from now on */
    bool is_declared;      /* made for sessions.conf: no ceiling applies */
    bool wait;             /* queue it if there is no room now */
    bool is_managed;       /* only root changes and releases it */
    const char *token; /* what its programs attach with; NULL: a random one */
    /* The session ends with process run_pid; without, that process is watched only while the session is queued. */
    bool run;
    const char *key; /* a request with the same key is the same request (session_find_key()); NULL: none */
    bool run_parent; /* run_pid is to be the parent of the process that asks */
    pid_t run_pid;   /* 0: none */
    uint64_t run_start_ticks;
    int run_pidfd; /* taken over on success */
};
