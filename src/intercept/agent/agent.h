/* agent.h - the thread that talks to the daemon about the GPUs' time, and opens and closes the gate.
 *
 * A process has one agent. It starts with the process's first context, if the session's daemon schedules. It has a
 * connection of its own (messages: wire/wire.h), blocks all signals, and keeps no context alive. Without a daemon the gate
 * is open, and the agent tries to reach the daemon every second. In a process that is limited on its own (standalone.h),
 * the agent keeps the cap on its GPU time, if there is one (cap_bucket.h). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "wire/wire.h"

/* The process has made a context on this GPU of the policy. The first one starts the agent. */
void agent_meet(uint32_t gpu);
/* The process has no context left on this GPU of the policy. */
void agent_part(uint32_t gpu);

/* Before the program destroys a context: from now on the agent does not ask the driver about it. Waits only while the
 * agent is asking. */
void agent_leave_context(CUcontext context);

/* --- Memory that leaves the card ------------------------------------------------------------------- */

/* Where the process's device memory is. */
struct agent_memory {
    /* Memory that can move: on the card, and in the arena. */
    uint64_t resident_bytes, evicted_bytes;
    uint64_t stays_bytes[WIRE_STAYS_COUNT]; /* cannot move, by why */
    /* The size of the chunks that the process has. */
    uint64_t arena_bytes;
};

/* The functions that move this process's memory. The agent's thread calls them. */
struct agent_mover {
    /* While memory is away, the driver does not know its addresses. */
    bool takes_addresses;
    /* Add a chunk to the arena: `fd` is a sealed memfd of `bytes` whose memory is allocated. 0 or a negative errno. The
     * caller closes `fd`. */
    int (*take_chunk)(int fd, uint64_t bytes);
    /* Page-lock a little more of the arena, so that a move need not. Calls of the program may have to wait meanwhile. 1: it
     * did; 0: all is page-locked; a negative errno: not now. NULL: there is nothing to page-lock. */
    int (*lock_pages)(void);
    void (*count)(struct agent_memory *memory);
    /* Move all memory that can move off the card, and back onto it; evict() takes as much as the arena has room for, and
     * the rest when it is called again. Called with the gate closed and nothing in flight. They
     * return when the move is done, and call `progress` now and then. 0, or a negative errno; -ENOMEM: no room in the arena,
     * or on the card. After an error, what had moved was moved back, or if that failed too, is where count() says: nothing is
     * lost. Memory that is made between the two is not on the card. */
    int (*evict)(void (*progress)(void));
    int (*restore)(void (*progress)(void));
    /* Between the two: move up to `most_bytes` of what is away from `gpu` of the policy back to it. The program uses none of
     * it before restore(). evict() takes it away again. NULL: the memory only comes back as a whole. */
    int (*restore_part)(uint32_t gpu, uint64_t most_bytes, void (*progress)(void));
    /* Whether the mover has more host memory than it could need; and give one chunk of it back to the system, or one where
     * there is more than `keep_bytes`, that holds nothing that is away. False: there is none, or it cannot go now. NULL: it never has. */
    bool (*has_spare_chunk)(void);
    bool (*give_back_chunk)(uint64_t keep_bytes);
};

/* Call this once, before the process enters its first context. `mover` must live as long as the process. */
void agent_set_mover(const struct agent_mover *mover);

/* Memory that cannot move was made, pinned or given back: have the agent tell the daemon soon. Call it after the change. An
 * agent that looks soon anyway is not woken. */
void agent_tell_of_memory(void);
extern atomic_bool agent_moves_memory; /* there is a mover */
static inline void agent_memory_changed(void)
{
    if (__builtin_expect(atomic_load_explicit(&agent_moves_memory, memory_order_relaxed), false))
        agent_tell_of_memory();
}

/* Whether the mover takes addresses from the driver. If so, a call that names addresses keeps the memory where it is
 * (gate_names_begin()). */
bool agent_takes_addresses(void);

/* `gpu` of the policy had no room for `bytes`: wait until the daemon has made room; if the process's memory is away, until
 * it is back, unless one more attempt shows that the request does not need the card. `attempt` counts from 0 for each
 * request. `is_charged`: the bytes stay charged in the ledger meanwhile. False: there will be no room, or nobody can say.
 * Call it without any lock that a move takes. */
bool agent_wait_for_room(uint32_t gpu, uint64_t bytes, bool is_charged, unsigned attempt);
