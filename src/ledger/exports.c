/* exports.c - the names of what the session's processes have exported: a hash table in which each name has a few places. */
#include "ledger/usage.h"

#define NOBODY UINT64_MAX /* owns a note that has ended; no slot has that number */
#define PLACES 16u        /* that a name may take, one after the other */

static struct usage_export *place_of(struct ledger_usage *usage, uint64_t name, unsigned at)
{
    return &usage->exports[(name + at) % USAGE_EXPORTS];
}

static uint64_t owner_word(uint32_t slot, uint64_t generation)
{
    return (uint64_t)slot << 32 | (generation & UINT32_MAX);
}

static bool is_alive(const struct ledger_usage *usage, uint64_t owner)
{
    struct ledger_owner process;
    uint64_t generation;
    return ledger_slot_owner(usage, (uint32_t)(owner >> 32), &process, &generation) &&
           (generation & UINT32_MAX) == (owner & UINT32_MAX);
}

void ledger_export(const struct ledger_slot *slot, uint64_t name)
{
    struct ledger_usage *usage = slot->ledger.usage;
    struct usage_export *best = place_of(usage, name, 0);
    for (unsigned at = PLACES; at-- > 0;) {
        struct usage_export *place = place_of(usage, name, at);
        uint64_t there = atomic_load_explicit(&place->name, memory_order_acquire);
        if (there == name) {
            best = place;
            break;
        }
        if (!there || !is_alive(usage, atomic_load_explicit(&place->owner, memory_order_relaxed)))
            best = place;
    }
    atomic_store_explicit(&best->owner, owner_word(slot->index, slot->generation), memory_order_relaxed);
    atomic_store_explicit(&best->name, name, memory_order_release); /* ledger_is_exported() */
}

bool ledger_is_exported(const struct ledger *ledger, uint64_t name)
{
    for (unsigned at = 0; at < PLACES; at++) {
        struct usage_export *place = place_of(ledger->usage, name, at);
        if (atomic_load_explicit(&place->name, memory_order_acquire) == name)
            return is_alive(ledger->usage, atomic_load_explicit(&place->owner, memory_order_relaxed));
    }
    return false;
}

void ledger_forget_exports(const struct ledger_slot *slot)
{
    const uint64_t owner = owner_word(slot->index, slot->generation);
    for (unsigned i = 0; i < USAGE_EXPORTS; i++) {
        struct usage_export *place = &slot->ledger.usage->exports[i];
        uint64_t noted = owner;
        /* Whoever takes the place meanwhile writes its own word first, and keeps it. */
        atomic_compare_exchange_strong_explicit(&place->owner, &noted, NOBODY, memory_order_relaxed,
                                                memory_order_relaxed);
    }
}

bool ledger_slot_has_exported(const struct ledger_usage *usage, uint32_t slot)
{
    struct ledger_owner process;
    uint64_t generation;
    if (!ledger_slot_owner(usage, slot, &process, &generation))
        return false;
    for (unsigned i = 0; i < USAGE_EXPORTS; i++)
        if (atomic_load_explicit(&usage->exports[i].name, memory_order_acquire) &&
            atomic_load_explicit(&usage->exports[i].owner, memory_order_relaxed) ==
                owner_word(slot, generation))
            return true;
    return false;
}
