/* in_flight.c - what a thread does when it submits work: it counts the call, records a mark when one is due, and waits if the
 * stream is full. */
#include "intercept/submit/in_flight.h"

#include <time.h>

#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/in_flight_entry.h"

/* If no mark is reached for this long plus the longest piece of work, the stream counts as stuck. */
#define PATIENCE_NS UINT64_C(100000000)
#define SHORTEST_NAP_NS UINT64_C(50000)
#define LONGEST_NAP_NS UINT64_C(1000000)
/* The longest that a capture waits for what other threads gave their own default streams: longer than work takes that has no
 * mark yet. */
#define NAMELESS_MOST_NS UINT64_C(3000000)

/* A mark is not put off for more calls than this; and not for more than the second number while it is unknown how long they take. */
#define CHAIN_CALLS_MOST 4096u
#define CHAIN_CALLS_UNKNOWN 4u

static void follow_own(struct gate *gate, struct in_flight_entry *entry, bool is_due)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&entry->lock);
    in_flight_entry_follow(gate, entry, is_due);
    own_calls_end(&calls);
}

/* The place of the next call, which is to be measured by itself. */
static enum in_flight_place place_of_next(const struct gate *gate, struct in_flight_entry *entry)
{
    uint32_t before = entry->first_at;
    if (in_flight_calls_in_burst(entry) > 0)
        return IN_FLIGHT_WITHIN;
    entry->first_at = atomic_load_explicit(&gate->closings, memory_order_relaxed);
    return entry->first_at == before ? IN_FLIGHT_FIRST : IN_FLIGHT_AFRESH;
}

/* How much a stream has before it behind the last mark, in a chain of launches that overlap, is known by estimate only. */
static bool is_chain_long(const struct gate *gate, const struct in_flight_entry *entry)
{
    uint64_t calls = in_flight_entry_unmarked(entry), piece_ns = work_estimate_piece_ns(&entry->estimate);
    uint64_t most_ns = in_flight_ahead_ns(gate);
    if (!atomic_load_explicit(&gate->ahead_least_ns, memory_order_relaxed) && most_ns < IN_FLIGHT_CHAIN_NS)
        most_ns = IN_FLIGHT_CHAIN_NS;
    return calls >= (piece_ns ? CHAIN_CALLS_MOST : CHAIN_CALLS_UNKNOWN) || calls * piece_ns >= most_ns;
}

/* If the calls behind the last mark are to be measured: whether the stream still has work. */
static void look_for_gap(struct gate *gate, struct in_flight_entry *entry)
{
    struct own_calls calls;
    if (!entry->sampling || entry->has_gap || !own_calls_begin(&calls, in_flight_entry_context(entry)))
        return;
    entry->has_gap =
        in_flight_entry_may_be_idle(gate, entry, atomic_load_explicit(&entry->stream, memory_order_relaxed));
    own_calls_end(&calls);
}

void in_flight_put_what_was_put_off(struct gate *gate, CUstream stream, bool overlaps)
{
    struct in_flight_entry *entry = in_flight_entry_find(gate, stream);
    if (!entry || !entry->is_put_off)
        return;
    entry->is_put_off = !in_flight_entry_is_covered(entry);
    if (entry->is_put_off && overlaps && !is_chain_long(gate, entry)) {
        look_for_gap(gate, entry);
        return;
    }
    bool sampled = entry->sampling;
    if (entry->is_put_off)
        follow_own(gate, entry, true);
    if (!overlaps && entry->overlaps)
        entry->overlaps--;
    entry->is_put_off = entry->sampling = false;
    entry->left = in_flight_calls_to_mark(gate, entry, sampled);
}

void in_flight_begin_sample(struct gate *gate, uint32_t what)
{
    struct in_flight_entry *entry = gate_self.entry;
    if (!entry || entry->left > 1 || entry->burst == IN_FLIGHT_BURST_SKIPPED || entry->is_put_off ||
        atomic_load_explicit(&gate->captures, memory_order_relaxed))
        return;
    struct own_calls calls;
    /* An event belongs to the context in which it is made, which must be the stream's. Copies take streams of contexts that
     * are not current. */
    if (!own_calls_begin(&calls, in_flight_entry_context(entry)))
        return;
    guard_lock(&entry->lock);
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    in_flight_settle(gate, entry, false);
    if ((what & GATE_OVERLAPS) && !in_flight_entry_may_be_idle(gate, entry, stream)) {
        entry->behind_ns = 0;
        guard_unlock(&entry->lock);
        own_calls_end(&calls);
        return;
    }
    /* If no mark is left, and for the first call of a burst in any case, a mark here is reached when the GPU begins with
     * this call: all that may still be before it is work without a mark, or copies. */
    bool is_first = entry->burst == IN_FLIGHT_BURST_MEASURED && in_flight_calls_in_burst(entry) == 0;
    bool has_marks = atomic_load_explicit(&entry->marks, memory_order_relaxed) > 0;
    entry->behind_ns = has_marks && !is_first ? monotonic_ns() : 0;
    bool follow = is_first ? entry->is_behind_copy : !in_flight_entry_is_covered(entry);
    if (stream && !entry->behind_ns)
        entry->sampling = in_flight_mark(gate, entry, stream);
    entry->samples_follow = follow;
    entry->samples_behind = follow && entry->sampling && in_flight_entry_is_behind(entry);
    if (is_first)
        entry->burst_began_ns = entry->recorded_ns;
    entry->samples_pieces = what & GATE_PIECES;
    entry->sampled_place = place_of_next(gate, entry);
    guard_unlock(&entry->lock);
    own_calls_end(&calls);
}

/* The mark that is due behind the last call stands before the next one, if that may be. */
static void put_off(struct in_flight_entry *entry)
{
    entry->has_gap &= entry->is_put_off;
    entry->is_put_off = true;
    entry->left = 1;
}

/* Whether the call that was made is the last before a mark. Copies are bounded like other calls, but are not measured. */
static bool is_mark_due(const struct in_flight_entry *entry, uint32_t what)
{
    if (what & GATE_COPIES_SYNC)
        return false;
    if (what & GATE_COPIES_ASYNC)
        return in_flight_entry_unmarked(entry) >= work_estimate_chunk(&entry->estimate);
    return entry->left <= 1;
}

void in_flight_count(struct gate *gate, CUstream stream, bool marks, uint32_t what)
{
    struct in_flight_entry *entry = in_flight_entry_find(gate, stream);
    if (!entry)
        return;
    if (entry->sampling && !entry->is_put_off)
        entry->returned_ns = monotonic_ns();
    if (what & GATE_OVERLAPS)
        entry->overlaps = IN_FLIGHT_OVERLAPS;
    if (what & (GATE_COPIES_SYNC | GATE_COPIES_ASYNC))
        in_flight_entry_count_part(entry,
                                   what & GATE_COPIES_SYNC ? &entry->sync_copies : &entry->async_copies);
    in_flight_entry_count(entry);
    in_flight_end_quick(entry);
    if (!marks)
        return;
    /* While a capture is open, other threads may not ask about the stream. */
    bool is_hidden = atomic_load_explicit(&gate->captures, memory_order_relaxed) != 0;
    bool is_due = is_mark_due(entry, what), sampled = entry->sampling;
    if (is_due && entry->overlaps && !is_hidden && !(what & GATE_COPIES_ASYNC)) {
        put_off(entry);
        return;
    }
    if (is_due || is_hidden)
        follow_own(gate, entry, is_due);
    if (what & GATE_COPIES_SYNC) {
        in_flight_begin_burst(gate, entry, true);
        return;
    }
    bool is_parting = (what & GATE_COPIES_ASYNC) && entry->burst == IN_FLIGHT_BURST_MEASURED;
    entry->is_behind_copy |= is_parting && in_flight_calls_in_burst(entry) == 0;
    entry->sampling = false;
    if (is_due)
        entry->left = in_flight_calls_to_mark(gate, entry, sampled);
    else if (entry->left > 1)
        entry->left--;
    if (!is_due && !is_hidden && !is_parting) /* the first call behind a mark waits for room */
        in_flight_begin_quick(entry);
}

/* Whether calls of the entry wait for a mark that is to come before the thread waits. */
static bool is_in_chunk(const struct in_flight_entry *entry)
{
    return entry &&
           (entry->burst == IN_FLIGHT_BURST_MEASURED || entry->is_in_slice ||
            (entry->is_put_off && entry->sampling)) &&
           !in_flight_entry_is_covered(entry) &&
           atomic_load_explicit(&entry->marks, memory_order_relaxed) > 0;
}

void in_flight_end_chunk(struct gate *gate, struct in_flight_entry *entry)
{
    struct own_calls calls;
    if (!is_in_chunk(entry))
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
    if (unmarked && (in_flight_entry_unmarked_async_copies(entry) == unmarked) != is_copy)
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
    if (is_in_chunk(entry) && in_flight_may_mark(gate, entry))
        in_flight_begin_part(gate, entry, true);
    for (struct in_flight_entry *other = self->entries; other; other = other->next)
        if (other != entry && other->is_in_slice && is_in_chunk(other) && in_flight_may_mark(gate, other))
            in_flight_end_chunk(gate, other);
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
    if (in_flight_calls_in_burst(entry) == 0)
        return;
    guard_begin();
    if (wait == IN_FLIGHT_WAIT_CONTEXT)
        wait =
            own_calls_is_current(in_flight_entry_context(entry)) ? IN_FLIGHT_WAIT_ALL : IN_FLIGHT_WAIT_SOME;
    if (wait != IN_FLIGHT_WAIT_SOME || ask_own(gate, entry))
        in_flight_begin_burst(gate, entry, wait != IN_FLIGHT_WAIT_HOST);
    if (wait == IN_FLIGHT_WAIT_ALL)
        atomic_store_explicit(&entry->waited_ns, entry->burst_began_ns, memory_order_relaxed);
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
        in_flight_end_quick(entry);
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
