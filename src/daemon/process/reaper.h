/* reaper.h - attached processes, and the end of each.
 *
 * Only the pidfd means death. When a live process hangs up, and at a slow round over all, the reaper looks
 * whether it still maps its session's ledger: if not, it has exec'd and its slot is freed; if so, it closed
 * its descriptors and its bytes stay. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/error.h"

struct agent;
struct connection;
struct daemon;
struct session;
struct peer;
struct gpu_measurement;
struct driver_share;

struct process {
    struct process *next;          /* of the session */
    struct process *next_of_chain; /* daemon.processes_by_pid */
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
    struct gpu_measurement *measurement;
    struct driver_share *shares; /* by GPU of the session; NULL before a first sample (driver_line.h) */
    uint32_t unknown_pointers;   /* as its notices say (wire.h) */
    char command[16];
};

/* Give the process with `pidfd` (taken over, also on failure) slot `slot`, which is claimed already. */
int reaper_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
               uint32_t slot, uint64_t generation, struct process **process, struct error *error);

/* The process with this slot and identity, or NULL. */
struct process *reaper_find(const struct session *session, pid_t pid, uint64_t start_ticks, uint32_t slot,
                            uint64_t generation);

/* A session that the process is in; NULL for one that is in none. */
const struct session *reaper_session_of(const struct daemon *daemon, pid_t pid);

/* Whether its libgpuslice.so speaks an older version of the wire than this daemon: it was started before an
 * upgrade, and goes on with what it knows. */
bool reaper_is_outdated(const struct process *process);

/* Another slot of the same process, or NULL: it exec'd, or runs a second copy of us. */
struct process *reaper_find_other(const struct session *session, pid_t pid, uint64_t start_ticks,
                                  const struct process *after);

/* Clear the slot, count what comes back, forget the process; end the session if that was all it waited for.
 */
void reaper_remove(struct process *process, const char *why);

/* The process hung up. Frees its slot if it has exec'd. */
void reaper_hung_up(struct process *process);

/* Whether it has exec'd; then its slot has been freed and the process forgotten. */
bool reaper_remove_if_execed(struct process *process);

/* Put the slots of a restored session's ledger to the processes that hold them, and free the others.
 * `recorded` are the state file's rows; a slot without one is believed. The session may end by it.
 * -EMFILE and the like, before any slot is freed for want of them: the daemon is to end. */
struct recorded_process {
    uint32_t slot; /* below LEDGER_SLOTS */
    pid_t pid;
    uint64_t start_ticks, generation;
    int64_t attached_at;
    uint16_t wire_version;
};
int reaper_restore(struct session *session, const struct recorded_process *recorded, unsigned count,
                   struct error *error);

/* Begin the slow round. */
int reaper_start(struct daemon *daemon, struct error *error);

/* Forget without touching the slot: the daemon exits and the process goes on. */
void reaper_forget(struct process *process);
