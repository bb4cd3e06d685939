/* joint.c - joint memory: what several processes of a session hold, charged to the session once.
 *
 * joint place   like a slot, but of one allocation instead of one process. Its entry in `owners` has the name that
 *               the driver gave the allocation, and its words are what the allocation is charged.
 * hold          one word of the joint place's `holders`: {slot, generation}
 * candidate     a joint place that is being made
 *
 * A joint place is cleared like a dead slot once nobody holds it. So nothing is handed on when a holder dies: the
 * charge never belonged to one holder alone.
 *
 * To join, a process first writes its hold and then raises the count in the entry by a compare-and-swap. To leave, it
 * clears its hold, and clears the place if it then sees no hold and the entry is still as it was before it looked. A
 * hold that it did not see has not joined yet, and its owner will find the place gone.
 *
 * Two processes that make a place of the same name must end with one place. Each puts up a candidate and then looks
 * for other places of that name. A place that is already made is joined instead. A candidate is struck out, and its
 * maker tries again. A process makes its own candidate the place only if nobody has struck it out meanwhile. Both look
 * after they have put up their candidates, so one of them sees the other's.
 *
 * A process that dies on the way leaves a candidate, a hold, or a place without holds: usage_joint_reap().
 *
 * tests/model/joint.pml is this algorithm, step by step; change both together. */
#include "ledger/usage.h"

static uint64_t hold_of(uint32_t slot, uint64_t generation)
{
    return (uint64_t)(slot + 1) << 32 | (generation & UINT32_MAX);
}

/* Replace a hold `from` by `to`. False: there is no such hold. */
static bool change_hold(struct ledger_usage *usage, uint32_t joint, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < LEDGER_JOINT_HOLDERS; i++) {
        _Atomic uint64_t *word = &usage->holders[joint].words[i];
        uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
        /* seq_cst, as in is_held(): every process sees changes of holds and of entries in one order. */
        if (seen == from && atomic_compare_exchange_strong_explicit(word, &seen, to, memory_order_seq_cst,
                                                                    memory_order_relaxed))
            return true;
    }
    return false;
}

static bool is_held(const struct ledger_usage *usage, uint32_t joint)
{
    for (unsigned i = 0; i < LEDGER_JOINT_HOLDERS; i++)
        if (atomic_load_explicit(&usage->holders[joint].words[i], memory_order_seq_cst))
            return true;
    return false;
}

static bool change_entry(struct ledger_usage *usage, uint32_t joint, struct word128 seen,
                         enum usage_owner_state state, uint32_t joined)
{
    struct word128 changed = {.low = state == USAGE_FREE ? 0 : seen.low,
                              .high =
                                  usage_owner_high(state, usage_owner_generation(seen.high), (pid_t)joined)};
    return word128_compare_exchange(&usage->owners[LEDGER_SLOTS + joint], &seen, changed);
}

/* The place is being cleared. What it had may be kept by a descriptor. */
static void count_let_go(struct ledger_usage *usage, uint32_t joint)
{
    uint64_t used = atomic_load_explicit(&usage->gpus_used, memory_order_acquire);
    for (; used; used &= used - 1) {
        unsigned gpu = (unsigned)__builtin_ctzll(used);
        uint64_t bytes = ledger_joint_bytes(usage, joint, gpu);
        if (bytes)
            ledger_let_go(usage, gpu, bytes);
    }
}

/* Clear the joint place if nobody holds it. `is_kept`: a descriptor may keep the memory. */
static void clear_unheld(struct ledger_usage *usage, uint32_t joint, bool is_kept, uint64_t *recovered_bytes)
{
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen;
        if (!usage_owner_read(usage, LEDGER_SLOTS + joint, &seen))
            return;
        unsigned state = usage_owner_state(seen.high);
        bool is_first = state == USAGE_OWNED && !is_held(usage, joint) &&
                        change_entry(usage, joint, seen, USAGE_CLEARING, (uint32_t)seen.high);
        if (is_first && is_kept)
            count_let_go(usage, joint);
        if (state == USAGE_CLEARING || is_first) {
            usage_reap(usage, LEDGER_SLOTS + joint, usage_owner_generation(seen.high), recovered_bytes);
            return;
        }
        if (state != USAGE_OWNED || is_held(usage, joint))
            return;
    }
}

static void leave(struct ledger_usage *usage, uint32_t joint, uint64_t hold, bool is_kept)
{
    if (change_hold(usage, joint, hold, 0))
        clear_unheld(usage, joint, is_kept, NULL);
}

/* Whether this is the joint place of this name. Strikes out a candidate of that name, if `strike`. */
static bool is_it(struct ledger_usage *usage, uint32_t joint, uint64_t name, bool strike)
{
    struct word128 seen;
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        if (usage_load(&usage->owners[LEDGER_SLOTS + joint].low) != name ||
            !usage_owner_read(usage, LEDGER_SLOTS + joint, &seen) || seen.low != name)
            return false;
        if (usage_owner_state(seen.high) != USAGE_CANDIDATE || !strike)
            return usage_owner_state(seen.high) == USAGE_OWNED;
        if (change_entry(usage, joint, seen, USAGE_FREE, 0))
            return false;
        /* It has just become the joint place, or another process has struck it out. */
    }
    return false;
}

/* The joint place of this name, or -1. With the caller's candidate `own` (>= 0), it strikes out other candidates of
 * that name; after -1 there is no other place of that name. */
static int find(struct ledger_usage *usage, uint64_t name, int own)
{
    uint32_t end = usage_joint_end(usage) - LEDGER_SLOTS;
    for (uint32_t joint = 0; joint < end; joint++)
        if ((int)joint != own && is_it(usage, joint, name, own >= 0))
            return (int)joint;
    return -1;
}

/* Put up a candidate. Returns its index, or -1 without a free one. */
static int put_up(struct ledger_usage *usage, uint64_t name, struct word128 *candidate)
{
    for (uint32_t joint = 0; joint < LEDGER_JOINT_PLACES; joint++) {
        struct word128 seen;
        if (!usage_owner_read(usage, LEDGER_SLOTS + joint, &seen) ||
            usage_owner_state(seen.high) != USAGE_FREE)
            continue;
        uint64_t next = usage_next_generation(usage_owner_generation(seen.high));
        *candidate = (struct word128){.low = name, .high = usage_owner_high(USAGE_CANDIDATE, next, 0)};
        usage_mark(&usage->joint_marked, joint);
        if (word128_compare_exchange(&usage->owners[LEDGER_SLOTS + joint], &seen, *candidate))
            return (int)joint;
    }
    return -1;
}

/* Join the joint place `joint` if it still is the one of this name. */
static bool join(struct ledger_usage *usage, uint32_t joint, uint64_t name, uint64_t hold)
{
    if (!change_hold(usage, joint, 0, hold))
        return false;
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen;
        if (!usage_owner_read(usage, LEDGER_SLOTS + joint, &seen) || seen.low != name ||
            usage_owner_state(seen.high) != USAGE_OWNED)
            break;
        if (change_entry(usage, joint, seen, USAGE_OWNED, (uint32_t)seen.high + 1))
            return true;
    }
    leave(usage, joint, hold, false);
    return false;
}

/* Make the joint place of this name. -1: there is no room for one, or another process may have made it by now. */
static int make_place(struct ledger_usage *usage, uint64_t name, uint64_t hold)
{
    struct word128 candidate;
    int own = put_up(usage, name, &candidate);
    if (own < 0)
        return -1;
    /* First the hold, so that nobody clears the candidate once it is the joint place. */
    bool has_hold = change_hold(usage, (uint32_t)own, 0, hold);
    /* Pairs with the same fence in another process that makes this place: each candidate is up before find() looks
     * for others. */
    atomic_thread_fence(memory_order_seq_cst);
    if (has_hold && find(usage, name, own) < 0 &&
        change_entry(usage, (uint32_t)own, candidate, USAGE_OWNED, 1))
        return own;
    change_entry(usage, (uint32_t)own, candidate, USAGE_FREE, 0);
    if (has_hold)
        leave(usage, (uint32_t)own, hold, false);
    return -1;
}

/* How often to look for a name again: its last holder left as we joined, or two processes made the place at once. */
#define JOIN_ATTEMPTS 64u

int ledger_joint_join(const struct ledger_slot *slot, uint64_t name, bool make, bool *is_new)
{
    struct ledger_usage *usage = slot->ledger.usage;
    uint64_t hold = hold_of(slot->index, slot->generation);
    GS_CHECK(hold != 0);
    *is_new = false;
    for (unsigned attempt = 0; name && slot->index < LEDGER_SLOTS && attempt < JOIN_ATTEMPTS; attempt++) {
        int joint = find(usage, name, -1);
        if (joint >= 0 && join(usage, (uint32_t)joint, name, hold))
            return joint;
        if (joint >= 0)
            continue;
        if (!make)
            return -1;
        joint = make_place(usage, name, hold);
        if (joint >= 0) {
            *is_new = true;
            return joint;
        }
    }
    return -1;
}

void ledger_joint_leave(const struct ledger_slot *slot, uint32_t joint)
{
    if (joint < LEDGER_JOINT_PLACES)
        leave(slot->ledger.usage, joint, hold_of(slot->index, slot->generation), false);
}

void ledger_joint_let_go(const struct ledger_slot *slot, uint32_t joint)
{
    if (joint < LEDGER_JOINT_PLACES)
        leave(slot->ledger.usage, joint, hold_of(slot->index, slot->generation), true);
}

void usage_joint_reap(struct ledger_usage *usage, uint32_t slot, uint64_t generation,
                      uint64_t *recovered_bytes)
{
    uint64_t hold = hold_of(slot, generation);
    uint32_t end = usage_joint_end(usage) - LEDGER_SLOTS;
    for (uint32_t joint = 0; joint < end; joint++) {
        struct word128 seen;
        /* Nobody knows whose candidate this is. If its maker lives, it puts up another. */
        if (usage_owner_read(usage, LEDGER_SLOTS + joint, &seen) &&
            usage_owner_state(seen.high) == USAGE_CANDIDATE)
            change_entry(usage, joint, seen, USAGE_FREE, 0);
        for (unsigned i = 0; i < LEDGER_JOINT_HOLDERS && change_hold(usage, joint, hold, 0); i++)
            ;
        clear_unheld(usage, joint, true, recovered_bytes);
    }
}

bool ledger_joint_is_named(const struct ledger *ledger, uint32_t joint, uint64_t name)
{
    return joint < LEDGER_JOINT_PLACES &&
           usage_load(&ledger->usage->owners[LEDGER_SLOTS + joint].low) == name;
}

uint32_t ledger_joint_end(const struct ledger_usage *usage)
{
    return usage_joint_end(usage) - LEDGER_SLOTS;
}

uint64_t ledger_joint_bytes(const struct ledger_usage *usage, uint32_t joint, unsigned gpu)
{
    return joint < LEDGER_JOINT_PLACES && gpu < LEDGER_GPUS
               ? usage_load(&usage->gpus[gpu].words[LEDGER_SLOTS + joint].low)
               : 0;
}

uint64_t ledger_joint_total_bytes(const struct ledger_usage *usage, unsigned gpu)
{
    return gpu < LEDGER_GPUS ? usage_sum_words(usage, gpu, LEDGER_SLOTS, usage_joint_end(usage)) : 0;
}

uint64_t ledger_slot_shown_bytes(const struct ledger_usage *usage, uint32_t index, unsigned gpu)
{
    uint32_t slots[LEDGER_JOINT_HOLDERS], end = usage_joint_end(usage) - LEDGER_SLOTS;
    uint64_t sum = ledger_slot_bytes(usage, index, gpu);
    for (uint32_t joint = 0; joint < end; joint++) {
        uint64_t bytes = ledger_joint_bytes(usage, joint, gpu);
        if (bytes && ledger_joint_holders(usage, joint, slots) && slots[0] == index)
            sum = usage_add(sum, bytes);
    }
    return sum;
}

bool ledger_joint_is_first(const struct ledger_slot *slot, uint32_t joint)
{
    uint32_t slots[LEDGER_JOINT_HOLDERS];
    return ledger_joint_holders(slot->ledger.usage, joint, slots) && slots[0] == slot->index;
}

unsigned ledger_joint_holders(const struct ledger_usage *usage, uint32_t joint,
                              uint32_t slots[static LEDGER_JOINT_HOLDERS])
{
    unsigned count = 0;
    for (unsigned i = 0; joint < LEDGER_JOINT_PLACES && i < LEDGER_JOINT_HOLDERS; i++) {
        uint64_t hold = atomic_load_explicit(&usage->holders[joint].words[i], memory_order_acquire);
        if (hold)
            slots[count++] = (uint32_t)(hold >> 32) - 1;
    }
    return count;
}

uint64_t ledger_joint_stamp(const struct ledger_usage *usage, unsigned gpu)
{
    return gpu < LEDGER_GPUS ? usage_sum_stamps(usage, gpu, LEDGER_SLOTS, usage_joint_end(usage)) : 0;
}
