/* reaper.h - the end of attached processes.
 *
 * Only the pidfd means death. When a live process hangs up, and at a slow round over all, the reaper looks
 * whether it still maps its session's ledger: if not, it has exec'd and its slot is freed; if so, it closed
 * its descriptors and its bytes stay. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct daemon;
struct peer;
struct process;
struct session;

/* Give the process with `pidfd` (taken over, also on failure) slot `slot`, which is claimed already, and watch
 * for its death. */
int reaper_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
               uint32_t slot, uint64_t generation, struct process **process, struct error *error);

/* The process hung up. Frees its slot if it has exec'd. */
void reaper_hung_up(struct process *process);

/* Whether it has exec'd; then its slot has been freed, and the process forgotten. */
bool reaper_remove_if_execed(struct process *process);

/* One process as the state file has it. */
struct recorded_process {
    uint32_t slot; /* below LEDGER_SLOTS */
    pid_t pid;
    uint64_t start_ticks, generation;
    int64_t attached_at;
    uint16_t wire_version;
};

/* Put the slots of a restored session's ledger to the processes that hold them, and free the others.
 * `recorded` are the state file's rows; a slot without one is believed.
 * -EMFILE and the like, before any slot is freed for want of them: the daemon is to end. */
int reaper_restore(struct session *session, const struct recorded_process *recorded, unsigned count,
                   struct error *error);

/* Begin the slow round. */
int reaper_start(struct daemon *daemon, struct error *error);
void reaper_stop(struct daemon *daemon);
