/* slot.c - slots change hands: taken for a process, found again, cleared when it is gone.
 *
 * One word per slot, {pid, generation, state}, decides everything, so that any number of processes may claim and
 * clear at once, and may die doing so. usage.h has the rules. */
#include "ledger/usage.h"

static void reset_counts(struct ledger_usage *usage, uint32_t index)
{
    uint64_t used = atomic_load_explicit(&usage->gpus_used, memory_order_acquire);
    for (; used; used &= used - 1) {
        struct usage_request *request = &usage->gpus[__builtin_ctzll(used)].requests[index];
        atomic_store_explicit(&request->granted_count, 0, memory_order_relaxed);
        atomic_store_explicit(&request->refused_count, 0, memory_order_relaxed);
        atomic_store_explicit(&request->hidden_bytes, 0, memory_order_relaxed);
    }
    struct usage_request *movers = &usage->gpus[0].requests[index];
    for (unsigned mover = 0; mover < LEDGER_MOVERS; mover++)
        atomic_store_explicit(&movers->movers[mover], 0, memory_order_relaxed);
    atomic_store_explicit(&movers->more_movers, 0, memory_order_relaxed);
}

int ledger_slot_claim(struct ledger_usage *usage, struct ledger_owner owner, uint64_t *generation)
{
    for (uint32_t index = 0; index < LEDGER_SLOTS; index++) {
        struct word128 seen;
        if (usage_owner_state(usage_load(&usage->owners[index].high)) != USAGE_FREE ||
            !usage_owner_read(usage, index, &seen) || usage_owner_state(seen.high) != USAGE_FREE)
            continue;
        uint64_t next = usage_next_generation(usage_owner_generation(seen.high));
        GS_CHECK(next != usage_owner_generation(seen.high));
        struct word128 owned = {.low = owner.start_ticks,
                                .high = usage_owner_high(USAGE_OWNED, next, owner.pid)};
        usage_mark(&usage->slots_marked, index);
        if (!word128_compare_exchange(&usage->owners[index], &seen, owned))
            continue; /* another process took it */
        reset_counts(usage, index);
        *generation = next;
        return (int)index;
    }
    return -1;
}

bool ledger_slot_reap(struct ledger_usage *usage, uint32_t index, uint64_t generation,
                      uint64_t *recovered_bytes)
{
    if (index >= LEDGER_SLOTS || !usage_begin_reap(usage, index, generation, recovered_bytes))
        return false;
    usage_joint_reap(usage, index, generation, recovered_bytes);
    usage_end_reap(usage, index, generation);
    return true;
}

bool ledger_slot_clear(struct ledger_usage *usage, uint32_t index, uint64_t *recovered_bytes)
{
    if (index >= LEDGER_SLOTS)
        return false;
    uint64_t owner = usage_load(&usage->owners[index].high);
    return usage_owner_state(owner) != USAGE_FREE &&
           ledger_slot_reap(usage, index, usage_owner_generation(owner), recovered_bytes);
}

bool ledger_slot_owner(const struct ledger_usage *usage, uint32_t index, struct ledger_owner *owner,
                       uint64_t *generation)
{
    struct word128 seen;
    if (index >= LEDGER_SLOTS || !usage_owner_read(usage, index, &seen) ||
        usage_owner_state(seen.high) == USAGE_FREE)
        return false;
    *owner = (struct ledger_owner){.pid = (pid_t)(uint32_t)seen.high, .start_ticks = seen.low};
    *generation = usage_owner_generation(seen.high);
    return true;
}

struct ledger_counts ledger_slot_counts(const struct ledger_usage *usage, uint32_t index, unsigned gpu)
{
    if (index >= LEDGER_SLOTS || gpu >= LEDGER_GPUS)
        return (struct ledger_counts){0};
    const struct usage_request *request = &usage->gpus[gpu].requests[index];
    return (struct ledger_counts){
        .granted = atomic_load_explicit(&request->granted_count, memory_order_relaxed),
        .refused = atomic_load_explicit(&request->refused_count, memory_order_relaxed),
    };
}
