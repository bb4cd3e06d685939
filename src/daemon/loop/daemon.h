/* daemon.h - the daemon's whole state. One thread, the loop's, owns all of it.
 *
 * session     limits on GPUs and the processes that run under them (session.h)
 * process     one attached process and its slot of the session's ledger (process.h)
 * connection  one client of attach.sock, with or without a process (attach.h)
 * gpu         one card, as NVML last showed it (card.h) */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

#include "base/clock.h"
#include "base/paths.h"
#include "config/config.h"
#include "daemon/gpu/card.h"
#include "ledger/ledger.h"

struct requester;
struct session;
struct process;
struct store;
struct attach;
struct user;
struct http;
struct agents;
struct schedule;
struct moves;
struct closer;
struct worker;
struct queue;
struct events;
struct history;
struct past;
struct ended;
struct nvml_time;
struct metrics_file;
struct uncovered;
struct user_names;
struct followers;
struct waiters;
struct drift;
struct driver_line;
struct survey;
struct observer;
struct round;
struct user_time;
struct ledger_room;
struct settings;
struct declared;

/* How the daemon before this one ended. */
enum daemon_end {
    DAEMON_END_NONE,    /* there was none, or it stopped in order */
    DAEMON_END_DEATH,   /* it was killed, or crashed */
    DAEMON_END_MACHINE, /* the machine went down with it */
};

struct daemon_options {
    bool system, simulated;
    bool fresh;         /* put an unusable state file aside, and begin without sessions */
    const char *backup; /* copy the state file there, and exit; NULL: be a daemon */
    bool on_demand;     /* exit when there have been no sessions for a while */
};

/* Sums over sessions and processes that have gone, per GPU, so that the counters of /metrics only rise. */
struct gpu_counters {
    uint64_t granted, refused, recovered_bytes;
};

/* Hash chains of sessions by ID: with 10,000 sessions, a few in each. */
#define DAEMON_ID_CHAINS 4096u
/* Hash chains of attached processes by pid. */
#define DAEMON_PID_CHAINS 4096u
/* As many sessions without a name have a number of their own, in words of 64 bits. */
#define DAEMON_UNNAMED_WORDS 160u

struct daemon {
    struct daemon_options options;
    struct paths paths;
    struct config config; /* in force; settings.h */
    bool is_config_refused,
        are_sessions_refused; /* gpuslice.conf, sessions.conf: an older version is in force */
    struct settings *settings;
    struct declared *declared;
    sd_event *loop;

    struct gpu gpus[LEDGER_GPUS];
    unsigned gpu_count;
    char driver_version[80];
    struct gpu_sampler *sampler;

    struct session *sessions, *last_session; /* oldest first */
    LIST_HEAD(, session) sessions_by_id[DAEMON_ID_CHAINS];
    LIST_HEAD(, process) processes_by_pid[DAEMON_PID_CHAINS];
    unsigned session_count;
    uint64_t sessions_seen; /* how many this daemon has had */
    uint64_t
        unnamed[DAEMON_UNNAMED_WORDS]; /* the numbers that sessions without a name have; bit 0 is number 1 */
    uint64_t busy_usec; /* when a session was last removed; at first, when the daemon started */
    uint64_t epoch;     /* counts daemons in this state folder */
    enum daemon_end last_end;

    struct store *store;
    LIST_HEAD(, user) users;     /* descriptor_bounds.h */
    struct lent_uids *lent_uids; /* lent_uids.h; NULL: nobody has asked yet */
    struct attach *attach;
    void (*on_own_socket)(struct daemon *daemon, int fd, const char *session_id); /* own_socket.h */
    struct agents *agents;
    struct schedule *schedule;
    struct moves *moves;
    struct worker *arena;       /* arena.h */
    struct worker *checkpoints; /* moves_checkpoint.c; NULL: the driver has not moved a session yet */
    sd_event_source *heartbeat;
    struct http *http;
    struct queue *queue;
    char compat_link[PATH_MAX]; /* gslice_environment.h; "": no link */
    bool has_compat_link;
    LIST_HEAD(, bucket) request_buckets; /* api_rate.h */
    struct audit *audit;                 /* NULL: no file is kept */
    struct metrics_file *metrics_file;
    const struct requester *asker; /* changes.h; NULL: the loop is handling nobody's request */
    struct events *events;
    struct followers *followers;   /* of events, by HTTP */
    struct user_names *user_names; /* for people who read answers */
    struct observer *undrainable;  /* undrainable.h */
    struct uncovered *uncovered;   /* NULL: this is not a system daemon */
    struct past *past;             /* past.h; NULL: no history is kept */
    struct history *history;       /* the same */
    struct ended *ended;           /* the same */
    struct nvml_time *nvml_time;
    struct waiters *waiters;          /* HTTP requests that wait for a place in the queue */
    SLIST_HEAD(, observer) observers; /* of changes (changes.h) */
    struct round *round;
    struct ledger_room *ledger_room;
    struct user_time *user_time;       /* user_time.h; NULL: no time has been counted yet */
    struct closer *closer;             /* connection_closer.h */
    struct observer *release_observer; /* release.h */
    struct driver_line *driver_line;
    struct drift *drift;
    struct survey *survey; /* reaper.c */

    struct gpu_counters counters[LEDGER_GPUS];
    uint64_t attaches, refused_attaches, deaths;
    uint64_t refused_deaths; /* of these, after a request for memory was refused */
    uint64_t failed_writes;  /* of the state file, the history, the audit file and metrics-file */
    uint64_t broken_ledgers;
    uint64_t long_holds, longest_hold_usec, hold_told_usec; /* how long callbacks held the loop (watch.h) */
    int64_t started_at;
};

/* Now, in microseconds, by a clock that does not jump. */
static inline uint64_t daemon_now_usec(void)
{
    return monotonic_ns() / 1000;
}
