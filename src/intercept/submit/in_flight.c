/* What threads do that submit: they count, record marks where these are due, and wait where a stream is full. */
#include "intercept/submit/in_flight.h"

#include <time.h>

#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight_entry.h"

#define PATIENCE_NS UINT64_C(100000000)
/* Of calls that come seldom one is measured in each of so long, about: each report tells of some. */
#define SAMPLE_EVERY_NS UINT64_C(5000000)
/* Of a burst, a mark is due after so small a part of the calls so far; and what may be doubled for each mark. */
#define PART_OF_BURST 4u
#define CALLS_MOST (UINT32_MAX >> IN_FLIGHT_MARKS)
/* Where what calls take is being found out, so much work is between two marks: an event is recorded in a fraction of that. */
#define MEASURED_NS UINT64_C(50000)
#define SHORTEST_NAP_NS UINT64_C(50000)
#define LONGEST_NAP_NS UINT64_C(1000000)
/* So long a capture waits for what other threads gave their own default streams: longer than what no mark is behind takes. */
#define NAMELESS_MOST_NS UINT64_C(3000000)

static void follow_own(struct gate *gate, struct in_flight_entry *entry, bool is_due)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&entry->lock);
    in_flight_entry_follow(gate, entry, is_due);
    own_calls_end(&calls);
}

/* How many calls come in SAMPLE_EVERY_NS: by the last time that was at least so long, and as soon as more come by a part of these. */
static uint32_t calls_of_late(struct in_flight_entry *entry)
{
    uint64_t now_ns = monotonic_ns(), passed_ns = now_ns - entry->counted_ns;
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    uint64_t calls = submitted - entry->counted_at;
    if (passed_ns >= SAMPLE_EVERY_NS) {
        entry->calls_of_late = calls * SAMPLE_EVERY_NS / passed_ns;
        entry->counted_at = submitted;
        entry->counted_ns = now_ns;
        calls = 0;
    }
    calls = calls / PART_OF_BURST > entry->calls_of_late ? calls / PART_OF_BURST : entry->calls_of_late;
    return calls < 1 ? 1 : calls < CALLS_MOST ? (uint32_t)calls : CALLS_MOST;
}

/* How many calls are so much work, up to `most`. */
static uint32_t calls_for(const struct in_flight_entry *entry, uint64_t ns, uint32_t most)
{
    uint64_t piece_ns = work_estimate_piece_ns(&entry->estimate), calls = piece_ns ? ns / piece_ns : most;
    return calls < 1 ? 1 : calls < most ? (uint32_t)calls : most;
}

/* How many calls are to be made until the next mark. In a program that leaves its stream idle between calls
 * that is by chance, so that what the marks measure does not keep step with the program's own rhythm. In a burst of calls that
 * come seldom it is more and more, so that there is always room for a mark. */
static uint32_t calls_to_mark(const struct gate *gate, struct in_flight_entry *entry, bool sampled)
{
    uint32_t chunk = work_estimate_chunk(&entry->estimate), calls = calls_of_late(entry);
    if (atomic_load_explicit(&gate->measures, memory_order_relaxed))
        calls = calls_for(entry, MEASURED_NS, calls);
    if (!sampled)
        calls <<= atomic_load_explicit(&entry->marks, memory_order_relaxed) / 2;
    chunk = chunk < calls ? chunk : calls;
    if (!sampled || chunk == 1)
        return chunk;
    entry->chance = entry->chance * 1664525u + 1013904223u;
    return 1 + (entry->chance >> 8) % (2 * chunk - 1);
}

void in_flight_begin_sample(struct gate *gate, bool has_pieces)
{
    struct in_flight_entry *entry = gate_self.entry;
    if (!entry || entry->left > 1 || atomic_load_explicit(&gate->captures, memory_order_relaxed))
        return;
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&entry->lock);
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    in_flight_settle(gate, entry, false);
    /* What is before the stream has ended, but for what no mark is behind: a mark here is where the GPU begins
     * with this call. */
    entry->behind_ns = atomic_load_explicit(&entry->marks, memory_order_relaxed) ? monotonic_ns() : 0;
    if (stream && !entry->behind_ns)
        entry->sampling = in_flight_mark(gate, entry, stream);
    entry->samples_pieces = has_pieces;
    guard_unlock(&entry->lock);
    own_calls_end(&calls);
}

/* Calls that were to be quick are to be looked at. */
static void end_quick(struct in_flight_entry *entry)
{
    entry->left += entry->quick;
    entry->quick = 0;
}

/* All calls but the last before the next mark may be. */
static void begin_quick(struct in_flight_entry *entry)
{
    entry->quick = entry->left - 1;
    entry->left = 1;
}

void in_flight_count(struct gate *gate, CUstream stream, bool marks)
{
    struct in_flight_entry *entry = in_flight_entry_find(gate, stream);
    if (!entry)
        return;
    if (entry->sampling)
        entry->returned_ns = monotonic_ns();
    in_flight_entry_count(entry);
    end_quick(entry);
    if (!marks)
        return;
    /* Nobody may ask about it while a capture is open. */
    bool is_hidden = atomic_load_explicit(&gate->captures, memory_order_relaxed) != 0;
    bool is_due = entry->left <= 1, sampled = entry->sampling;
    if (is_due || is_hidden)
        follow_own(gate, entry, is_due);
    entry->sampling = false;
    entry->left = is_due ? calls_to_mark(gate, entry, sampled) : entry->left - 1;
    if (!is_due && !is_hidden) /* the first call behind a mark waits for room */
        begin_quick(entry);
}

/* Whether a thread may put something more before the stream. Under the entry's lock. */
static bool has_room(const struct gate *gate, const struct in_flight_entry *entry, uint64_t now_ns)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    bool known = work_estimate_piece_ns(&entry->estimate) > 0;
    return marks == 0 || atomic_load_explicit(&entry->stuck, memory_order_relaxed) ||
           (marks < (known ? IN_FLIGHT_MARKS - 1 : 2) &&
            in_flight_entry_left_ns(entry, now_ns) < in_flight_ahead_ns(gate));
}

bool in_flight_is_full(struct gate *gate, CUstream stream)
{
    struct in_flight_entry *entry = in_flight_entry_find(gate, stream);
    if (entry)
        end_quick(entry);
    if (!entry || !in_flight_entry_is_covered(entry) ||
        atomic_load_explicit(&entry->marks, memory_order_relaxed) == 0)
        return false;
    guard_lock(&entry->lock);
    bool full = !has_room(gate, entry, monotonic_ns());
    guard_unlock(&entry->lock);
    return full;
}

static void nap(uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)ns};
    nanosleep(&time, NULL);
}

/* How long to look away from a stream that is full. */
static uint64_t nap_for(const struct gate *gate, const struct in_flight_entry *entry, uint64_t now_ns)
{
    uint64_t left = in_flight_entry_left_ns(entry, now_ns), enough = in_flight_ahead_ns(gate);
    uint64_t until_room_ns = left > enough ? left - enough : 0;
    return until_room_ns < SHORTEST_NAP_NS  ? SHORTEST_NAP_NS
           : until_room_ns > LONGEST_NAP_NS ? LONGEST_NAP_NS
                                            : until_room_ns;
}

void in_flight_wait(struct gate *gate)
{
    struct in_flight_entry *entry = gate_self.entry;
    uint64_t deadline_ns = UINT64_MAX;
    uint32_t marks = UINT32_MAX;
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    atomic_fetch_add_explicit(&gate->held, 1, memory_order_relaxed);
    bool watched = false;
    for (;; watched = true) {
        guard_lock(&entry->lock);
        in_flight_settle(gate, entry, watched);
        uint64_t now_ns = monotonic_ns(), nap_ns = nap_for(gate, entry, now_ns);
        uint32_t marks_before = marks;
        marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
        if (marks != marks_before) /* it moves */
            deadline_ns =
                now_ns + PATIENCE_NS + atomic_load_explicit(&gate->longest_ns, memory_order_relaxed);
        if (now_ns > deadline_ns)
            atomic_store_explicit(&entry->stuck, true, memory_order_relaxed);
        bool room = has_room(gate, entry, now_ns);
        if (room && watched)
            atomic_store_explicit(
                &gate->ahead_ns,
                work_estimate_ahead(in_flight_ahead_ns(gate), in_flight_ahead_least_ns(gate), marks == 0),
                memory_order_relaxed);
        guard_unlock(&entry->lock);
        if (room)
            break;
        nap(nap_ns);
        if (atomic_load_explicit(&gate->word, memory_order_relaxed) != GATE_PACED)
            break;
    }
    atomic_fetch_sub_explicit(&gate->held, 1, memory_order_relaxed);
    own_calls_end(&calls);
    if (!watched) /* nobody had looked since the work was done: the next mark is as due as it was */
        return;
    entry->left = work_estimate_chunk(&entry->estimate);
    entry->held_at = atomic_load_explicit(&gate->closings, memory_order_relaxed) + 1;
}

void in_flight_follow_own(struct gate *gate)
{
    for (struct in_flight_entry *entry = gate_self.entries; entry; entry = entry->next) {
        if (atomic_load_explicit(&entry->stream, memory_order_relaxed) == CU_STREAM_PER_THREAD &&
            !in_flight_entry_is_covered(entry) && !in_flight_is_capturing(CU_STREAM_PER_THREAD))
            follow_own(gate, entry, false);
    }
}

/* Whether it is another thread's own default stream, with something before it that no event is behind. Its owner has the
 * lock where it records one. */
static bool is_nameless(struct in_flight_entry *entry)
{
    if (atomic_load_explicit(&entry->stream, memory_order_relaxed) != CU_STREAM_PER_THREAD ||
        in_flight_entry_is_own(entry) || !guard_trylock(&entry->lock))
        return false;
    bool is_followed = in_flight_entry_is_followed(entry);
    guard_unlock(&entry->lock);
    return !is_followed;
}

/* Whether what is before one of those is not done yet. */
static bool has_nameless(struct gate *gate)
{
    bool any = false;
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&gate->lock);
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count && !any; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        any = is_nameless(entry) && !in_flight_entry_ask(gate, entry);
    }
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
    return any;
}

void in_flight_wait_for_nameless(struct gate *gate)
{
    uint64_t until_ns = monotonic_ns() + NAMELESS_MOST_NS;
    guard_begin();
    while (atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_PACED &&
           atomic_load_explicit(&gate->captures, memory_order_relaxed) == 0 && has_nameless(gate) &&
           monotonic_ns() < until_ns)
        nap(SHORTEST_NAP_NS);
    guard_end();
}

void in_flight_look_at_own(struct gate *gate)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&gate->lock);
    for (struct in_flight_entry *entry = gate_self.entries; entry; entry = entry->next)
        in_flight_entry_ask(gate, entry);
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
}
