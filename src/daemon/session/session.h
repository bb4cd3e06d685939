/* session.h - what a session is. What can be done with one: admit.h, session_life.h, session_find.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "config/session_properties.h"
#include "cuda/uuid.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/round.h"
#include "daemon/session/identity.h"
#include "daemon/session/ledgers.h"
#include "ledger/ledger.h"

struct arbiter_session;
struct move;
struct own_socket;
struct daemon;
struct orphan;
struct process;
struct release;
struct session_totals;

enum session_state { SESSION_ACTIVE, SESSION_EXPIRED, SESSION_QUEUED };

/* GPU time, as NVML shows it, of the present stretch of time and of the one before. */
struct nvml_window {
    uint64_t from_ns; /* when the present one began */
    uint64_t busy_ns, before_ns;
};

struct session_gpu {
    uint8_t uuid[GPU_UUID_BYTES];
    bool is_mig; /* a MIG instance: NVML and CUDA write its UUID "MIG-..." */
    int gpu;     /* index of daemon.gpus; -1 when the card is absent now */
    uint64_t limit_bytes;
    bool reserved; /* the limit was asked for, and counts at admission */
    /* driver_line.c: what the driver holds for the session's processes beyond what they charged, and for processes that
     * have died. */
    uint64_t driver_bytes, orphan_bytes;
    /* driver_line.c: what NVML showed for the session's processes at the last sample, whatever they charged. */
    uint64_t shown_bytes;
    /* driver_line.c: the stamp of joint memory when the sample under way was asked for. */
    uint64_t joint_before;
    /* driver_left.c: what processes had let go of then; and for how many samples in a row the card has shown less than what is
     * left, and the most that these allowed. */
    uint64_t let_go_before, left_most;
    uint64_t
        ahead_before; /* the same of what processes counted ahead; and how many samples told nothing of it */
    unsigned ahead_samples;
    unsigned left_weight;
    /* nvml_time.c: its GPU time while no share counted, in all and lately. */
    uint64_t nvml_ns;
    struct nvml_window nvml_window;
    bool has_moved; /* a process of it changed its slot around the sample */
};

/* The process that a session was made by and ends with. */
struct session_runner {
    pid_t pid; /* 0: the session lives until it is released */
    uint64_t start_ticks;
    int pidfd; /* -1 once it has gone */
    bool has_status;
    int status; /* how it ended, as waitpid() tells */
    sd_event_source *source;
};

/* The last request for GPU memory that one of its processes was refused, as that process told. Cleared once an event has told. */
struct session_refusal {
    pid_t pid; /* 0: none */
    char command[16];
    bool is_by_card;                               /* the limit allowed it, but the driver had no room */
    unsigned gpu;                                  /* of the session */
    uint64_t asked_bytes, used_bytes, limit_bytes; /* asked for: 0 where nobody knows */
};

struct session {
    struct session *next, *previous;
    LIST_ENTRY(session) chained; /* in daemon.sessions_by_id */
    unsigned unnamed; /* if it has no name: the least number that no other such session has; 0: none */
    uint64_t number;  /* counts this daemon's sessions, from 1: rises along the list */
    struct daemon *daemon;
    char id[SESSION_ID_TEXT];
    char name[SESSION_NAME_TEXT];
    char token[SESSION_TOKEN_TEXT]; /* what its programs attach with */
    char key[SESSION_KEY_TEXT];     /* of the request that made it; "": it had none */
    uid_t owner;
    enum session_state state;
    bool has_ended;                 /* out of all lists; freed when the loop's round is over */
    struct round_task look, burial; /* run at the end of the loop's round (session_life.c) */
    bool is_declared;               /* by sessions.conf, which alone may change it (declared.h) */
    bool is_managed; /* root made it for a job of its owner, who uses it and cannot change it */
    int64_t created_at, updated_at; /* seconds since 1970 */
    /* Its time counts from its admission; `expires_at_ms` is by the machine's time (clocks.h), 0: never. */
    struct session_properties properties;
    int64_t expires_at_ms;
    sd_event_source *expiry;
    struct session_runner runner;
    bool has_own_socket;           /* it gets a socket of its own (own_socket.h) when it is admitted */
    struct own_socket *own_socket; /* NULL: none is served */
    uint64_t lost_ledger_ticks;    /* processes started before had a ledger that was not found; 0: none */
    unsigned own_socket_silent;    /* its connections that have said nothing yet; some may be older than it */
    bool runner_queues;      /* the runner is the process that waits for admission, and is forgotten then */
    struct release *release; /* while its processes are being ended (release.h); NULL otherwise */
    struct queued *queued;   /* its place in the queue (queue.h); NULL: it is not queued */
    uint64_t queued_bytes;   /* what it asks for on all its GPUs, while it is queued */
    unsigned gpu_count;
    struct session_gpu gpus[LEDGER_GPUS]; /* in the policy's order */
    struct session_ledger ledger;         /* opened for the first process: session_ledger_open() */
    bool ledger_counts;                   /* among the owner's descriptors (descriptor_bounds.h) */
    struct process *processes, *oldest_process;
    unsigned process_count;
    uint64_t processes_seen; /* how many have attached */
    bool is_suspended;       /* somebody suspended it, and has not resumed it yet */
    bool is_checkpointing;   /* the driver has not finished that yet (residency/moves_checkpoint.c) */
    struct move *move;       /* NULL: none of its memory can move, or none has yet (residency/moves.h) */
    /* NULL: the driver was not asked to move it (residency/moves_checkpoint.c). */
    struct checkpoint *checkpoint;
    struct arbiter_session *arbitrated; /* NULL before a first agent (schedule.h) */
    LIST_HEAD(, orphan) orphans;        /* driver_line.h */
    unsigned orphan_count;
    uint64_t refused_before; /* requests refused to processes that have gone */
    uint64_t refused_told;   /* events.c: how many refused requests events have told of */
    struct session_refusal refusal;
    struct session_totals *totals;    /* ended.c; NULL: nothing is known yet, or no history is kept */
    uint64_t undrained_usec;          /* since when its work does not drain; 0: it does */
    uint64_t told_usec[CHANGE_KINDS]; /* events.c: when each kind was last told of; 0: never */
    bool broken_is_logged;
};

/* Whether its memory can leave the card. */
static inline bool session_can_move(const struct session *session)
{
    return session->properties.engine != LEDGER_ENGINE_PLAIN;
}
