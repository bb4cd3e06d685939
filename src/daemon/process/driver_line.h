/* driver_line.h - what the card holds for a session beyond what its processes charged.
 *
 * driver line   for each attached process and card: NVML's figure for the process, less what its slot has
 *               charged (but for what NVML leaves out of that figure): modules, local memory, block slack.
 *               Concluded only from a sample around which the slot rested and all its memory was on the
 *               card; until then the last one holds
 * orphan        a process of the session that has died, while NVML still shows memory under its pid (a child
 *               of its keeps the device open, what it exported is still mapped)
 *
 * Both count at the session's requests (ledger_unseen()) and in what it uses (session_gpu.driver_bytes). Both
 * belong to the loop's thread; it follows the sampler's samples (sampler.h). */
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
    struct ledger_slot_sample before; /* as the sample under way was asked for */
    bool looked;                      /* `before` is of that sample */
    uint64_t bytes;                   /* its part of the driver line */
};

/* A dead process that NVML may still show. */
struct orphan {
    LIST_ENTRY(orphan) next;
    pid_t pid;
    uint64_t start_ticks;
    bool is_new;      /* died after the sample under way was asked for: that one does not tell */
    uint64_t bytes[]; /* by GPU of the session */
};

/* The process with this slot has died: what it leaves on the card becomes an orphan's. To be called before the slot is
 * cleared. Where it exported memory, what it was charged counts as left until a sample tells who has it. */
void driver_line_died(struct session *session, uint32_t slot, pid_t pid, uint64_t start_ticks);

/* While memory of the process is away, or moves, NVML shows less of it than its slot has charged, so samples do not tell what the
 * driver has besides: what was known stays. Of the sample under way too. */
void driver_line_hold(struct process *process, bool is_held);

/* Who is attached has changed: make the sum count. */
void driver_line_publish(struct session *session);

uint64_t driver_line_process_bytes(const struct process *process, unsigned policy_gpu);

/* Follow the samples. */
int driver_line_start(struct daemon *daemon, struct error *error);
void driver_line_stop(struct daemon *daemon); /* no session is left */
