/* request.h - what people ask of a session, as it is made or changed. */
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
    uint32_t part; /* of the card, in ten-thousandths, instead of `bytes`; 0: not given so */
};

struct session_request {
    const char *name; /* NULL: the ID (create), unchanged (change) */
    uid_t owner;
    bool has_owner;       /* `owner` was asked for, which is root's to do; else whoever asks */
    unsigned limit_count; /* 0 at create: the roomiest card */
    struct session_limit limits[LEDGER_GPUS];
    bool has_bytes; /* `bytes` for every GPU that has none of its own */
    uint64_t bytes;
    uint32_t part;                  /* as in session_limit */
    bool drops_limits;              /* change: reserve nothing any more; a limit is the card's memory */
    bool has_compute, has_priority; /* without: SHARE_ANY and PRIORITY_NORMAL, or unchanged */
    struct share compute;
    enum session_priority priority;
    bool has_ttl;                 /* without: the default's, or unchanged */
    uint64_t ttl_seconds;         /* 0: none */
    bool has_ttl_action;          /* else false, or unchanged */
    bool kills_at_ttl;            /* the programs are ended when the time is over */
    bool own_socket;              /* with a socket of its own; at change: from now on */
    struct session_labels labels; /* at change, an empty one stays as it is */
    enum ledger_engine engine;    /* how its memory is backed; at creation alone, as the next */
    bool may_pass_card;           /* with LEDGER_ENGINE_MANAGED: limits may be more than the card has */
    bool has_engine;              /* else what `when_full` says */
    bool has_when_full;           /* else what the user's section or [defaults] says, or unchanged */
    enum when_full when_full;
    bool has_host_memory, has_idle_suspend; /* else 0, or unchanged */
    uint64_t host_memory_bytes;             /* 0: as much as there is */
    uint64_t idle_suspend_seconds;          /* 0: never */
    bool is_declared;                       /* made for sessions.conf: no ceiling counts */
    bool wait;                              /* be queued where there is no room now */
    const char *token;                      /* what its programs attach with; NULL: a random one */
    bool run;        /* it ends with process run_pid; else that one is watched while it is queued */
    bool run_parent; /* run_pid is to be the parent of the process that asks */
    pid_t run_pid;   /* 0: none */
    uint64_t run_start_ticks;
    int run_pidfd; /* taken over on success */
};
