/* driver_line.h - what the card holds for a session beyond what its processes charged.
 *
 * driver line   for each attached process and card: NVML's figure for the process, less what its slot has
 *               charged (but for what NVML leaves out of that figure): modules, local memory, block slack.
 *               Concluded only from a sample around which the slot rested; until then the last one holds
 * orphan        a process of the session that has died, while NVML still shows memory under its pid (a child
 * of its keeps the device open, what it exported is still mapped)
 *
 * Both count at the session's requests (ledger_unseen()) and in what it uses. Both belong to the loop's
 * thread; samples come from gpu.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ledger/ledger.h"

struct daemon;
struct nvml_sample;
struct process;
struct session;

/* One process on one GPU of its session. */
struct driver_share {
    struct ledger_slot_sample before; /* as the sample under way was asked for */
    bool looked;                      /* `before` is of that sample */
    uint64_t bytes;                   /* its part of the driver line */
};

/* A dead process that NVML may still show. */
struct orphan {
    struct orphan *next;
    pid_t pid;
    uint64_t start_ticks;
    bool is_new;      /* died after the sample under way was asked for: that one does not tell */
    uint64_t bytes[]; /* by GPU of the session */
};

/* Look at all slots, right before NVML is asked. */
void driver_line_begin(struct daemon *daemon);

/* Take in what NVML showed on card `gpu`. Returns whether any process moved meanwhile, so that another sample
 * would tell more. */
bool driver_line_take(struct daemon *daemon, unsigned gpu, const struct nvml_sample *sample);

/* All cards were taken in: forget the dead that are shown no more, make the sessions' sums count. */
void driver_line_end(struct daemon *daemon);

/* A process has died, or its slot was cleared after it had: what it leaves on the card becomes an orphan's.
 */
void driver_line_died(struct session *session, pid_t pid, uint64_t start_ticks);

/* Who is attached has changed: make the sum count. */
void driver_line_publish(struct session *session);

uint64_t driver_line_bytes(const struct session *session, unsigned policy_gpu);
uint64_t driver_line_orphan_bytes(const struct session *session, unsigned policy_gpu);
uint64_t driver_line_process_bytes(const struct process *process, unsigned policy_gpu);

/* The session ends. */
void driver_line_forget(struct session *session);
