/* place.c - what slots and joint places have in common: who owns one, and how one is cleared whose owner is gone. */
#include "ledger/usage.h"

/* The high half never has the same value twice: if it is unchanged after the low half was read, they belong together. */
bool usage_owner_read(const struct ledger_usage *usage, uint32_t index, struct word128 *owner)
{
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        owner->high = usage_load(&usage->owners[index].high);
        owner->low = usage_load(&usage->owners[index].low);
        if (usage_load(&usage->owners[index].high) == owner->high)
            return true;
    }
    return false;
}

void usage_mark(_Atomic uint32_t *marked, uint32_t index)
{
    uint32_t seen = atomic_load_explicit(marked, memory_order_acquire);
    for (unsigned attempt = 0; seen <= index && attempt < USAGE_FEW_ATTEMPTS; attempt++)
        atomic_compare_exchange_strong_explicit(marked, &seen, index + 1, memory_order_seq_cst,
                                                memory_order_acquire);
}

static bool is_being_cleared(const struct ledger_usage *usage, uint32_t index, uint64_t generation)
{
    uint64_t owner = usage_load(&usage->owners[index].high);
    return usage_owner_state(owner) == USAGE_CLEARING && usage_owner_generation(owner) == generation;
}

/* Replace the word of a dead owner by 0 bytes of the next generation. Returns the bytes that it had. */
static uint64_t clear_word(struct ledger_usage *usage, uint32_t index, unsigned gpu, uint64_t generation)
{
    struct word128 *word = &usage->gpus[gpu].words[index];
    const struct word128 cleared = {.low = 0, .high = usage_first_stamp(usage_next_generation(generation))};

    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen = {.high = usage_load(&word->high)};
        seen.low = usage_load(&word->low);
        if (usage_stamp_generation(seen.high) != generation) {
            /* Cleared already, or never used by this owner. Bytes of another generation are the next owner's if we
             * are late; otherwise they are damage. */
            if (seen.low == 0 || !is_being_cleared(usage, index, generation))
                return 0;
        }
        uint64_t bytes = seen.low;
        if (word128_compare_exchange(word, &seen, cleared))
            return bytes;
    }
    return 0;
}

bool usage_begin_reap(struct ledger_usage *usage, uint32_t index, uint64_t generation,
                      uint64_t *recovered_bytes)
{
    GS_CHECK(index < USAGE_PLACES);
    for (unsigned attempt = 0; !is_being_cleared(usage, index, generation); attempt++) {
        struct word128 seen;
        if (attempt == USAGE_FEW_ATTEMPTS || !usage_owner_read(usage, index, &seen) ||
            usage_owner_state(seen.high) == USAGE_FREE || usage_owner_generation(seen.high) != generation)
            return false;
        struct word128 clearing = {
            .low = seen.low,
            .high = usage_owner_high(USAGE_CLEARING, generation, (pid_t)(uint32_t)seen.high)};
        word128_compare_exchange(&usage->owners[index], &seen, clearing);
    }

    uint64_t used = atomic_load_explicit(&usage->gpus_used, memory_order_acquire);
    for (; used; used &= used - 1) {
        unsigned gpu = (unsigned)__builtin_ctzll(used);
        uint64_t bytes = clear_word(usage, index, gpu, generation);
        if (recovered_bytes)
            recovered_bytes[gpu] = usage_add(recovered_bytes[gpu], bytes);
    }
    return true;
}

void usage_end_reap(struct ledger_usage *usage, uint32_t index, uint64_t generation)
{
    struct word128 seen;
    if (usage_owner_read(usage, index, &seen) && usage_owner_state(seen.high) == USAGE_CLEARING &&
        usage_owner_generation(seen.high) == generation)
        word128_compare_exchange(&usage->owners[index], &seen,
                                 (struct word128){.high = usage_owner_high(USAGE_FREE, generation, 0)});
}

bool usage_reap(struct ledger_usage *usage, uint32_t index, uint64_t generation, uint64_t *recovered_bytes)
{
    if (!usage_begin_reap(usage, index, generation, recovered_bytes))
        return false;
    usage_end_reap(usage, index, generation);
    return true;
}

uint64_t ledger_slot_bytes(const struct ledger_usage *usage, uint32_t index, unsigned gpu)
{
    return index < LEDGER_SLOTS && gpu < LEDGER_GPUS ? usage_load(&usage->gpus[gpu].words[index].low) : 0;
}
