/* session.h - sessions: their making, changing, finding and end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/error.h"
#include "base/priority.h"
#include "base/units.h"
#include "cuda/uuid.h"
#include "daemon/loop/changes.h"
#include "daemon/session/identity.h"
#include "daemon/session/ledgers.h"
#include "ledger/ledger.h"

struct arbiter_session;
struct own_socket;
struct daemon;
struct orphan;
struct process;
struct release;

enum session_state { SESSION_ACTIVE, SESSION_EXPIRED, SESSION_QUEUED };

struct session_gpu {
    uint8_t uuid[GPU_UUID_BYTES];
    bool is_mig; /* a MIG instance: NVML and CUDA write its UUID "MIG-..." */
    int gpu;     /* index of daemon.gpus; -1 when the card is not there now */
    uint64_t limit_bytes;
    bool reserved;          /* the limit was asked for, and counts at admission */
    uint64_t shares_before; /* driver_line.c: their stamp as the sample under way was asked for */
};

const char *session_gpu_uuid(const struct session_gpu *gpu, char text[static GPU_UUID_TEXT]);

/* The process that a session was made by and ends with. */
struct session_runner {
    pid_t pid; /* 0: the session lives until it is released */
    uint64_t start_ticks;
    int pidfd; /* -1 once it has gone */
    sd_event_source *source;
};

/* What a cluster calls the container that a session is for; each empty where it is for none. */
#define LABEL_TEXT 254 /* the longest name in Kubernetes, and a zero */
struct session_labels {
    char namespace[64], pod[LABEL_TEXT], container[64];
};

struct session {
    struct session *next, *previous;
    struct session *next_of_chain; /* daemon.sessions_by_id */
    uint64_t number;               /* counts this daemon's sessions, from 1: rises along the list */
    struct daemon *daemon;
    char id[SESSION_ID_TEXT];
    char name[SESSION_NAME_TEXT];
    char token[SESSION_TOKEN_TEXT]; /* what its programs attach with */
    uid_t owner;
    enum session_state state;
    bool is_declared;               /* by sessions.conf, which alone may change it (declared.h) */
    int64_t created_at, updated_at; /* seconds since 1970 */
    int64_t expires_at_ms;          /* milliseconds since 1970; 0: never */
    uint64_t ttl_seconds;           /* from when it is admitted; 0: none */
    sd_event_source *expiry;
    struct session_runner runner;
    bool has_own_socket;           /* it is to have one (own_socket.h), once it is admitted */
    struct own_socket *own_socket; /* NULL: none is served */
    struct session_labels labels;
    bool runner_queues;      /* the runner is who waits for it to be admitted, and is forgotten then */
    struct release *release; /* while its processes are being ended; NULL otherwise */
    uint64_t queued_bytes;   /* what it asks for on all its GPUs, while it is queued */
    struct share compute;    /* on each of its GPUs */
    enum session_priority priority;
    unsigned gpu_count;
    struct session_gpu gpus[LEDGER_GPUS]; /* in the policy's order */
    struct session_ledger ledger;         /* not open before a first process: session_open_ledger() */
    bool ledger_counts;                   /* among the owner's descriptors (descriptor_bounds.h) */
    struct process *processes;
    unsigned process_count;
    struct arbiter_session *arbitrated; /* NULL before a first agent (agents.h) */
    struct orphan *orphans;             /* driver_line.h */
    unsigned orphan_count;
    uint64_t refused_before;          /* requests refused to processes that have gone */
    uint64_t refused_told;            /* of them, as events told */
    uint64_t told_usec[CHANGE_KINDS]; /* events.c: when the kind was told of; 0: never */
    bool broken_is_logged;
};

/* A limit asked for on one GPU. */
struct session_limit {
    unsigned gpu;
    bool has_bytes;
    uint64_t bytes;
};

struct session_request {
    const char *name; /* NULL: the ID (create), unchanged (change) */
    uid_t owner;
    unsigned limit_count; /* 0 at create: the roomiest card */
    struct session_limit limits[LEDGER_GPUS];
    bool has_bytes; /* `bytes` for every GPU that has none of its own */
    uint64_t bytes;
    bool has_compute, has_priority; /* without: SHARE_ANY and PRIORITY_NORMAL, or unchanged */
    struct share compute;
    enum session_priority priority;
    bool has_ttl;                 /* without: the default's, or unchanged */
    uint64_t ttl_seconds;         /* 0: none */
    bool own_socket;              /* with a socket of its own; at change: from now on */
    struct session_labels labels; /* at change, an empty one stays as it is */
    bool is_declared;             /* made for sessions.conf: no ceiling counts */
    bool wait;                    /* be queued where there is no room now */
    bool run;                     /* it ends with process run_pid; else that one is watched while it is queued */
    pid_t run_pid;                /* 0: none */
    uint64_t run_start_ticks;
    int run_pidfd; /* taken over on success */
};

int session_create(struct daemon *daemon, struct session_request *request, struct session **session,
                   struct error *error);

/* There is room for a queued session: make it active. On failure it is for the caller to end. */
int session_activate(struct session *session, struct error *error);

/* Give an admitted session a socket of its own, unless it has one. */
int session_give_socket(struct session *session, struct error *error);

/* New limits, name and labels, all or none. In force when this returns. */
int session_change(struct session *session, const struct session_request *request, struct error *error);

/* Take no new process and give no new memory; the end comes with the last process, or now. `session` is not
 * queued. */
void session_expire(struct session *session, const char *why);
/* Take back that a declared session expired. */
void session_revive(struct session *session);

/* Take over a session that an earlier daemon left in the state file: `session` is filled but for its ledger,
 * which is opened where there is one. It is the daemon's from then on, also on failure of the ledger (then
 * broken). */
int session_restore(struct daemon *daemon, struct session *session, struct error *error);

/* attach.sock is served: let the programs in restored sessions see that there is another daemon. Not before:
 * who comes and finds nobody goes on under its old limits, and comes again a second later. */
void session_announce_all(struct daemon *daemon);

/* A process is about to attach: make the ledger, unless it is open. */
int session_open_ledger(struct session *session, struct error *error);

/* The end: no process is attached. Removes its files; the state file is told by the caller or
 * `session_end_stored`. `why` is for those who listen to events; NULL: it never began. */
void session_end(struct session *session, const char *why);
void session_end_stored(struct session *session, const char *why);

/* A restored ledger in which nobody is left is not kept: one of thousands of sessions that rest costs
 * nothing. */
void session_drop_idle_ledger(struct session *session);

/* End it if it is to end by itself and nobody is left: made by a process that has gone, or expired. */
void session_end_if_over(struct session *session);

struct session *session_find_id(const struct daemon *daemon, const char *id);

/* The session that `uid` calls `text` (ID, name, unique prefix of an ID). ERR_SESSION_NOT_FOUND,
 * ERR_FORBIDDEN, ERR_AMBIGUOUS. */
int session_find(const struct daemon *daemon, uid_t uid, const char *text, struct session **session,
                 struct error *error);
bool session_is_visible(const struct session *session, uid_t uid);

const char *session_state_name(const struct session *session);

/* Bytes that its processes charged on GPU `policy_gpu`, by the daemon's own record of who is attached, and
 * together. */
uint64_t session_charged(const struct session *session, unsigned policy_gpu);

/* All that it uses there: the same, the driver line and orphans. */
uint64_t session_used(const struct session *session, unsigned policy_gpu);
uint64_t session_refused(const struct session *session);

/* Look whether its ledger has been found damaged since, and if so, close it to new memory and say so. */
bool session_is_broken(struct session *session);

/* No new memory for its processes. */
void session_close_policy(struct session *session);

/* The damaged ledger of file name `name` in the ledgers' folder. */
void session_check_ledger_file(struct daemon *daemon, const char *name);
void session_free_all(struct daemon *daemon); /* at exit: files and records stay */
