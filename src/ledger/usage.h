/* usage.h - what a ledger's usage region contains, and how requests are decided. For src/ledger alone.
 *
 * word       {bytes, stamp}: what one slot was granted on one GPU, 16 bytes that change together
 * stamp      {generation:24, counter:39, refused:1}. No two states of a word have the same stamp, over all
 *            the slot's owners: each change takes the next counter, each owner has the next generation.
 *            `refused` is the answer to the request that was made under the previous stamp. (Counter and
 *            generation wrap around: a helper would have to sleep through exactly 2^39 changes or 2^24 owners to
 *            be fooled.)
 * request    what an owner asks for: it writes the request into its slot before anyone is pointed at it
 * deciding   one word per GPU, {slot + 1, stamp of that slot's word}: names the request that is being decided, or
 *            the last one that was; at first {0, 0}, nobody's
 *
 * A request (slot, stamp) is decided once the slot's word has another stamp. An owner first writes its request. Then
 * it swaps {its slot + 1, its word's stamp} into the deciding word, in place of a request that is decided. If it
 * finds a request there that is not decided yet, it decides that one first and tries again. Every process does so,
 * and none waits for another. To decide (slot, stamp):
 *   1. If the slot's word has another stamp, the request was decided already, or its owner is gone: done.
 *   2. Read the word's bytes and the request, and add up the bytes of all places, one after the other. The sum
 *      includes the slot's own bytes; if those change, the swap of step 3 fails.
 *   3. One compare-and-swap from exactly (those bytes, that stamp) to (bytes + request, next stamp) if it fits, else
 *      to (bytes, next stamp with `refused`). If the swap fails, another process decided. There is no second try.
 * A decided request stays in the deciding word until the next one takes its place: to clear the word would cost every
 * request one more locked instruction. An owner that finds an earlier request of its own slot there, perhaps a dead
 * owner's, with another stamp than its word's, may put its own in that place at once.
 * The sum of step 2 is right although it is not a snapshot. A request leaves the deciding word only after it was
 * decided. So if the swap of step 3 succeeds, (slot, stamp) stood in the deciding word all the while, nobody was
 * granted anything in between, and the words that were added up can only have shrunk. The sum is at least what is
 * granted at the swap, so what fits does fit. The sum is at most what was granted when adding began, so what is
 * refused did not fit then. A late helper's swap fails by the stamp. That is also why a charge, which always fits, is
 * made as a request: nothing else ever adds bytes (but ledger_charge() does where a hostile process keeps its request
 * from being decided).
 *
 * A process that decides uses the limit in its own policy. If that policy is of another epoch than the ledger (the
 * process has not noticed yet that the daemon restarted), it uses the limit that the request's owner read when it
 * asked.
 *
 * Only the owner takes bytes out of its word, and only while none of its requests is open (its threads take the
 * slot's lock). Only reapers clear the word of a dead owner, in three steps that any number of reapers may do
 * together or take over from each other: mark the owner's entry as being cleared; swap each word of that generation
 * for 0 bytes of the next generation, which also voids an open request of the dead owner; mark the entry free. A
 * reaper that comes late finds another generation and changes nothing. Words of GPUs that nobody used are not
 * touched, so an owner may find an empty word of an older generation, which it first gives its own generation.
 *
 * Joint memory has places of its own behind the slots. Their words and requests are like those of slots, but any
 * holder may ask for more bytes there: joint.c.
 *
 * tests/model/ledger.pml is this algorithm, step by step; change both together. */
#pragma once

#include "base/atomic128.h"
#include "base/check.h"
#include "ledger/ledger.h"

#define USAGE_LINE_BYTES 64
#define USAGE_PAGE_BYTES 4096

/* How many times a loop goes round that other processes may legitimately make repeat. After that many it takes the
 * region's contents for damaged. With 1,024 processes on one GPU, the odds that an owner loses the deciding word this
 * often by chance are 1 in e^1024. This bounds what a hostile process that writes to the region without end can make
 * a call cost: about a second. */
#define USAGE_ATTEMPTS (1u << 20)
/* The same where at most a helper and a few reapers compete. */
#define USAGE_FEW_ATTEMPTS 1024u

/* Slots, and behind them the joint places. */
#define USAGE_PLACES (LEDGER_SLOTS + LEDGER_JOINT_PLACES)

/* One slot's request on one GPU. The slot's owner writes it; whoever decides it reads it; anybody may read the
 * counts. It has a cache line of its own, so that owners do not slow each other down. */
struct usage_request {
    _Alignas(USAGE_LINE_BYTES) _Atomic uint64_t bytes; /* how many more; of a joint place, how many in all */
    _Atomic uint64_t limit_bytes;                      /* as the owner read it */
    _Atomic uint64_t is_charge;                        /* not 0: granted whether or not it fits */
    _Atomic uint64_t granted_count;
    _Atomic uint64_t refused_count;
    _Atomic uint64_t hidden_bytes; /* of the slot's bytes here, what the card does not show for a process */
    /* Threads between ledger_move_begin() and ledger_move_end(). GPU 0's line has them for all GPUs. The first
     * threads of a process have a byte each that no other thread writes, so they begin and end without a locked
     * instruction. The others are counted. */
    _Atomic uint8_t movers[LEDGER_MOVERS]; /* 1: it moves */
    _Atomic uint16_t more_movers;
};
_Static_assert(sizeof(struct usage_request) == USAGE_LINE_BYTES, "one line");

/* One GPU. Words stand together, so that adding up 64 slots reads 16 cache lines. */
struct usage_gpu {
    _Alignas(USAGE_LINE_BYTES) struct word128 deciding;
    /* All bytes that were ever granted, or charged, here. Raised before they are asked for, and lowered again where they
     * are refused. */
    _Atomic uint64_t granted_bytes;
    _Atomic uint64_t let_go_bytes, taken_bytes, left_bytes;        /* left.c */
    _Atomic uint64_t ahead_bytes, seen_bytes;                      /* left.c */
    _Alignas(USAGE_LINE_BYTES) struct word128 words[USAGE_PLACES]; /* low: bytes, high: stamp */
    struct usage_request requests[USAGE_PLACES];
};

/* The name of something that a process of the session has exported: exports.c. */
#define USAGE_EXPORTS 1024u
struct usage_export {
    _Atomic uint64_t name;  /* 0: free */
    _Atomic uint64_t owner; /* {slot:32, generation:32} */
};

/* The holders of a joint place: {slot + 1:32, generation:32} a hold, 0: free. */
struct usage_holders {
    _Alignas(USAGE_LINE_BYTES) _Atomic uint64_t words[LEDGER_JOINT_HOLDERS];
};

struct ledger_usage {
    _Alignas(USAGE_LINE_BYTES) uint64_t magic;
    uint32_t layout;
    /* Slots from this index on were never owned. It only grows. The lowest free slot is taken first, so this is also
     * the most slots that were ever owned at once. Raised before a slot is taken. */
    _Atomic uint32_t slots_marked;
    _Atomic uint64_t epoch;
    _Atomic uint64_t gpus_used;    /* bit g: somebody used GPU g once. Set before the first request there */
    _Atomic uint32_t joint_marked; /* as slots_marked, of joint places */
    /* Who owns each slot. low: start_ticks; high: {state:8, generation:24, pid:32}. Free entries keep the generation
     * of their last owner. A joint place has its name in low, and in place of the pid how often it was joined. */
    _Alignas(USAGE_LINE_BYTES) struct word128 owners[USAGE_PLACES];
    struct usage_holders holders[LEDGER_JOINT_PLACES];
    struct usage_export exports[USAGE_EXPORTS];
    struct usage_gpu gpus[LEDGER_GPUS];
};

_Static_assert(LEDGER_GPUS == 64, "gpus_used has a bit a GPU");
_Static_assert(sizeof(struct word128) == 16, "words lie side by side");

#define USAGE_GENERATION_BITS 24
#define USAGE_COUNTER_BITS 39
#define USAGE_GENERATION_MASK ((UINT64_C(1) << USAGE_GENERATION_BITS) - 1)
#define USAGE_COUNTER_MASK ((UINT64_C(1) << USAGE_COUNTER_BITS) - 1)

static inline uint64_t usage_first_stamp(uint64_t generation)
{
    return generation << (USAGE_COUNTER_BITS + 1);
}

static inline uint64_t usage_stamp_generation(uint64_t stamp)
{
    return stamp >> (USAGE_COUNTER_BITS + 1);
}

static inline bool usage_stamp_refused(uint64_t stamp)
{
    return stamp & 1;
}

static inline uint64_t usage_next_stamp(uint64_t stamp, bool refused)
{
    uint64_t counter = ((stamp >> 1) + 1) & USAGE_COUNTER_MASK;
    return usage_first_stamp(usage_stamp_generation(stamp)) | counter << 1 | refused;
}

static inline uint64_t usage_next_generation(uint64_t generation)
{
    return (generation + 1) & USAGE_GENERATION_MASK;
}

enum usage_owner_state { USAGE_FREE, USAGE_OWNED, USAGE_CLEARING, USAGE_CANDIDATE /* joint.c */ };

static inline uint64_t usage_owner_high(enum usage_owner_state state, uint64_t generation, pid_t pid)
{
    return (uint64_t)state << 56 | generation << 32 | (uint32_t)pid;
}

static inline unsigned usage_owner_state(uint64_t high)
{
    return (unsigned)(high >> 56);
}

static inline uint64_t usage_owner_generation(uint64_t high)
{
    return high >> 32 & USAGE_GENERATION_MASK;
}

/* Half of a word. Two halves that are loaded one after the other may not belong together: a compare-and-swap from such a
 * pair fails. */
static inline uint64_t usage_load(const uint64_t *half)
{
    return __atomic_load_n(half, __ATOMIC_ACQUIRE);
}

static inline uint64_t usage_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Slots that may hold bytes, whatever the region says. */
static inline uint32_t usage_slots_marked(const struct ledger_usage *usage)
{
    uint32_t marked = atomic_load_explicit(&usage->slots_marked, memory_order_acquire);
    return marked < LEDGER_SLOTS ? marked : LEDGER_SLOTS;
}

/* The same for joint places: one above the last of them, as an index of all places. */
static inline uint32_t usage_joint_end(const struct ledger_usage *usage)
{
    uint32_t marked = atomic_load_explicit(&usage->joint_marked, memory_order_acquire);
    return LEDGER_SLOTS + (marked < LEDGER_JOINT_PLACES ? marked : LEDGER_JOINT_PLACES);
}

static inline uint64_t usage_sum_words(const struct ledger_usage *usage, unsigned gpu, uint32_t first,
                                       uint32_t end)
{
    const struct word128 *words = usage->gpus[gpu].words;
    uint64_t sum = 0;
    for (uint32_t index = first; index < end; index++)
        sum = usage_add(sum, usage_load(&words[index].low));
    return sum;
}

/* A number that is another after each change of any of these words. */
static inline uint64_t usage_sum_stamps(const struct ledger_usage *usage, unsigned gpu, uint32_t first,
                                        uint32_t end)
{
    const struct word128 *words = usage->gpus[gpu].words;
    uint64_t sum = 0;
    for (uint32_t index = first; index < end; index++)
        sum += usage_load(&words[index].high);
    return sum;
}

/* What a descriptor may keep of memory that processes have let go of, and what is counted ahead of the daemon. */
static inline uint64_t usage_left(const struct usage_gpu *there)
{
    /* Pairs with ledger_left_take(): who sees bytes as taken sees them as left. */
    uint64_t let_go = atomic_load_explicit(&there->let_go_bytes, memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&there->taken_bytes, memory_order_acquire);
    uint64_t left = atomic_load_explicit(&there->left_bytes, memory_order_acquire);
    uint64_t ahead = atomic_load_explicit(&there->ahead_bytes, memory_order_acquire);
    uint64_t seen = atomic_load_explicit(&there->seen_bytes, memory_order_acquire);
    left = usage_add(left, let_go > taken ? let_go - taken : 0);
    return usage_add(left, ahead > seen ? ahead - seen : 0);
}

/* place.c */
/* Raise `*marked`, the end of what was ever used, above `index`. */
void usage_mark(_Atomic uint32_t *marked, uint32_t index);
/* Read both halves of an owner's entry as they were at one moment. False if another process keeps changing it. */
bool usage_owner_read(const struct ledger_usage *usage, uint32_t place, struct word128 *owner);
/* The owner of a place is dead: mark the place, clear its words, and add what they had to `recovered_bytes`; false if another
 * owner has it by now. Then let others have it. */
bool usage_begin_reap(struct ledger_usage *usage, uint32_t place, uint64_t generation,
                      uint64_t *recovered_bytes);
void usage_end_reap(struct ledger_usage *usage, uint32_t place, uint64_t generation);
/* Both, for a joint place. */
bool usage_reap(struct ledger_usage *usage, uint32_t place, uint64_t generation, uint64_t *recovered_bytes);

/* joint.c: the owner of a slot is dead. End its holds, and clear the joint places that nobody holds any more. */
void usage_joint_reap(struct ledger_usage *usage, uint32_t slot, uint64_t generation,
                      uint64_t *recovered_bytes);
