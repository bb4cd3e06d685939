/* process.h - one attached process: it belongs to a session and owns a slot of the session's ledger. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/error.h"
#include "daemon/loop/round.h"
#include "ledger/ledger.h"

struct agent;
struct arbiter_process;
struct connection;
struct context_measurement;
struct daemon;
struct driver_part;
struct peer;
struct process_move;
struct session;

struct process {
    struct process *next, *newer; /* in the session's list, newest first */
    uint64_t number;              /* counts the session's processes, from 1 */
    LIST_ENTRY(process) chained;  /* in daemon.processes_by_pid */
    struct session *session;
    pid_t pid;
    uid_t uid; /* the user for whom its descriptors count (descriptor_bounds.h) */
    uint64_t start_ticks;
    int pidfd;
    sd_event_source *source;
    uint32_t slot;
    uint64_t generation;
    int64_t attached_at;    /* seconds since 1970 */
    uint64_t attached_usec; /* by the loop's clock; 0: attached under an earlier daemon */
    bool was_mapped;        /* has been seen to map the ledger since it attached */
    /* NULL: it closed the connection, or attached before this daemon started. */
    struct connection *connection;
    struct agent *agent;                     /* NULL: none is connected (agents.h) */
    struct arbiter_process *gate;            /* NULL: the same (schedule.h) */
    struct process_move *move;               /* NULL: it has not reported on its memory (residency/moves.h) */
    struct context_measurement *measurement; /* context_cost.c; NULL: none is under way */
    /* One per GPU of the session; NULL before a first sample (driver_line.h). */
    struct driver_part *driver_parts;
    bool driver_parts_held;    /* they must not change (driver_line_hold()) */
    uint32_t unknown_pointers; /* as its notices say (wire.h) */
    char *unknown_functions;   /* names with a space between two, as it told (wire.h); NULL: none */
    /* What its slot said of its requests, per GPU of the session, when this daemon found it there: an earlier one has
     * counted that. */
    struct ledger_counts counts_before[LEDGER_GPUS];
    uint8_t nvml_percent[LEDGER_GPUS]; /* by GPU of the session, as NVML told last (nvml_time.h) */
    char command[16];
    struct round_task burial;
};

/* Record that the process with `pidfd` (taken over, also on failure) has slot `slot`, which is claimed already.
 * `on_death` is called as soon as the process has died. */
int process_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
                uint32_t slot, uint64_t generation, sd_event_io_handler_t on_death, struct process **process,
                struct error *error);

/* Take it out of its session without touching its slot; it is freed when the loop's round is over. */
void process_forget(struct process *process);

/* The process with this slot and identity, or NULL. */
struct process *process_find(const struct session *session, pid_t pid, uint64_t start_ticks, uint32_t slot,
                             uint64_t generation);

/* A process that has exec'd, or runs a second copy of our library, has several slots. Returns the next one after
 * `after` (NULL: the first); NULL: there is none. */
struct process *process_find_other(const struct session *session, pid_t pid, uint64_t start_ticks,
                                   const struct process *after);

/* The session that process `pid` is attached to; NULL: it is in no session. */
const struct session *process_session_of(const struct daemon *daemon, pid_t pid);

/* What the process's slot says of its requests on a GPU of the session under this daemon, but no more than a process of its
 * age can have made: a program may write any number there, and the daemon adds these up over all users. */
struct ledger_counts process_counts(const struct process *process, unsigned policy_gpu);

/* Whether what is known of a process in its session's list goes together. */
bool process_is_valid(const struct process *process);
