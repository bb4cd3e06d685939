/* request.h - what users ask of a session, when it is made or changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/priority.h"
#include "base/units.h"
#include "base/when_full.h"
#include "daemon/session/labels.h"
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
    bool has_compute, has_priority; /* without: SHARE_ANY and PRIORITY_NORMAL, or unchanged */
    struct share compute;
    enum session_priority priority;
    bool has_ttl;                 /* without: the default's, or unchanged */
    uint64_t ttl_seconds;         /* 0: no end */
    bool has_ttl_action;          /* else false, or unchanged */
    bool kills_at_ttl;            /* the programs are ended when the time is over */
    bool own_socket;              /* with a socket of its own; in a change: from now on */
    struct session_labels labels; /* in a change, an empty one stays as it is */
    /* How its memory is backed; fixed when the session is made, and so is the next. */
    enum ledger_engine engine;
    bool may_pass_card;     /* with LEDGER_ENGINE_MANAGED: limits may be more than the card has */
    bool has_engine;        /* else `when_full` decides */
    bool is_engine_default; /* neither was asked for: a default says that its memory may leave */
    bool has_when_full;     /* else what the user's section or [defaults] says, or unchanged */
    enum when_full when_full;
    bool has_host_memory, has_idle_suspend; /* else 0, or unchanged */
    uint64_t host_memory_bytes;             /* 0: as much as there is */
    uint64_t idle_suspend_seconds;          /* 0: never */
    bool is_declared;                       /* made for sessions.conf: no ceiling applies */
    bool wait;                              /* queue it if there is no room now */
    bool is_managed;                        /* only root changes and releases it */
    const char *token;                      /* what its programs attach with; NULL: a random one */
    /* The session ends with process run_pid; without, that process is watched only while the session is queued. */
    bool run;
    bool run_parent; /* run_pid is to be the parent of the process that asks */
    pid_t run_pid;   /* 0: none */
    uint64_t run_start_ticks;
    int run_pidfd; /* taken over on success */
};
