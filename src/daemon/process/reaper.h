/* reaper.h - the end of attached processes.
 *
 * Only the pidfd means death. When a live process hangs up, and in a slow round over all processes, the reaper checks
 * whether the process still maps its session's ledger. If not, it has exec'd, and its slot is freed; if so, it closed its
 * descriptors, and its bytes stay. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct daemon;
struct peer;
struct process;
struct session;

/* Record that the process with `pidfd` (taken over, also on failure) has slot `slot`, which is claimed already, and
 * watch for its death. */
int reaper_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
               uint32_t slot, uint64_t generation, struct process **process, struct error *error);

/* The process hung up. Frees its slot if it has exec'd. */
void reaper_hung_up(struct process *process);

/* Whether the process has exec'd; if so, free its slot and forget it. */
bool reaper_remove_if_execed(struct process *process);

/* One process, as the state file has it. */
struct recorded_process {
    uint32_t slot; /* below LEDGER_SLOTS */
    pid_t pid;
    uint64_t start_ticks, generation;
    int64_t attached_at;
};

/* Assign the slots of a restored session's ledger to the processes that hold them, and free the others. `recorded` are
 * the state file's rows; where a slot has no row, the slot itself is believed. Returns -EMFILE and the like before a
 * slot is freed only because the daemon lacks descriptors or memory: the daemon must then end. */
int reaper_restore(struct session *session, const struct recorded_process *recorded, unsigned count,
                   struct error *error);

/* Start the slow round. */
int reaper_start(struct daemon *daemon, struct error *error);
void reaper_stop(struct daemon *daemon);
