/* request.c - asking for bytes, giving them back, and deciding what others ask. usage.h tells how and why. */
#include "ledger/usage.h"

static const struct word128 nobody;

uint64_t ledger_unseen(const struct ledger_policy *policy, unsigned gpu)
{
    if (gpu >= policy->gpu_count || gpu >= LEDGER_GPUS)
        return 0;
    const struct ledger_policy_gpu *there = &policy->gpus[gpu];
    /* Pairs with the stores that the daemon makes once it has compared with the card (driver_line.c). */
    return usage_add(atomic_load_explicit(&there->driver_bytes, memory_order_acquire),
                     atomic_load_explicit(&there->orphan_bytes, memory_order_acquire));
}

/* The limit by which this process may decide requests. False if its policy is outdated: then the limit that the
 * request names counts. */
static bool current_limit(const struct ledger *ledger, unsigned gpu, uint64_t *limit_bytes, bool *closed)
{
    const struct ledger_policy *policy = ledger->policy;

    *closed = atomic_load_explicit(&policy->closed, memory_order_acquire) != 0;
    *limit_bytes = 0;
    if (gpu < policy->gpu_count) {
        uint64_t limit = atomic_load_explicit(&policy->gpus[gpu].limit_bytes, memory_order_acquire);
        uint64_t unseen = ledger_unseen(policy, gpu);
        *limit_bytes = limit > unseen ? limit - unseen : 0;
    }
    return policy->epoch == atomic_load_explicit(&ledger->usage->epoch, memory_order_acquire);
}

static uint64_t sum_granted(const struct ledger_usage *usage, unsigned gpu)
{
    uint64_t sum = usage_add(usage_sum_words(usage, gpu, 0, usage_slots_marked(usage)),
                             usage_sum_words(usage, gpu, LEDGER_SLOTS, usage_joint_end(usage)));
    /* After the words: a process counts what it lets go of before it takes that out of its word. */
    return usage_add(sum, usage_left(&usage->gpus[gpu]));
}

/* Whether `bytes` more fit beside all granted bytes, those of the place that asks included. */
static bool fits(const struct ledger_usage *usage, unsigned gpu, uint64_t bytes, uint64_t limit_bytes)
{
    uint64_t sum = sum_granted(usage, gpu);
    return sum <= limit_bytes && bytes <= limit_bytes - sum;
}

/* Answer the request that was made while the word was `seen`. False if the word has changed meanwhile. */
static bool answer(struct word128 *word, struct word128 seen, uint64_t bytes, bool is_granted)
{
    struct word128 decided = {
        .low = is_granted ? usage_add(seen.low, bytes) : seen.low,
        .high = usage_next_stamp(seen.high, !is_granted),
    };
    /* No two states of a word have the same stamp, and an answer never takes bytes. */
    GS_CHECK(decided.high != seen.high && decided.low >= seen.low);
    GS_CHECK(usage_stamp_generation(decided.high) == usage_stamp_generation(seen.high));
    return word128_compare_exchange(word, &seen, decided);
}

/* How much must be added to a place that has `has` bytes. The holders of a joint place may ask for it at the same
 * time and overwrite each other's request. So the request of a joint place says how much the place is to have, and
 * that of a slot how much more. */
static uint64_t growth(uint32_t place, uint64_t has, uint64_t asked)
{
    if (place < LEDGER_SLOTS)
        return asked;
    return asked > has ? asked - has : 0;
}

/* Decide the request that was seen in the deciding word, if nobody has yet. Afterwards it is decided, and
 * something else may take its place. */
static void decide(const struct ledger *ledger, unsigned gpu, struct word128 deciding)
{
    struct ledger_usage *usage = ledger->usage;
    struct usage_gpu *there = &usage->gpus[gpu];

    if (deciding.low - 1 >= USAGE_PLACES)
        return;
    uint32_t index = (uint32_t)(deciding.low - 1);
    struct word128 *word = &there->words[index];
    struct word128 seen = {.high = usage_load(&word->high)};
    if (seen.high != deciding.high)
        return;

    const struct usage_request *request = &there->requests[index];
    seen.low = usage_load(&word->low);
    uint64_t bytes = growth(index, seen.low, atomic_load_explicit(&request->bytes, memory_order_acquire));
    bool is_granted = atomic_load_explicit(&request->is_charge, memory_order_acquire) != 0;
    if (!is_granted) {
        uint64_t limit_bytes;
        bool closed;
        if (!current_limit(ledger, gpu, &limit_bytes, &closed)) {
            limit_bytes = atomic_load_explicit(&request->limit_bytes, memory_order_acquire);
            closed = false;
        }
        is_granted = !closed && fits(usage, gpu, bytes, limit_bytes);
    }
    answer(word, seen, bytes, is_granted);
}

/* The word that an earlier generation of this slot left on this GPU becomes ours, with 0 bytes. False if the slot is
 * not ours any more. Under the slot's lock. */
static bool take_over_word(const struct ledger_slot *slot, unsigned gpu)
{
    struct ledger_usage *usage = slot->ledger.usage;
    struct word128 *word = &usage->gpus[gpu].words[slot->index];

    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen = {.high = usage_load(&word->high)};
        if (usage_stamp_generation(seen.high) == slot->generation)
            return true;
        seen.low = usage_load(&word->low);
        uint64_t owner = usage_load(&usage->owners[slot->index].high);
        if (usage_owner_state(owner) != USAGE_OWNED || usage_owner_generation(owner) != slot->generation)
            return false;
        word128_compare_exchange(word, &seen,
                                 (struct word128){.low = 0, .high = usage_first_stamp(slot->generation)});
    }
    return false;
}

/* Make sure that this slot's word for `gpu` is of the slot's generation, and set `*stamp` to the word's stamp. False
 * if the slot is not ours any more. Under the slot's lock. */
static bool own_word(const struct ledger_slot *slot, unsigned gpu, uint64_t *stamp)
{
    struct ledger_usage *usage = slot->ledger.usage;
    const struct word128 *word = &usage->gpus[gpu].words[slot->index];

    uint64_t used = atomic_load_explicit(&usage->gpus_used, memory_order_acquire);
    if (!(used >> gpu & 1))
        atomic_fetch_or_explicit(&usage->gpus_used, UINT64_C(1) << gpu, memory_order_seq_cst);
    *stamp = usage_load(&word->high);
    if (__builtin_expect(usage_stamp_generation(*stamp) != slot->generation, false)) {
        if (!take_over_word(slot, gpu))
            return false;
        *stamp = usage_load(&word->high);
    }
    return true;
}

/* Other processes kept us from the deciding word: take the request back, unless one of them decided it after all. */
static void withdraw(struct word128 *word, uint64_t stamp)
{
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen = {.high = usage_load(&word->high)};
        if (seen.high != stamp)
            return;
        seen.low = usage_load(&word->low);
        struct word128 refused = {.low = seen.low, .high = usage_next_stamp(stamp, true)};
        word128_compare_exchange(word, &seen, refused);
    }
}

/* Under the slot's lock; the holders of a joint place may ask at the same time. */
static bool ask_and_wait(const struct ledger_slot *slot, unsigned gpu, uint64_t asked, bool is_charge)
{
    struct usage_gpu *there = &slot->ledger.usage->gpus[gpu];
    struct usage_request *mine = &there->requests[slot->index];
    struct word128 *word = &there->words[slot->index];
    uint64_t stamp, limit_bytes;
    bool closed;

    GS_CHECK(slot->index >= LEDGER_SLOTS || lock_is_taken(slot->lock));
    current_limit(&slot->ledger, gpu, &limit_bytes, &closed);
    if ((closed && !is_charge) || !own_word(slot, gpu, &stamp))
        return false;

    /* Published by the compare-and-swap on the deciding word. */
    atomic_store_explicit(&mine->bytes, asked, memory_order_relaxed);
    atomic_store_explicit(&mine->limit_bytes, limit_bytes, memory_order_relaxed);
    atomic_store_explicit(&mine->is_charge, is_charge, memory_order_relaxed);

    const struct word128 own = {.low = (uint64_t)slot->index + 1, .high = stamp};
    /* If the deciding word has a request of this very slot with another stamp than its word's, that request was
     * decided, or its owner is gone. Only we publish requests of this slot, so this holds even if the two halves that
     * are read here belong to different requests. The halves of a joint place's request, or of another slot's, must
     * be read at once: a compare-and-swap that fails does that. */
    struct word128 standing = {.low = usage_load(&there->deciding.low),
                               .high = usage_load(&there->deciding.high)};
    if (standing.low != own.low || standing.high == own.high || slot->index >= LEDGER_SLOTS)
        standing = nobody;
    for (unsigned attempt = 0; attempt < USAGE_ATTEMPTS; attempt++) {
        if (word128_compare_exchange(&there->deciding, &standing, own)) {
            /* As decide() would do it, but by what is known here already. */
            struct word128 seen = {.low = usage_load(&word->low), .high = stamp};
            uint64_t bytes = growth(slot->index, seen.low, asked);
            bool is_granted = is_charge || fits(slot->ledger.usage, gpu, bytes, limit_bytes);
            if (answer(word, seen, bytes, is_granted))
                return is_granted;
            break;
        }
        decide(&slot->ledger, gpu, standing);
    }
    withdraw(word, stamp);
    return usage_load(&word->high) == usage_next_stamp(stamp, false);
}

/* Ask for `asked` bytes (growth()), and have the request decided. */
static bool request_bytes(const struct ledger_slot *slot, unsigned gpu, uint64_t asked, bool is_charge)
{
    _Atomic uint64_t *granted_bytes = &slot->ledger.usage->gpus[gpu].granted_bytes;
    /* Release: who sees the word changed sees this too (ledger_slot_sample()). */
    atomic_fetch_add_explicit(granted_bytes, asked, memory_order_release);
    bool is_granted = ask_and_wait(slot, gpu, asked, is_charge);
    if (!is_granted)
        atomic_fetch_sub_explicit(granted_bytes, asked, memory_order_relaxed);
    return is_granted;
}

/* Take up to `taken` bytes out of our own word, or add `added` bytes without a request. Under the slot's lock, with
 * no request open. */
static void change_own_word(const struct ledger_slot *slot, unsigned gpu, uint64_t taken, uint64_t added)
{
    struct word128 *word = &slot->ledger.usage->gpus[gpu].words[slot->index];

    GS_CHECK(lock_is_taken(slot->lock));
    GS_CHECK(taken == 0 || added == 0);
    for (unsigned attempt = 0; attempt < USAGE_FEW_ATTEMPTS; attempt++) {
        struct word128 seen = {.high = usage_load(&word->high)};
        seen.low = usage_load(&word->low);
        if (usage_stamp_generation(seen.high) != slot->generation)
            return; /* reaped: the word is another owner's */
        uint64_t kept = seen.low > taken ? seen.low - taken : 0;
        struct word128 changed = {.low = usage_add(kept, added), .high = usage_next_stamp(seen.high, false)};
        if (word128_compare_exchange(word, &seen, changed))
            return;
    }
}

/* Counts have one writer, under the slot's lock. */
static void count(_Atomic uint64_t *counter)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + 1, memory_order_relaxed);
}

static bool is_slot(const struct ledger_slot *slot, unsigned gpu)
{
    return gpu < LEDGER_GPUS && slot->index < LEDGER_SLOTS;
}

bool ledger_reserve(struct ledger_slot *slot, unsigned gpu, uint64_t bytes)
{
    if (!is_slot(slot, gpu))
        return false;
    if (bytes == 0)
        return atomic_load_explicit(&slot->ledger.policy->closed, memory_order_acquire) == 0;
    struct usage_request *mine = &slot->ledger.usage->gpus[gpu].requests[slot->index];
    lock_take(slot->lock);
    bool granted = request_bytes(slot, gpu, bytes, false);
    count(granted ? &mine->granted_count : &mine->refused_count);
    lock_leave(slot->lock);
    return granted;
}

void ledger_count_refused(struct ledger_slot *slot, unsigned gpu)
{
    if (!is_slot(slot, gpu))
        return;
    lock_take(slot->lock);
    count(&slot->ledger.usage->gpus[gpu].requests[slot->index].refused_count);
    lock_leave(slot->lock);
}

void ledger_charge(struct ledger_slot *slot, unsigned gpu, uint64_t bytes)
{
    if (!is_slot(slot, gpu) || bytes == 0)
        return;
    lock_take(slot->lock);
    if (!request_bytes(slot, gpu, bytes, true))
        change_own_word(slot, gpu, 0, bytes);
    lock_leave(slot->lock);
}

void ledger_release(struct ledger_slot *slot, unsigned gpu, uint64_t bytes)
{
    if (!is_slot(slot, gpu) || bytes == 0)
        return;
    lock_take(slot->lock);
    change_own_word(slot, gpu, bytes, 0);
    lock_leave(slot->lock);
}

/* How often a holder asks again when other holders' requests were decided in place of its own. */
#define RAISE_ATTEMPTS 8u

static bool raise_to(const struct ledger *ledger, uint32_t place, unsigned gpu, uint64_t bytes,
                     bool is_charge)
{
    const struct word128 *word = &ledger->usage->gpus[gpu].words[place];
    struct ledger_slot joint = {.ledger = *ledger, .index = place};
    struct word128 owner;
    if (!usage_owner_read(ledger->usage, place, &owner))
        return false;
    joint.generation = usage_owner_generation(owner.high);
    for (unsigned attempt = 0; attempt < RAISE_ATTEMPTS; attempt++) {
        if (bytes == 0 || (usage_stamp_generation(usage_load(&word->high)) == joint.generation &&
                           usage_load(&word->low) >= bytes))
            return true;
        request_bytes(&joint, gpu, bytes, is_charge);
    }
    return false;
}

static bool raise_and_count(const struct ledger_slot *slot, uint32_t joint, unsigned gpu, uint64_t bytes,
                            bool is_charge)
{
    if (!is_slot(slot, gpu) || joint >= LEDGER_JOINT_PLACES)
        return false;
    lock_take(slot->lock);
    bool granted = raise_to(&slot->ledger, LEDGER_SLOTS + joint, gpu, bytes, is_charge);
    if (!is_charge) {
        struct usage_request *mine = &slot->ledger.usage->gpus[gpu].requests[slot->index];
        count(granted ? &mine->granted_count : &mine->refused_count);
    }
    lock_leave(slot->lock);
    return granted;
}

bool ledger_joint_reserve(const struct ledger_slot *slot, uint32_t joint, unsigned gpu, uint64_t bytes)
{
    return raise_and_count(slot, joint, gpu, bytes, false);
}

void ledger_joint_charge(const struct ledger_slot *slot, uint32_t joint, unsigned gpu, uint64_t bytes)
{
    raise_and_count(slot, joint, gpu, bytes, true);
}

uint64_t ledger_slot_used(const struct ledger_slot *slot, unsigned gpu)
{
    if (!is_slot(slot, gpu))
        return 0;
    const struct word128 *word = &slot->ledger.usage->gpus[gpu].words[slot->index];
    uint64_t bytes = usage_load(&word->low);
    return usage_stamp_generation(usage_load(&word->high)) == slot->generation ? bytes : 0;
}

uint64_t ledger_used(const struct ledger *ledger, unsigned gpu)
{
    const struct ledger_usage *usage = ledger->usage;
    uint64_t sum, stamp;
    unsigned sums = 0;
    if (gpu >= LEDGER_GPUS)
        return 0;
    do {
        stamp = ledger_stamp(usage, gpu);
        sum = sum_granted(usage, gpu);
    } while (ledger_stamp(usage, gpu) != stamp && ++sums < LEDGER_SUMS);
    return sum;
}

uint64_t ledger_stamp(const struct ledger_usage *usage, unsigned gpu)
{
    if (gpu >= LEDGER_GPUS)
        return 0;
    return usage_sum_stamps(usage, gpu, 0, usage_slots_marked(usage)) + ledger_joint_stamp(usage, gpu);
}
