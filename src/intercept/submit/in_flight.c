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
/* A small part of a burst's calls so far; and what may be doubled for each mark. */
#define PART_OF_BURST 4u
#define CALLS_MOST (UINT32_MAX >> IN_FLIGHT_MARKS)
/* Marks of a burst that is measured as a whole, and one more for each time that it is twice as long; and after so many times the last
 * one's calls, a burst is none. */
#define MARKS_OF_BURST 2u
#define LONGER_BURST 4u
/* Where what calls take is being found out, so much work is between two marks: an event is recorded in a fraction of that. */
#define MEASURED_NS UINT64_C(50000)
/* Where calls differ, and what they take is their own: the one that takes long may be seldom. To record a mark takes a hundredth of that. */
#define VARIED_NS UINT64_C(200000)
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

static uint32_t draw(struct in_flight_entry *entry)
{
    entry->chance = entry->chance * 1664525u + 1013904223u;
    return entry->chance >> 8;
}

static uint32_t calls_in_burst(const struct in_flight_entry *entry)
{
    uint64_t calls = atomic_load_explicit(&entry->submitted, memory_order_relaxed) - entry->burst_from;
    return calls < CALLS_MOST ? (uint32_t)calls : CALLS_MOST;
}

/* How many calls are to be between two marks. In a burst of calls that come seldom it is more and more, so that there is always room
 * for a mark. */
static uint32_t calls_apart(const struct gate *gate, struct in_flight_entry *entry, bool grows)
{
    uint32_t chunk = work_estimate_chunk(&entry->estimate), calls = calls_of_late(entry);
    if (atomic_load_explicit(&gate->measures, memory_order_relaxed))
        calls = calls_for(entry, MEASURED_NS, calls);
    else if (atomic_load_explicit(&entry->varies, memory_order_relaxed) &&
             !atomic_load_explicit(&gate->has_company, memory_order_relaxed))
        calls = calls_for(entry, VARIED_NS, calls);
    if (grows)
        calls <<= atomic_load_explicit(&entry->marks, memory_order_relaxed) / 2;
    return chunk < calls ? chunk : calls;
}

/* In a burst that is measured as a whole, of which so many calls were made: the mark before is not to be reached when the next one is
 * recorded. So there are fewer calls between them than the thread makes while the GPU does what is before it; and no more than
 * before, as the burst may end soon. Where the GPU is so little behind that few would fit, it is let fall behind. */
static uint32_t calls_in_time(const struct in_flight_entry *entry, uint32_t made)
{
    uint64_t passed_ns = monotonic_ns() - entry->burst_began_ns;
    uint64_t gpu_ns = made * work_estimate_piece_ns(&entry->estimate);
    uint64_t calls = gpu_ns > passed_ns ? (gpu_ns - passed_ns) * made / (passed_ns + 1) : 0;
    calls -= calls / PART_OF_BURST; /* the thread may become slower */
    return calls < 1 || calls < made / PART_OF_BURST || calls > made ? made : (uint32_t)calls;
}

/* How many calls are to be made until the next mark. In a program that leaves its stream idle between calls
 * that is by chance, so that what the marks measure does not keep step with the program's own rhythm. */
static uint32_t calls_to_mark(const struct gate *gate, struct in_flight_entry *entry, bool sampled)
{
    uint32_t chunk = work_estimate_chunk(&entry->estimate), made = calls_in_burst(entry);
    if (made > LONGER_BURST * (entry->burst_calls + 1)) /* nobody waits any more */
        entry->burst = IN_FLIGHT_BURST_UNKNOWN;
    if (entry->burst == IN_FLIGHT_BURST_SKIPPED)
        return chunk;
    if (entry->burst == IN_FLIGHT_BURST_MEASURED) {
        uint32_t calls = calls_in_time(entry, made);
        return calls < chunk ? calls : chunk;
    }
    uint32_t calls = calls_apart(gate, entry, !sampled);
    return !sampled || calls == 1 ? calls : 1 + draw(entry) % (2 * calls - 1);
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

/* Up to the thread's next wait all calls are measured, or none of them: so each is by the same chance, whatever its place. `has_waited`:
 * there is nothing before the stream. */
static void begin_burst(const struct gate *gate, struct in_flight_entry *entry, bool has_waited)
{
    uint32_t calls = calls_in_burst(entry), marks = MARKS_OF_BURST;
    entry->burst_from = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    if (calls == 0)
        return;
    atomic_store_explicit(&entry->bursts, atomic_load_explicit(&entry->bursts, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    for (uint32_t left = calls; left > 1; left /= 2)
        marks++;
    end_quick(entry);
    entry->is_behind_copy = false;
    entry->is_parted = !has_waited;
    entry->burst_calls = calls;
    entry->left = 1;
    entry->burst = draw(entry) % (calls_apart(gate, entry, false) * marks / 2) < calls
                       ? IN_FLIGHT_BURST_MEASURED
                       : IN_FLIGHT_BURST_SKIPPED;
    if (entry->burst == IN_FLIGHT_BURST_MEASURED)
        return;
    entry->left = work_estimate_chunk(&entry->estimate);
    if (has_waited)
        begin_quick(entry);
}

/* Of a call that is to be measured by itself. */
static enum in_flight_place place_of_next(const struct gate *gate, struct in_flight_entry *entry)
{
    uint32_t before = entry->first_at;
    if (calls_in_burst(entry) > 0)
        return IN_FLIGHT_WITHIN;
    entry->first_at = atomic_load_explicit(&gate->closings, memory_order_relaxed);
    return entry->first_at == before ? IN_FLIGHT_FIRST : IN_FLIGHT_AFRESH;
}

void in_flight_begin_sample(struct gate *gate, bool has_pieces)
{
    struct in_flight_entry *entry = gate_self.entry;
    if (!entry || entry->left > 1 || entry->burst == IN_FLIGHT_BURST_SKIPPED ||
        atomic_load_explicit(&gate->captures, memory_order_relaxed))
        return;
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&entry->lock);
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    in_flight_settle(gate, entry, false);
    /* What is before the stream has ended, but for what no mark is behind, or it is apart: a mark here is where the GPU begins with
     * this call. */
    bool is_first = entry->burst == IN_FLIGHT_BURST_MEASURED && calls_in_burst(entry) == 0;
    bool has_marks = atomic_load_explicit(&entry->marks, memory_order_relaxed) > 0;
    entry->behind_ns = has_marks && !is_first ? monotonic_ns() : 0;
    bool follows = is_first ? entry->is_behind_copy : !in_flight_entry_is_covered(entry);
    if (stream && !entry->behind_ns)
        entry->sampling = in_flight_mark(gate, entry, stream);
    entry->samples_behind = follows && entry->sampling && in_flight_entry_is_behind(entry);
    if (is_first)
        entry->burst_began_ns = entry->recorded_ns;
    entry->samples_pieces = has_pieces;
    entry->sampled_place = place_of_next(gate, entry);
    guard_unlock(&entry->lock);
    own_calls_end(&calls);
}

/* The call that was made is the last before a mark. Copies are bounded like other calls, but none of them is measured. */
static bool is_mark_due(const struct in_flight_entry *entry, uint32_t what)
{
    if (what & GATE_APART)
        return false;
    if (what & GATE_COPIES)
        return in_flight_entry_unmarked(entry) >= work_estimate_chunk(&entry->estimate);
    return entry->left <= 1;
}

void in_flight_count(struct gate *gate, CUstream stream, bool marks, uint32_t what)
{
    struct in_flight_entry *entry = in_flight_entry_find(gate, stream);
    if (!entry)
        return;
    if (entry->sampling)
        entry->returned_ns = monotonic_ns();
    if (what & (GATE_APART | GATE_COPIES))
        in_flight_entry_count_part(entry, what & GATE_APART ? &entry->apart : &entry->copies);
    in_flight_entry_count(entry);
    end_quick(entry);
    if (!marks)
        return;
    /* Nobody may ask about it while a capture is open. */
    bool is_hidden = atomic_load_explicit(&gate->captures, memory_order_relaxed) != 0;
    bool is_due = is_mark_due(entry, what), sampled = entry->sampling;
    if (is_due || is_hidden)
        follow_own(gate, entry, is_due);
    if (what & GATE_APART) {
        begin_burst(gate, entry, true);
        return;
    }
    bool is_parting = (what & GATE_COPIES) && entry->burst == IN_FLIGHT_BURST_MEASURED;
    entry->is_behind_copy |= is_parting && calls_in_burst(entry) == 0;
    entry->sampling = false;
    if (is_due)
        entry->left = calls_to_mark(gate, entry, sampled);
    else if (entry->left > 1)
        entry->left--;
    if (!is_due && !is_hidden && !is_parting) /* the first call behind a mark waits for room */
        begin_quick(entry);
}

void in_flight_end_chunk(struct gate *gate, struct in_flight_entry *entry)
{
    struct own_calls calls;
    if (!entry || entry->burst != IN_FLIGHT_BURST_MEASURED || in_flight_entry_is_covered(entry) ||
        atomic_load_explicit(&entry->marks, memory_order_relaxed) == 0)
        return;
    own_calls_begin(&calls, NULL);
    /* No capture begins meanwhile, for which a mark in the legacy stream would be the end. */
    guard_lock(&gate->lock);
    if (atomic_load_explicit(&gate->captures, memory_order_relaxed) == 0) {
        guard_lock(&entry->lock);
        in_flight_entry_follow(gate, entry, true);
    }
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
}

void in_flight_begin_part(struct gate *gate, struct in_flight_entry *entry, bool is_copy)
{
    uint64_t unmarked = entry ? in_flight_entry_unmarked(entry) : 0;
    if (unmarked && (in_flight_entry_unmarked_copies(entry) == unmarked) != is_copy)
        in_flight_end_chunk(gate, entry);
}

struct in_flight_entry *in_flight_wait_begins(struct gate *gate, CUstream stream)
{
    struct gate_self *self = &gate_self;
    if (!self->entry || self->is_submitting ||
        atomic_load_explicit(&gate->word, memory_order_relaxed) != GATE_PACED)
        return NULL;
    struct in_flight_entry *entry = stream ? gate_entry(self, stream) : self->entry;
    guard_begin();
    in_flight_begin_part(gate, entry, true);
    guard_end();
    return entry;
}

static bool ask_own(struct gate *gate, struct in_flight_entry *entry)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&gate->lock);
    bool is_finished = in_flight_entry_ask(gate, entry);
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
    return is_finished;
}

void in_flight_wait_ended(struct gate *gate, struct in_flight_entry *entry, enum in_flight_wait wait)
{
    if (calls_in_burst(entry) == 0)
        return;
    guard_begin();
    if (wait != IN_FLIGHT_WAIT_SOME || ask_own(gate, entry))
        begin_burst(gate, entry, wait != IN_FLIGHT_WAIT_HOST);
    guard_end();
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
    /* What comes to an idle stream has no mark to be measured from, unless one is put before it. */
    entry->left = marks == 0 ? 1 : work_estimate_chunk(&entry->estimate);
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
