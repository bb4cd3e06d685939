/* usage.h - what stands in a ledger's usage region, and how requests are decided. For src/ledger alone.
 *
 * word       what one slot was granted on one GPU: its bytes, and a stamp, 16 bytes that change as one
 * stamp      {generation:24, counter:39, refused:1}. No two states of a word have the same stamp, over all
 *            the slot's owners: each change takes the next counter, each owner has the next generation.
 *            `refused` is the answer to the request that the stamp before stood for. (Either part comes
 *            round again: a helper would have to sleep through exactly 2^39 changes or 2^24 owners to be
 *            fooled.)
 * request    what an owner asks for: written into its slot before anyone is pointed at it
 * deciding   one word a GPU: {slot + 1, stamp of that slot's word}, the request that is decided now or was
 *            last; at first nobody
 *
 * A request (slot, stamp) is decided once the slot's word has another stamp. To request, an owner writes its
 * request, then puts (itself, its word's stamp) into the deciding word in place of one that is decided. If
 * another stands there, it decides that first, and tries again; so does everybody, and nobody waits. To
 * decide (slot, stamp):
 *   1. If the slot's word has another stamp, it was decided already, or its owner is gone: done.
 *   2. Read the word's bytes and the request, and add up the bytes of all places, one after the other; its
 *      own among them, which the swap below finds unchanged or fails.
 *   3. One compare-and-swap from exactly (those bytes, that stamp) to (bytes + request, next stamp) if it
 *      fits, else to (bytes, next stamp with `refused`). If it fails, somebody else decided. Never again.
 * What was decided stays in the deciding word until the next takes its place: to clear it would cost every
 * request one more locked instruction. What an earlier request of the same slot left there, a dead owner's
 * too, has another stamp than the slot's word: the slot's owner may put its own in that place at once.
 *
 * Why the sum of step 2 is right although it is no snapshot: a request leaves the deciding word only after it
 * was decided. So if the compare-and-swap of step 3 succeeds, (slot, stamp) stood in the deciding word all
 * the while, nobody was granted anything in between, and all the words that were added up can only have
 * shrunk: the sum is at least what is granted at the swap, so that what fits does fit; and at most what was
 * granted when adding began, so that what is refused did not fit then. A late helper's swap fails by the
 * stamp. That is also why a charge (which always fits) takes the same road: nothing else ever adds bytes.
 *
 * The limit is the deciding process's, unless its policy is of another epoch than the ledger (it has not
 * noticed yet that the daemon restarted): then it is what the owner read when it asked.
 *
 * Only the owner takes bytes out of its word, with no request of its own standing (its threads take the slot's
 * lock), and only a reaper clears the word of a dead one, in three steps that any number of reapers may
 * do together or take over from each other: mark the owner's entry as being cleared; swap each word of that
 * generation for 0 bytes of the next generation, which also spoils whatever request of the dead stood; mark
 * the entry free. A reaper that comes late finds another generation and changes nothing. Words of GPUs that
 * nobody used are not touched, so an owner may find a word of an older generation: it is empty, and the owner
 * makes it its own first.
 *
 * Memory that several processes hold has a place of its own behind the slots, with words and requests like
 * theirs, but any holder may ask for it: joint.c.
 *
 * tests/model/ledger.pml is this algorithm, step by step; change both together. */
#pragma once

#include "base/atomic128.h"
#include "base/check.h"
#include "ledger/ledger.h"

#define USAGE_LINE_BYTES 64
#define USAGE_PAGE_BYTES 4096

/* How often a loop that others may legitimately make repeat goes round before it takes the contents for
 * spoiled. With 1,024 processes on one GPU, an owner that loses the deciding word this often by chance has
 * odds of 1 in e^1024. Bounds what a hostile process that scribbles without end can cost a call to about a
 * second. */
#define USAGE_ATTEMPTS (1u << 20)
/* The same where at most a helper and a few reapers compete. */
#define USAGE_FEW_ATTEMPTS 1024u

/* Slots, and behind them the joint places. */
#define USAGE_PLACES (LEDGER_SLOTS + LEDGER_JOINT_PLACES)

/* One slot's request on one GPU. Written by the slot's owner, read by who decides it; the counts by anybody.
 * A cache line of its own, so that owners do not slow each other down. */
struct usage_request {
    _Alignas(USAGE_LINE_BYTES) _Atomic uint64_t bytes; /* how many more; of a joint place, how many in all */
    _Atomic uint64_t limit_bytes;                      /* as the owner read it */
    _Atomic uint64_t is_charge;                        /* not 0: granted whether or not it fits */
    _Atomic uint64_t granted_count;
    _Atomic uint64_t refused_count;
    _Atomic uint64_t hidden_bytes; /* of the slot's bytes here, what the card does not show for a process */
    /* Threads between ledger_move_begin() and _end(); on GPU 0's line alone, for all. The first of a process
     * have a byte each, that nobody else writes: to begin and to end takes no locked instruction. The others
     * are counted. */
    _Atomic uint8_t movers[LEDGER_MOVERS]; /* 1: it moves */
    _Atomic uint16_t more_movers;
};
_Static_assert(sizeof(struct usage_request) == USAGE_LINE_BYTES, "one line");

/* One GPU. Words stand together, so that adding up 64 slots reads 16 cache lines. */
struct usage_gpu {
    _Alignas(USAGE_LINE_BYTES) struct word128 deciding;
    _Alignas(USAGE_LINE_BYTES) struct word128 words[USAGE_PLACES]; /* low: bytes, high: stamp */
    struct usage_request requests[USAGE_PLACES];
};

/* A thing that a process of the session has handed out: exports.c. */
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
    /* Slots from this index on were never owned. Only grows; the lowest free slot is taken first, so that it
     * is the most that were ever owned at once. Raised before a slot is taken. */
    _Atomic uint32_t slots_marked;
    _Atomic uint64_t epoch;
    _Atomic uint64_t gpus_used;    /* bit g: somebody used GPU g once. Set before the first request there */
    _Atomic uint32_t joint_marked; /* as slots_marked, of joint places */
    /* Who owns each slot. low: start_ticks; high: {state:8, generation:24, pid:32}. Free entries keep the
     * generation of their last owner. Of a joint place low is its name, and in the pid's place how often it was
     * joined. */
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

/* Halves of a word, each at one moment, the pair perhaps not: a compare-and-swap from a torn pair fails. */
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

/* The same of joint places: the end of those among the places. */
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

/* Of the same words: another number after each change of any of them. */
static inline uint64_t usage_sum_stamps(const struct ledger_usage *usage, unsigned gpu, uint32_t first,
                                        uint32_t end)
{
    const struct word128 *words = usage->gpus[gpu].words;
    uint64_t sum = 0;
    for (uint32_t index = first; index < end; index++)
        sum += usage_load(&words[index].high);
    return sum;
}

/* slot.c: raise `*marked`, the end of what was ever used, above `index`; the same moment of both halves of an
 * owner, or false if somebody scribbles too fast; and ledger_slot_reap() of any place. */
void usage_mark(_Atomic uint32_t *marked, uint32_t index);
bool usage_owner_read(const struct ledger_usage *usage, uint32_t place, struct word128 *owner);
bool usage_reap(struct ledger_usage *usage, uint32_t place, uint64_t generation, uint64_t *recovered_bytes);

/* joint.c: the owner of a slot is dead: it holds nothing. */
void usage_joint_reap(struct ledger_usage *usage, uint32_t slot, uint64_t generation,
                      uint64_t *recovered_bytes);
