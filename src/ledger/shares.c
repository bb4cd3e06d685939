/* shares.c - memory that several processes of a session hold: who made it, and who imported it.
 *
 * A share is a place like a slot, of one allocation instead of one process: its owner's entry has the name
 * that the driver gave the allocation, its words are what it is charged, and it is cleared like a dead slot
 * once nobody holds it. So nothing is handed on when a holder dies: what was charged was never that one's
 * alone.
 *
 * hold        one word of the share's `holders`: {slot, generation}. Whoever wants one writes it first, and
 * then joins: raises the count in the owner's entry by a compare-and-swap. Who gives one up clears it, and
 *             clears the share if it then sees no hold and the entry still is as it was before it looked: a
 * hold that it did not see has not joined, and will find the share gone. candidate   a share that is being
 * made. Two processes that make the same one must end with one of it: each puts up a candidate and then looks
 * for others of that name. One that is made already is taken instead, a candidate is struck out (its maker
 * tries again), and only an own candidate that nobody has struck out meanwhile becomes the share. As both
 * look after they have put theirs up, one sees the other.
 *
 * A process that dies on the way leaves a candidate, a hold, or a share without holds: usage_shares_reap().
 *
 * tests/model/shares.pml is this algorithm, step by step; change both together. */
#include "ledger/usage.h"

static uint64_t hold_of(uint32_t slot, uint64_t generation)
{
    return (uint64_t)(slot + 1) << 32 | (generation & UINT32_MAX);
}

/* Put `to` in the place of a hold that is `from`. */
static bool change_hold(struct ledger_usage *usage, uint32_t share, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < LEDGER_SHARE_HOLDERS; i++) {
        _Atomic uint64_t *word = &usage->holders[share].words[i];
        uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
        /* With is_held(), in one order with the entries. */
        if (seen == from && atomic_compare_exchange_strong_explicit(word, &seen, to, memory_order_seq_cst,
                                                                    memory_order_relaxed))
            return true;
    }
    return false;
}

static bool is_held(const struct ledger_usage *usage, uint32_t share)
{
    for (unsigned i = 0; i < LEDGER_SHARE_HOLDERS; i++)
        if (atomic_load_explicit(&usage->holders[share].words[i], memory_order_seq_cst))
            return true;
    return false;
}

static bool change_entry(struct ledger_usage *usage, uint32_t share, struct word128 seen,
                         enum usage_owner_state state, uint32_t joined)
{
    struct word128 changed = {.low = state == USAGE_FREE ? 0 : seen.low,
                              .high =
                                  usage_owner_high(state, usage_owner_generation(seen.high), (pid_t)joined)};
    return word128_compare_exchange(&usage->owners[LEDGER_SLOTS + share], &seen, changed);
}

/* Clear the share if nobody holds it. */
static void clear_unheld(struct ledger_usage *usage, uint32_t share, uint64_t *recovered_bytes)
{
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen;
        if (!usage_owner_read(usage, LEDGER_SLOTS + share, &seen))
            return;
        unsigned state = usage_owner_state(seen.high);
        if (state == USAGE_CLEARING ||
            (state == USAGE_OWNED && !is_held(usage, share) &&
             change_entry(usage, share, seen, USAGE_CLEARING, (uint32_t)seen.high))) {
            usage_reap(usage, LEDGER_SLOTS + share, usage_owner_generation(seen.high), recovered_bytes);
            return;
        }
        if (state != USAGE_OWNED || is_held(usage, share))
            return;
    }
}

static void leave(struct ledger_usage *usage, uint32_t share, uint64_t hold)
{
    if (change_hold(usage, share, hold, 0))
        clear_unheld(usage, share, NULL);
}

/* Whether this is the share of this name. A candidate of that name is struck out, if `strike`. */
static bool is_it(struct ledger_usage *usage, uint32_t share, uint64_t name, bool strike)
{
    struct word128 seen;
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        if (usage_load(&usage->owners[LEDGER_SLOTS + share].low) != name ||
            !usage_owner_read(usage, LEDGER_SLOTS + share, &seen) || seen.low != name)
            return false;
        if (usage_owner_state(seen.high) != USAGE_CANDIDATE || !strike)
            return usage_owner_state(seen.high) == USAGE_OWNED;
        if (change_entry(usage, share, seen, USAGE_FREE, 0))
            return false;
        /* It has just become the share, or somebody else has struck it out. */
    }
    return false;
}

/* The share of this name, or -1; beside `own`, a candidate, there is no other then. */
static int find(struct ledger_usage *usage, uint64_t name, int own)
{
    uint32_t end = usage_shares_end(usage) - LEDGER_SLOTS;
    for (uint32_t share = 0; share < end; share++)
        if ((int)share != own && is_it(usage, share, name, own >= 0))
            return (int)share;
    return -1;
}

/* Put up a candidate. Returns its index, or -1 without a free one. */
static int put_up(struct ledger_usage *usage, uint64_t name, struct word128 *candidate)
{
    for (uint32_t share = 0; share < LEDGER_SHARES; share++) {
        struct word128 seen;
        if (!usage_owner_read(usage, LEDGER_SLOTS + share, &seen) ||
            usage_owner_state(seen.high) != USAGE_FREE)
            continue;
        uint64_t next = usage_next_generation(usage_owner_generation(seen.high));
        *candidate = (struct word128){.low = name, .high = usage_owner_high(USAGE_CANDIDATE, next, 0)};
        usage_mark(&usage->shares_marked, share);
        if (word128_compare_exchange(&usage->owners[LEDGER_SLOTS + share], &seen, *candidate))
            return (int)share;
    }
    return -1;
}

/* Join the share `share` if it still is the one of this name. */
static bool join(struct ledger_usage *usage, uint32_t share, uint64_t name, uint64_t hold)
{
    if (!change_hold(usage, share, 0, hold))
        return false;
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen;
        if (!usage_owner_read(usage, LEDGER_SLOTS + share, &seen) || seen.low != name ||
            usage_owner_state(seen.high) != USAGE_OWNED)
            break;
        if (change_entry(usage, share, seen, USAGE_OWNED, (uint32_t)seen.high + 1))
            return true;
    }
    leave(usage, share, hold);
    return false;
}

/* Make the share of this name. -1: there is no room for it, or there may be one by now. */
static int make_share(struct ledger_usage *usage, uint64_t name, uint64_t hold)
{
    struct word128 candidate;
    int own = put_up(usage, name, &candidate);
    if (own < 0)
        return -1;
    /* The hold comes first: nobody clears what becomes a share here. */
    bool has_hold = change_hold(usage, (uint32_t)own, 0, hold);
    /* With the same in who makes it too: the candidate above is put up before find() looks for others. */
    atomic_thread_fence(memory_order_seq_cst);
    if (has_hold && find(usage, name, own) < 0 &&
        change_entry(usage, (uint32_t)own, candidate, USAGE_OWNED, 1))
        return own;
    change_entry(usage, (uint32_t)own, candidate, USAGE_FREE, 0);
    if (has_hold)
        leave(usage, (uint32_t)own, hold);
    return -1;
}

/* How often a name is looked for anew: it was joined as its last holder left, or two made it at once. */
#define JOIN_ATTEMPTS 64u

int ledger_share_join(const struct ledger_slot *slot, uint64_t name, bool make, bool *is_new)
{
    struct ledger_usage *usage = slot->ledger.usage;
    uint64_t hold = hold_of(slot->index, slot->generation);
    *is_new = false;
    for (unsigned attempt = 0; name && slot->index < LEDGER_SLOTS && attempt < JOIN_ATTEMPTS; attempt++) {
        int share = find(usage, name, -1);
        if (share >= 0 && join(usage, (uint32_t)share, name, hold))
            return share;
        if (share >= 0)
            continue;
        if (!make)
            return -1;
        share = make_share(usage, name, hold);
        if (share >= 0) {
            *is_new = true;
            return share;
        }
    }
    return -1;
}

void ledger_share_leave(const struct ledger_slot *slot, uint32_t share)
{
    if (share < LEDGER_SHARES)
        leave(slot->ledger.usage, share, hold_of(slot->index, slot->generation));
}

void usage_shares_reap(struct ledger_usage *usage, uint32_t slot, uint64_t generation,
                       uint64_t *recovered_bytes)
{
    uint64_t hold = hold_of(slot, generation);
    uint32_t end = usage_shares_end(usage) - LEDGER_SLOTS;
    for (uint32_t share = 0; share < end; share++) {
        struct word128 seen;
        /* Whose candidate it is nobody knows; one that lives puts up another. */
        if (usage_owner_read(usage, LEDGER_SLOTS + share, &seen) &&
            usage_owner_state(seen.high) == USAGE_CANDIDATE)
            change_entry(usage, share, seen, USAGE_FREE, 0);
        for (unsigned i = 0; i < LEDGER_SHARE_HOLDERS && change_hold(usage, share, hold, 0); i++)
            ;
        clear_unheld(usage, share, recovered_bytes);
    }
}

bool ledger_share_is_named(const struct ledger *ledger, uint32_t share, uint64_t name)
{
    return share < LEDGER_SHARES && usage_load(&ledger->usage->owners[LEDGER_SLOTS + share].low) == name;
}

uint64_t ledger_share_bytes(const struct ledger_usage *usage, uint32_t share, unsigned gpu)
{
    return share < LEDGER_SHARES && gpu < LEDGER_GPUS
               ? usage_load(&usage->gpus[gpu].words[LEDGER_SLOTS + share].low)
               : 0;
}

uint64_t ledger_shared_bytes(const struct ledger_usage *usage, unsigned gpu)
{
    return gpu < LEDGER_GPUS ? usage_sum_words(usage, gpu, LEDGER_SLOTS, usage_shares_end(usage)) : 0;
}

uint64_t ledger_slot_shown_bytes(const struct ledger_usage *usage, uint32_t index, unsigned gpu)
{
    uint32_t slots[LEDGER_SHARE_HOLDERS], end = usage_shares_end(usage) - LEDGER_SLOTS;
    uint64_t sum = ledger_slot_bytes(usage, index, gpu);
    for (uint32_t share = 0; share < end; share++) {
        uint64_t bytes = ledger_share_bytes(usage, share, gpu);
        if (bytes && ledger_share_holders(usage, share, slots) && slots[0] == index)
            sum = usage_add(sum, bytes);
    }
    return sum;
}

unsigned ledger_share_holders(const struct ledger_usage *usage, uint32_t share,
                              uint32_t slots[static LEDGER_SHARE_HOLDERS])
{
    unsigned count = 0;
    for (unsigned i = 0; share < LEDGER_SHARES && i < LEDGER_SHARE_HOLDERS; i++) {
        uint64_t hold = atomic_load_explicit(&usage->holders[share].words[i], memory_order_acquire);
        if (hold)
            slots[count++] = (uint32_t)(hold >> 32) - 1;
    }
    return count;
}

uint64_t ledger_shares_stamp(const struct ledger_usage *usage, unsigned gpu)
{
    uint64_t sum = 0;
    uint32_t end = usage_shares_end(usage);
    for (uint32_t place = LEDGER_SLOTS; place < end && gpu < LEDGER_GPUS; place++)
        sum += usage_load(&usage->gpus[gpu].words[place].high);
    return sum;
}
