/* in_flight.c - what a thread does when it submits work: it counts the call, records a mark when one is due, and waits if the
 * stream is full. */
#include "intercept/submit/in_flight.h"

#include <time.h>

#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight_entry.h"

/* If no mark is reached for this long plus the longest piece of work, the stream counts as stuck. */
#define PATIENCE_NS UINT64_C(100000000)
/* If calls are rare, about one in this time is measured, so that each report covers some. */
#define SAMPLE_EVERY_NS UINT64_C(5000000)
/* The divisor for a small part of a number of calls; and the largest number, which may be doubled for each mark without an
 * overflow. */
#define PART_OF_BURST 4u
#define CALLS_MOST (UINT32_MAX >> IN_FLIGHT_MARKS)
/* A measured burst has this many marks, and one more each time that its number of calls doubles. A thread that has made more
 * than LONGER_BURST times the calls of its last burst counts as one that does not wait. */
#define MARKS_OF_BURST 2u
#define LONGER_BURST 4u
/* Work between two marks while the daemon is learning what calls take. Recording an event takes a fraction of it. */
#define MEASURED_NS UINT64_C(50000)
/* Work between two marks if calls differ and there is no company: the long calls may be rare. Recording a mark takes a
 * hundredth of it. */
#define VARIED_NS UINT64_C(200000)
#define SHORTEST_NAP_NS UINT64_C(50000)
#define LONGEST_NAP_NS UINT64_C(1000000)
/* The longest that a capture waits for what other threads gave their own default streams: longer than work takes that has no
 * mark yet. */
#define NAMELESS_MOST_NS UINT64_C(3000000)

static void follow_own(struct gate *gate, struct in_flight_entry *entry, bool is_due)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&entry->lock);
    in_flight_entry_follow(gate, entry, is_due);
    own_calls_end(&calls);
}

/* How many calls come in SAMPLE_EVERY_NS, as counted in the last stretch that was at least so long. If more come in the
 * current stretch, a part of these counts at once. */
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

/* How many calls make `ns` of work, up to `most`. */
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

/* How many calls there are to be between two marks. `grows`: more for each two marks that are not reached, so that there is
 * always room for another mark. */
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

/* How many calls until the next mark in a measured burst that has `made` calls so far. The GPU should not have reached the
 * last mark when the next one is recorded. So there are fewer calls between the two than the thread makes while the GPU does
 * what is before it, and no more than `made`, as the burst may end soon. If the GPU is so little behind the thread that few
 * calls would fit, `made` calls follow without a mark, so that the GPU falls behind. */
static uint32_t calls_in_time(const struct in_flight_entry *entry, uint32_t made)
{
    uint64_t passed_ns = monotonic_ns() - entry->burst_began_ns;
    uint64_t gpu_ns = made * work_estimate_piece_ns(&entry->estimate);
    uint64_t calls = gpu_ns > passed_ns ? (gpu_ns - passed_ns) * made / (passed_ns + 1) : 0;
    calls -= calls / PART_OF_BURST; /* the thread may become slower */
    return calls < 1 || calls < made / PART_OF_BURST || calls > made ? made : (uint32_t)calls;
}

/* How many calls are to be made until the next mark. If the program leaves its stream idle between calls (`sampled`), chance
 * decides, so that marks do not keep step with the program's own rhythm. */
static uint32_t calls_to_mark(const struct gate *gate, struct in_flight_entry *entry, bool sampled)
{
    uint32_t chunk = work_estimate_chunk(&entry->estimate), made = calls_in_burst(entry);
    if (made > LONGER_BURST * (entry->burst_calls + 1)) /* the thread no longer waits */
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

/* The next calls are to take the slow path. */
static void end_quick(struct in_flight_entry *entry)
{
    entry->left += entry->quick;
    entry->quick = 0;
}

/* All calls before the next mark, except the last, may be quick. */
static void begin_quick(struct in_flight_entry *entry)
{
    entry->quick = entry->left - 1;
    entry->left = 1;
}

/* Begin a burst: up to the thread's next wait, all calls are measured or none, so that each is measured with the same
 * chance, whatever its place. `has_waited`: the stream has nothing before it. */
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

/* The place of the next call, which is to be measured by itself. */
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
    /* If no mark is left, and for the first call of a burst in any case, a mark here is reached when the GPU begins with
     * this call: all that may still be before it is work without a mark, or copies. */
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

/* Whether the call that was made is the last before a mark. Copies are bounded like other calls, but are not measured. */
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
    /* While a capture is open, other threads may not ask about the stream. */
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
    /* Under the gate's lock no capture begins, which a mark in the legacy stream would invalidate. */
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

/* Whether a thread may add work to the stream. Under the entry's lock. */
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

/* How long to sleep until the next look at a full stream. */
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
        if (marks != marks_before) /* the stream makes progress */
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
    if (!watched) /* the thread did not have to wait: the next mark is due when it was */
        return;
    /* A call that comes to an idle stream can only be measured if a mark is put before it. */
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

/* Whether the entry is of another thread's own default stream, with work behind which no event stands. If the owner holds the
 * lock, it is recording one. */
static bool is_nameless(struct in_flight_entry *entry)
{
    if (atomic_load_explicit(&entry->stream, memory_order_relaxed) != CU_STREAM_PER_THREAD ||
        in_flight_entry_is_own(entry) || !guard_trylock(&entry->lock))
        return false;
    bool is_followed = in_flight_entry_is_followed(entry);
    guard_unlock(&entry->lock);
    return !is_followed;
}

/* Whether one of those streams has work that is not done yet. */
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
