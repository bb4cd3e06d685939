/* in_flight_marks.c - marks: events in streams, and what they tell of the work between them. */
#include "intercept/submit/in_flight_entry.h"

#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

/* Recording a mark takes less than this, unless the thread is descheduled meanwhile. */
#define RECORD_MOST_NS UINT64_C(50000)
/* Of a call with several pieces, the first piece begins after about one third of the time that the call takes. */
#define WAY_OF_PIECES 3u
/* A gap of at most one eighth of the measured time does not matter. */
#define GAP_PART 8u
/* After the driver has refused an event, it is not asked for another one for so long at first, and for so long at most. */
#define REFUSED_LEAST_NS UINT64_C(1000000)
#define REFUSED_MOST_NS UINT64_C(1000000000)
/* A longer piece of work does not count for `longest_ns`. */
#define LONGEST_COUNTED_NS UINT64_C(1000000000)

bool in_flight_is_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!real(cuStreamIsCapturing))
        return false;
    CUresult result = real(cuStreamIsCapturing)(stream, &status);
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

uint64_t in_flight_entry_pieces(const struct in_flight_entry *entry)
{
    uint64_t pieces = in_flight_entry_unmarked(entry);
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    for (uint32_t i = 0; i < marks; i++)
        pieces += entry->ring[(entry->first + i) % IN_FLIGHT_MARKS].pieces;
    return pieces;
}

uint64_t in_flight_entry_computing(const struct in_flight_entry *entry)
{
    uint64_t copies = in_flight_entry_unmarked_async_copies(entry), pieces = in_flight_entry_pieces(entry);
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    for (uint32_t i = 0; i < marks; i++)
        copies += entry->ring[(entry->first + i) % IN_FLIGHT_MARKS].async_copies;
    return pieces > copies ? pieces - copies : 0;
}

bool in_flight_entry_is_behind(const struct in_flight_entry *entry)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    const struct in_flight_mark *newest = &entry->ring[(entry->first + marks - 1) % IN_FLIGHT_MARKS];
    return marks > 0 && real(cuEventQuery)(newest->event) == CUDA_ERROR_NOT_READY;
}

/* A driver that refuses an event may be short of something for a moment, or may refuse all of them: it is asked again less and less
 * often. */
static void note_refusal(struct in_flight_entry *entry, bool is_refused)
{
    uint64_t ns = 2 * entry->refused_ns;
    ns = ns < REFUSED_LEAST_NS ? REFUSED_LEAST_NS : ns < REFUSED_MOST_NS ? ns : REFUSED_MOST_NS;
    entry->refused_ns = is_refused ? ns : 0;
    entry->refused_until_ns = is_refused ? monotonic_ns() + ns : 0;
}

bool in_flight_entry_may_be_idle(const struct gate *gate, const struct in_flight_entry *entry,
                                 CUstream stream)
{
    return !in_flight_entry_is_open(entry) || atomic_load_explicit(&gate->captures, memory_order_relaxed) ||
           !real(cuStreamQuery) || real(cuStreamQuery)(stream) != CUDA_ERROR_NOT_READY;
}

/* Record an event, and make it first if there is none. */
static bool put(struct in_flight_entry *entry, CUevent *event, unsigned flags, CUstream stream)
{
    if (!real(cuEventCreate) || !real(cuEventRecord) ||
        (entry->refused_ns && monotonic_ns() < entry->refused_until_ns))
        return false;
    if (!*event && real(cuEventCreate)(event, flags) != CUDA_SUCCESS)
        *event = NULL;
    bool is_put = *event && real(cuEventRecord)(*event, stream) == CUDA_SUCCESS;
    if (!is_put || entry->refused_ns)
        note_refusal(entry, !is_put);
    return is_put;
}

/* The longest gap before the calls of the next mark that does not matter. */
static uint64_t gap_most_ns(const struct in_flight_entry *entry, uint64_t submitted)
{
    uint64_t calls = submitted - atomic_load_explicit(&entry->covered, memory_order_relaxed);
    uint64_t ns = calls * work_estimate_piece_ns(&entry->estimate) / GAP_PART;
    return ns && ns < RECORD_MOST_NS ? ns : RECORD_MOST_NS;
}

/* How long the call that is measured by itself was on its way to the GPU. Of several pieces, the first may begin at any
 * moment of that time. */
static uint64_t way_ns(const struct in_flight_entry *entry)
{
    uint64_t ns = entry->returned_ns - entry->recorded_ns;
    return entry->samples_pieces ? ns / WAY_OF_PIECES : ns;
}

/* The stream was found without work. If the thread had waited for room before that, and the gate was not closed meanwhile,
 * then the bound kept the thread from running ahead of what it does on the CPU. So the bound grows, unless the lease sets
 * it. */
static void note_gap(struct gate *gate, struct in_flight_entry *entry)
{
    bool was_held = entry->held_at == atomic_load_explicit(&gate->closings, memory_order_relaxed) + 1;
    entry->held_at = 0;
    if (was_held && !atomic_load_explicit(&gate->ahead_least_ns, memory_order_relaxed))
        atomic_store_explicit(&gate->ahead_ns, work_estimate_ahead_of_gap(in_flight_ahead_ns(gate)),
                              memory_order_relaxed);
}

/* `calls` are covered now: how many of them belong to `part`. */
static uint32_t cover(struct in_flight_part *part, uint64_t calls)
{
    /* The owner counts a call here before it counts it in `submitted`. */
    uint64_t covered = atomic_load_explicit(&part->covered, memory_order_relaxed);
    uint64_t made = atomic_load_explicit(&part->made, memory_order_acquire) - covered;
    made = made < calls ? made : calls;
    atomic_store_explicit(&part->covered, covered + made, memory_order_relaxed);
    return (uint32_t)made;
}

bool in_flight_mark(struct gate *gate, struct in_flight_entry *entry, CUstream stream)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    struct in_flight_mark *mark = &entry->ring[(entry->first + marks) % IN_FLIGHT_MARKS];
    if (marks == IN_FLIGHT_MARKS - 1)
        return false;
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    uint64_t now_ns = monotonic_ns();
    bool is_sample = entry->sampling, is_behind = in_flight_entry_is_behind(entry),
         was_late = entry->recorded_late, was_put_off = entry->is_put_off;
    if (was_put_off && is_sample)
        entry->has_gap |= in_flight_entry_may_be_idle(gate, entry, stream);
    /* A short piece may be done while the next is on its way to the GPU. The gap between them is no longer than that. */
    bool was_behind =
        !was_put_off && entry->behind_ns && now_ns - entry->behind_ns < gap_most_ns(entry, submitted);
    if (!is_behind && !was_behind && !was_put_off)
        note_gap(gate, entry);
    bool has_way = is_sample && !is_behind;
    /* If the GPU reached the mark before while the call was on its way, nobody knows how long the GPU waited for the call. */
    bool is_vague = (has_way && entry->samples_behind) || (was_put_off && entry->has_gap);
    mark->lead_ns = has_way ? way_ns(entry) : 0;
    mark->waits_from_ns =
        is_sample && !entry->samples_follow ? entry->recorded_ns + (has_way ? 0 : way_ns(entry)) : 0;
    entry->sampling = false;
    entry->behind_ns = 0;
    if (!put(entry, &mark->event, CU_EVENT_DEFAULT, stream))
        return false;
    mark->began_ns = now_ns;
    mark->recorded_ns = entry->recorded_ns = monotonic_ns();
    entry->recorded_late = mark->recorded_ns - now_ns > RECORD_MOST_NS;
    mark->sample = is_sample;
    mark->is_skipped = entry->burst == IN_FLIGHT_BURST_SKIPPED;
    mark->shared_ms = in_flight_shared_ms(gate, now_ns);
    mark->queued = is_sample ? !is_vague && !was_late && !entry->recorded_late
                             : !entry->is_parted && (is_behind || (was_behind && !entry->recorded_late));
    entry->is_parted = entry->is_put_off = false;
    mark->pieces = (uint32_t)(submitted - atomic_load_explicit(&entry->covered, memory_order_relaxed));
    mark->place = is_sample && mark->pieces == 1 ? entry->sampled_place : IN_FLIGHT_WITHIN;
    mark->sync_copies = cover(&entry->sync_copies, mark->pieces);
    mark->async_copies = cover(&entry->async_copies, mark->pieces - mark->sync_copies);
    atomic_store_explicit(&entry->covered, submitted, memory_order_relaxed);
    atomic_store_explicit(&entry->marks, marks + 1, memory_order_relaxed);
    return true;
}

/* In the entry's context. */
static void put_last(struct in_flight_entry *entry, CUstream stream)
{
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    if (put(entry, &entry->last, CU_EVENT_DISABLE_TIMING, stream))
        entry->last_at = submitted;
}

bool in_flight_entry_is_followed(const struct in_flight_entry *entry)
{
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    return entry->last_at == submitted ||
           atomic_load_explicit(&entry->covered, memory_order_relaxed) == submitted;
}

void in_flight_entry_follow(struct gate *gate, struct in_flight_entry *entry, bool is_due)
{
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    if (stream && !in_flight_entry_is_covered(entry)) {
        CUcontext context = in_flight_entry_context(entry);
        bool pushed = !own_calls_is_current(context) && own_calls_push(context);
        if (is_due && atomic_load_explicit(&entry->marks, memory_order_relaxed) > IN_FLIGHT_MARKS / 2)
            in_flight_settle(gate, entry, false); /* to make room in the ring */
        if ((stream != CU_STREAM_LEGACY || !in_flight_is_capturing(stream)) &&
            !(is_due && in_flight_mark(gate, entry, stream)) && !in_flight_entry_is_followed(entry))
            put_last(entry, stream);
        if (pushed)
            own_calls_pop();
    }
    guard_unlock(&entry->lock);
}

void in_flight_entry_follow_other(struct gate *gate, struct in_flight_entry *entry)
{
    if (guard_trylock(&entry->lock))
        in_flight_entry_follow(gate, entry, false);
}

uint64_t in_flight_ahead_least_ns(const struct gate *gate)
{
    uint64_t ns = atomic_load_explicit(&gate->ahead_least_ns, memory_order_relaxed);
    return ns ? ns : AHEAD_LEAST_NS;
}

uint64_t in_flight_ahead_ns(const struct gate *gate)
{
    uint64_t ns = atomic_load_explicit(&gate->ahead_ns, memory_order_relaxed),
             least_ns = in_flight_ahead_least_ns(gate);
    return ns < least_ns ? least_ns : ns;
}

/* How long the GPU took from the mark before to this one, which are both reached; 0: unknown. */
static uint64_t between_ns(struct in_flight_entry *entry, const struct in_flight_mark *mark)
{
    double ns = 0;
    if (!mark->queued || mark->sync_copies ||
        !in_flight_elapsed_ns(in_flight_mark_before(entry)->event, mark->event, &ns) || !(ns > 0))
        return 0;
    return (uint64_t)ns;
}

/* By when the mark, which is reached now, was reached at the latest. */
static uint64_t reached_by_ns(const struct in_flight_entry *entry, const struct in_flight_mark *mark)
{
    uint64_t waited_ns = atomic_load_explicit(&entry->waited_ns, memory_order_relaxed);
    return waited_ns > mark->recorded_ns ? waited_ns : monotonic_ns();
}

/* For how long the call of this mark waited for other sessions before the GPU reached the mark before it, by `before_ns`, which the
 * time between the two does not include. */
static uint64_t waited_for_others_ns(struct gate *gate, struct in_flight_entry *entry,
                                     const struct in_flight_mark *mark, uint64_t before_ns)
{
    if (!mark->waits_from_ns)
        return 0;
    /* Without company nothing is waited for, and the clock is set. */
    uint64_t reached_ns = in_flight_reached_idle_ns(&gate->times, entry, before_ns);
    return reached_ns > mark->waits_from_ns && atomic_load_explicit(&gate->has_company, memory_order_relaxed)
               ? reached_ns - mark->waits_from_ns
               : 0;
}

void in_flight_count_done(struct in_flight_entry *entry, uint64_t calls, uint64_t measured_ns,
                          uint64_t waited_ns, enum in_flight_place place)
{
    struct in_flight_counts *counts = &entry->counts;
    if (!measured_ns) {
        counts->others += calls;
        return;
    }
    uint64_t each_ns = measured_ns / calls;
    counts->least_ns = counts->measured && counts->least_ns < each_ns ? counts->least_ns : each_ns;
    counts->measured++;
    counts->told[place].calls += calls;
    counts->told[place].ns += measured_ns + waited_ns;
    counts->told[place].waited_ns += waited_ns;
}

/* How many calls stand between the mark before and this one, without synchronous copies. */
static uint32_t work_of(const struct in_flight_mark *mark)
{
    return mark->pieces - mark->sync_copies;
}

/* A mark is reached, and was by `now_ns`: learn from the time that its pieces took. `watched`: a moment before, it was not reached. */
static void learn(struct gate *gate, struct in_flight_entry *entry, const struct in_flight_mark *mark,
                  uint64_t now_ns, bool watched)
{
    uint64_t pieces = work_of(mark), computing = pieces - mark->async_copies;
    uint64_t between = between_ns(entry, mark);
    uint64_t measured = between > mark->lead_ns ? between - mark->lead_ns : between > 0, took_ns = measured;
    /* If the GPU's clock does not tell, take our own: the GPU began with the pieces when it was seen to end what was before
     * them, or when they came to an idle stream. */
    bool follows = mark->queued && !mark->sample && !mark->sync_copies;
    uint64_t began_ns = follows ? entry->reached_ns : mark->recorded_ns;
    if (!took_ns && watched && (follows ? entry->reached_watched : mark->pieces == 1) && now_ns > began_ns)
        took_ns = now_ns - began_ns;
    entry->reached_ns = now_ns;
    entry->reached_watched = watched;
    if (!pieces)
        return;
    bool counts = measured && computing && !mark->is_skipped && !mark->async_copies;
    uint64_t waited_ns = counts ? waited_for_others_ns(gate, entry, mark, now_ns - between) : 0;
    if (computing)
        in_flight_count_done(entry, computing, counts ? measured : 0, waited_ns, mark->place);
    if (counts && mark->shared_ms)
        in_flight_note_times(&gate->times, entry, mark, measured + waited_ns, now_ns);
    if (!took_ns) {
        work_estimate_bounded(&entry->estimate, pieces, now_ns - in_flight_mark_before(entry)->recorded_ns);
        return;
    }
    if (pieces == 1 && took_ns <= LONGEST_COUNTED_NS &&
        mark->recorded_ns > atomic_load_explicit(&gate->stalled_ns, memory_order_relaxed) &&
        took_ns > atomic_load_explicit(&gate->longest_ns, memory_order_relaxed))
        atomic_store_explicit(&gate->longest_ns, took_ns, memory_order_relaxed);
    work_estimate_measured(&entry->estimate, pieces, took_ns, in_flight_ahead_ns(gate));
}

void in_flight_settle(struct gate *gate, struct in_flight_entry *entry, bool watched)
{
    for (uint32_t marks; (marks = atomic_load_explicit(&entry->marks, memory_order_relaxed)) > 0;) {
        const struct in_flight_mark *mark = &entry->ring[entry->first];
        if (real(cuEventQuery)(mark->event) == CUDA_ERROR_NOT_READY)
            return;
        learn(gate, entry, mark, reached_by_ns(entry, mark), watched);
        entry->first = (entry->first + 1) % IN_FLIGHT_MARKS;
        atomic_store_explicit(&entry->marks, marks - 1, memory_order_relaxed);
        watched = false; /* the next mark may have been reached long before */
    }
    atomic_store_explicit(&entry->stuck, false, memory_order_relaxed);
}

uint64_t in_flight_entry_left_ns(const struct in_flight_entry *entry, uint64_t now_ns)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    uint64_t others = 0;
    if (marks == 0)
        return 0;
    const struct in_flight_mark *oldest = &entry->ring[entry->first];
    uint64_t from_ns =
        oldest->queued && !oldest->sample && entry->reached_ns ? entry->reached_ns : oldest->recorded_ns;
    for (uint32_t i = 1; i < marks; i++)
        others += work_of(&entry->ring[(entry->first + i) % IN_FLIGHT_MARKS]);
    return work_estimate_left_ns(&entry->estimate, work_of(oldest) ? work_of(oldest) : 1,
                                 now_ns > from_ns ? now_ns - from_ns : 0, others);
}

/* There is no handle for another thread's own default stream: ask the legacy stream, which waits for it. */
static CUstream stream_to_ask(const struct in_flight_entry *entry)
{
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    return stream == CU_STREAM_PER_THREAD && !in_flight_entry_is_own(entry) ? CU_STREAM_LEGACY : stream;
}

/* Whether what was submitted is done, if no mark stands behind all of it. */
static bool is_reached(struct gate *gate, const struct in_flight_entry *entry)
{
    CUstream stream = stream_to_ask(entry);
    if (in_flight_entry_is_followed(entry))
        return real(cuEventQuery)(entry->last) != CUDA_ERROR_NOT_READY;
    if (atomic_load_explicit(&gate->captures, memory_order_relaxed) || !real(cuStreamQuery))
        return false; /* asking might invalidate a capture */
    bool is_done = !stream || real(cuStreamQuery)(stream) != CUDA_ERROR_NOT_READY;
    if (is_done && stream != atomic_load_explicit(&entry->stream, memory_order_relaxed))
        atomic_fetch_add_explicit(&gate->doubts, 1, memory_order_release); /* in_flight_doubts() */
    return is_done;
}

/* Under both locks, in the entry's context. */
static bool is_finished(struct gate *gate, struct in_flight_entry *entry)
{
    in_flight_settle(gate, entry, false);
    if (atomic_load_explicit(&entry->marks, memory_order_relaxed))
        return false;
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    if (submitted == atomic_load_explicit(&entry->covered, memory_order_relaxed))
        return true;
    if (!is_reached(gate, entry))
        return false;
    uint64_t calls = submitted - atomic_load_explicit(&entry->covered, memory_order_relaxed);
    calls -= cover(&entry->sync_copies, calls);
    calls -= cover(&entry->async_copies, calls);
    in_flight_count_done(entry, calls, 0, 0, IN_FLIGHT_WITHIN);
    atomic_store_explicit(&entry->covered, submitted, memory_order_relaxed);
    return true;
}

bool in_flight_entry_ask(struct gate *gate, struct in_flight_entry *entry)
{
    if (!in_flight_entry_is_open(entry))
        return true;
    /* Only try, as in in_flight_entry_follow_other(). */
    if (!guard_trylock(&entry->lock))
        return false;
    bool pushed = own_calls_push(in_flight_entry_context(entry));
    bool finished = !pushed || is_finished(gate, entry); /* a context that was destroyed has no work */
    if (pushed)
        own_calls_pop();
    guard_unlock(&entry->lock);
    return finished;
}
