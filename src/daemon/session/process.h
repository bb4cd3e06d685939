/* process.h - one attached process: a member of its session, and the owner of a slot of its ledger. */
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
struct connection;
struct context_measurement;
struct daemon;
struct driver_part;
struct peer;
struct process_move;
struct session;

struct process {
    struct process *next, *newer; /* of the session, the newest first */
    uint64_t number;              /* counts the session's processes, from 1 */
    LIST_ENTRY(process) chained;  /* in daemon.processes_by_pid */
    struct session *session;
    pid_t pid;
    uid_t uid; /* whose descriptors here count as its (descriptor_bounds.h) */
    uint64_t start_ticks;
    int pidfd;
    sd_event_source *source;
    uint32_t slot;
    uint64_t generation;
    int64_t attached_at;           /* seconds since 1970 */
    uint64_t attached_usec;        /* of the loop's clock, 0: under an earlier daemon */
    bool was_mapped;               /* seen to map the ledger since */
    struct connection *connection; /* NULL: it closed it, or came before this daemon */
    uint16_t wire_version;         /* that it attached in; 0: under a daemon that did not record it */
    struct agent *agent;           /* NULL: none is connected (agents.h) */
    struct process_move *move;     /* NULL: it has said nothing of its memory (residency/moves.h) */
    struct context_measurement *measurement; /* context_cost.c; NULL: none is under way */
    struct driver_part *driver_parts; /* by GPU of the session; NULL before a first sample (driver_line.h) */
    bool driver_parts_held;           /* they stay what they are (driver_line_hold()) */
    uint32_t unknown_pointers;        /* as its notices say (wire.h) */
    char command[16];
    struct round_task burial;
};

/* Give the process with `pidfd` (taken over, also on failure) slot `slot`, which is claimed already.
 * `on_death` is called with it as soon as it has died. */
int process_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
                uint32_t slot, uint64_t generation, sd_event_io_handler_t on_death, struct process **process,
                struct error *error);

/* Take it out of its session without touching the slot; it is freed when the loop's round is over. */
void process_forget(struct process *process);

/* The process with this slot and identity, or NULL. */
struct process *process_find(const struct session *session, pid_t pid, uint64_t start_ticks, uint32_t slot,
                             uint64_t generation);

/* The next slot of the same process behind `after` (NULL: the first), or NULL: it exec'd, or runs a second
 * copy of our library. */
struct process *process_find_other(const struct session *session, pid_t pid, uint64_t start_ticks,
                                   const struct process *after);

/* A session that the process is in; NULL for one that is in none. */
const struct session *process_session_of(const struct daemon *daemon, pid_t pid);

/* What its slot says of its requests on a GPU of the session, but no more than a process of its age can have made: a
 * program may write any number there, and sums over all users are made of them. */
struct ledger_counts process_counts(const struct process *process, unsigned policy_gpu);

/* Whether its libgpuslice.so speaks an older version of the wire than this daemon: it was started before an
 * upgrade, and goes on with what it knows. */
bool process_is_outdated(const struct process *process);
