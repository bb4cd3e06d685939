/* driver_line.h - what the card holds for a session beyond what its processes charged.
 *
 * driver line   for each attached process and card: NVML's figure for the process, less what its slot has charged (leaving
 *               out what NVML leaves out of that figure): modules, local memory, block slack. A sample counts only if
 *               the slot did not change around it and all the process's memory was on the card; until the next such
 *               sample, the last value holds
 * orphan        a process of the session that has died, while NVML still shows memory under its pid (a child of it
 *               keeps the device open, or memory that it exported is still mapped)
 *
 * Both count at the session's requests (ledger_unseen()) and in what the session uses (session_gpu.driver_bytes). Both
 * belong to the loop's thread, which follows the sampler's samples (sampler.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/error.h"
#include "ledger/ledger.h"

struct daemon;
struct process;
struct session;

/* One process on one GPU of its session. */
struct driver_part {
    struct ledger_slot_sample before; /* when the sample under way was asked for */
    bool looked;                      /* `before` belongs to the sample under way */
    uint64_t bytes;                   /* its part of the driver line */
    uint64_t least_bytes;             /* by the last sample, what it had at least while its slot changed */
    uint64_t shown_bytes;             /* by NVML; of a process in several slots, in one of them */
};

/* A dead process that NVML may still show. */
struct orphan {
    LIST_ENTRY(orphan) next;
    pid_t pid;
    uint64_t start_ticks;
    /* It died after the sample under way was asked for, so that sample says nothing about it. */
    bool is_new;
    uint64_t bytes[]; /* per GPU of the session */
};

/* The process with this slot has died: what it leaves on the card becomes an orphan's. Call before the slot is cleared.
 * If the process exported memory, all it was charged counts as let go of (driver_left.h). */
void driver_line_died(struct session *session, uint32_t slot, pid_t pid, uint64_t start_ticks);

/* Set while memory of the process is away or moves: NVML then shows less of it than its slot has charged, so a sample
 * cannot tell what the driver holds beyond that. The last value stays. This counts for the sample under way too. */
void driver_line_hold(struct process *process, bool is_held);

/* The session's processes have changed: add up their values again, and publish the sum. */
void driver_line_publish(struct session *session);

uint64_t driver_line_process_bytes(const struct process *process, unsigned policy_gpu);

/* Follow the samples. */
int driver_line_start(struct daemon *daemon, struct error *error);
void driver_line_stop(struct daemon *daemon); /* when no session is left */
