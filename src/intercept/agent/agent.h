/* agent.h - the thread that speaks with the daemon about the GPUs' time, and opens and closes the gate.
 *
 * One a process, started with the first context of a session whose daemon schedules. It has a connection of
 * its own (messages: wire/wire.h), blocks all signals, and keeps no context alive. Without a daemon the gate
 * is open: if the connection ends, or was never had, the agent tries again every second. In a process that is
 * limited on its own (standalone.h) it keeps the cap on its GPU time, if there is one (cap_bucket.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

/* The process has a context on this GPU of the policy: the first starts the agent. No more of its contexts
 * are there. */
void agent_meet(uint32_t gpu);
void agent_part(uint32_t gpu);

/* Before the program destroys a context: the agent asks about it no more. Waits only while the agent is
 * asking. */
void agent_leave_context(CUcontext context);

/* --- Memory that leaves the card ------------------------------------------------------------------- */

/* How the process's device memory stands. */
struct agent_memory {
    /* Of memory that can move: on the card, and in the arena. */
    uint64_t resident_bytes, evicted_bytes;
    uint64_t unmovable_bytes;
    /* Of the chunks that were taken. */
    uint64_t arena_bytes;
};

/* What can move this process's memory. The agent's thread calls it. */
struct agent_mover {
    /* The driver does not know the addresses of what is away. */
    bool takes_addresses;
    /* Take over a chunk for the arena: `fd` is a sealed memfd of `bytes` whose memory is there. 0 or a negative errno;
     * the caller closes `fd`. */
    int (*take_chunk)(int fd, uint64_t bytes);
    void (*count)(struct agent_memory *memory);
    /* Have all that can move leave the card, and come back; with the gate closed and nothing in flight. They return
     * when it is done, and call `progress` now and then. 0; or a negative errno, and then what had moved was moved back,
     * or where that failed too, is where count() tells: nothing is lost. -ENOMEM: no room in the arena, or on the card.
     * Memory that is made between the two is not on the card. */
    int (*evict)(void (*progress)(void));
    int (*restore)(void (*progress)(void));
    /* Between the two: have up to `most_bytes` of what is away from `gpu` of the policy come, of which nothing is used before
     * restore(). evict() takes it away again. NULL: it comes as a whole. */
    int (*restore_part)(uint32_t gpu, uint64_t most_bytes, void (*progress)(void));
    /* Whether it has more host memory than it could need; and give a chunk of that back to the system. NULL: it has none. */
    bool (*has_spare_chunk)(void);
    bool (*give_back_chunk)(void);
};

/* Once, before the process's first context is entered. It lives for ever. */
void agent_set_mover(const struct agent_mover *mover);

/* Whether the mover takes addresses from the driver: whoever names some holds the memory where it is
 * (gate_names_begin()). */
bool agent_takes_addresses(void);

/* The card had no room for `bytes` on `gpu` of the policy: wait until the daemon has made some. `attempt` counts from 0 for
 * one request; `is_charged`: its bytes stand in the ledger meanwhile. False: there will be none, or nobody can tell. Called without
 * any lock that a move takes. */
bool agent_wait_for_room(uint32_t gpu, uint64_t bytes, bool is_charged, unsigned attempt);
