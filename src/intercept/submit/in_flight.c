#include "intercept/submit/in_flight.h"
#include "intercept/resolve/guard.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"

#define PATIENCE_NS UINT64_C(100000000)
#define SHORTEST_NAP_NS UINT64_C(50000)
#define LONGEST_NAP_NS UINT64_C(1000000)
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

/* --- Entries --------------------------------------------------------------------------------------- */

static bool is_default(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

static bool is_covered(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->covered, memory_order_relaxed) ==
           atomic_load_explicit(&entry->submitted, memory_order_relaxed);
}

/* Whether anything of it is not known to be done: calls, or marks alone. */
static bool is_open(const struct in_flight_entry *entry)
{
    return !is_covered(entry) || atomic_load_explicit(&entry->marks, memory_order_relaxed);
}

/* Calls that are not known to be done: a mark right before a call stands for none. Under the entry's lock. */
static uint64_t pieces_in(const struct in_flight_entry *entry)
{
    uint64_t pieces = atomic_load_explicit(&entry->submitted, memory_order_relaxed) -
                      atomic_load_explicit(&entry->covered, memory_order_relaxed);
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    for (uint32_t i = 0; i < marks; i++)
        pieces += entry->ring[(entry->first + i) % IN_FLIGHT_MARKS].pieces;
    return pieces;
}

static CUcontext context_in(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->context, memory_order_relaxed);
}

static CUcontext context_of(CUstream stream)
{
    CUcontext context = NULL;
    if (is_default(stream))
        real(cuCtxGetCurrent)(&context);
    else if (!real(cuStreamGetCtx) || real(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS)
        return NULL;
    return context;
}

/* A place that nobody owns, or one of a thread that has ended and whose work is done. */
static struct in_flight_entry *take_place(struct gate *gate, int32_t tid)
{
    for (uint32_t i = 0; i < IN_FLIGHT_ENTRIES; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        int32_t owner =
            atomic_load_explicit(&entry->tid, memory_order_acquire); /* in_flight_thread_ended() */
        bool done =
            owner < 0 && is_covered(entry) && atomic_load_explicit(&entry->marks, memory_order_relaxed) == 0;
        if ((owner != 0 && !done) ||
            !atomic_compare_exchange_strong_explicit(&entry->tid, &owner, tid, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_relaxed);
        while (count <= i &&
               !atomic_compare_exchange_weak_explicit(&gate->entry_count, &count, i + 1, memory_order_release,
                                                      memory_order_relaxed))
            ;
        return entry;
    }
    return NULL;
}

/* Under the gate's lock. */
static void drop_events(struct in_flight_entry *entry)
{
    for (unsigned i = 0; i < IN_FLIGHT_MARKS; i++) {
        if (entry->ring[i].event && real(cuEventDestroy_v2))
            real(cuEventDestroy_v2)(entry->ring[i].event);
        entry->ring[i] = (struct in_flight_mark){0};
    }
    entry->first = 0;
    atomic_store_explicit(&entry->marks, 0, memory_order_relaxed);
}

static struct in_flight_entry *make_entry(struct gate *gate, CUstream stream, CUcontext context)
{
    struct gate_self *self = &gate_self;
    struct in_flight_entry *entry = self->entries;
    while (entry && (atomic_load_explicit(&entry->stream, memory_order_relaxed) || !is_covered(entry) ||
                     atomic_load_explicit(&entry->marks, memory_order_relaxed)))
        entry = entry->next;
    if (!entry) {
        entry = take_place(gate, atomic_load_explicit(&self->thread->tid, memory_order_relaxed));
        if (!entry)
            return NULL;
        entry->next = self->entries;
        self->entries = entry;
    }
    guard_lock(&gate->lock);
    CUcontext before = context_in(entry);
    if (before != context && before) {
        bool pushed = own_calls_push(before);
        drop_events(entry);
        if (pushed)
            own_calls_pop();
    }
    atomic_store_explicit(&entry->context, context, memory_order_relaxed);
    entry->unmarkable = false;
    entry->left = 1;
    atomic_store_explicit(&entry->stuck, false, memory_order_relaxed);
    work_estimate_reset(&entry->estimate);
    atomic_store_explicit(&entry->stream, stream, memory_order_relaxed);
    guard_unlock(&gate->lock);
    return entry;
}

/* This thread's entry for a stream; NULL where the driver knows no such stream, or the places are used up. */
static struct in_flight_entry *entry_of(struct gate *gate, CUstream stream)
{
    struct gate_self *self = &gate_self;
    if (self->entry && atomic_load_explicit(&self->entry->stream, memory_order_relaxed) == stream)
        return self->entry;
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    CUcontext context = context_of(stream);
    struct in_flight_entry *entry = self->entries;
    while (entry && (atomic_load_explicit(&entry->stream, memory_order_relaxed) != stream ||
                     context_in(entry) != context))
        entry = entry->next;
    if (!entry && context)
        entry = make_entry(gate, stream, context);
    self->entry = entry;
    own_calls_end(&calls);
    return entry;
}

void in_flight_thread_ended(int32_t tid)
{
    struct private_area *area = atomic_load_explicit(&private_area, memory_order_acquire);
    uint32_t count = atomic_load_explicit(&gate_in(area)->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate_in(area)->entries[i];
        if (atomic_load_explicit(&entry->tid, memory_order_relaxed) == tid)
            atomic_store_explicit(&entry->tid, -1, memory_order_release); /* take_place() */
    }
}

/* --- Marks ----------------------------------------------------------------------------------------- */

/* Whether the newest mark is not reached yet: what was submitted since then came in time. */
static bool is_newest_pending(const struct in_flight_entry *entry, uint32_t marks)
{
    const struct in_flight_mark *newest = &entry->ring[(entry->first + marks - 1) % IN_FLIGHT_MARKS];
    return marks > 0 && real(cuEventQuery)(newest->event) == CUDA_ERROR_NOT_READY;
}

/* Under the entry's lock, in its context. Returns whether there is a mark now. */
static bool record(struct in_flight_entry *entry, CUstream stream)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    struct in_flight_mark *mark = &entry->ring[(entry->first + marks) % IN_FLIGHT_MARKS];
    if (marks == IN_FLIGHT_MARKS - 1 || entry->unmarkable || !real(cuEventCreate) || !real(cuEventRecord))
        return false;
    if (!mark->event && real(cuEventCreate)(&mark->event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        mark->event = NULL;
        entry->unmarkable = true;
        return false;
    }
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    mark->sample = entry->sampling;
    mark->queued = mark->sample || is_newest_pending(entry, marks);
    entry->sampling = false;
    if (real(cuEventRecord)(mark->event, stream) != CUDA_SUCCESS) {
        entry->unmarkable = true;
        return false;
    }
    mark->from_ns = entry->recorded_ns;
    mark->recorded_ns = entry->recorded_ns = monotonic_ns();
    mark->pieces = (uint32_t)(submitted - atomic_load_explicit(&entry->covered, memory_order_relaxed));
    atomic_store_explicit(&entry->covered, submitted, memory_order_relaxed);
    atomic_store_explicit(&entry->marks, marks + 1, memory_order_relaxed);
    return true;
}

/* With the entry's lock, which it gives back. */
static void cover(struct in_flight_entry *entry)
{
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    if (stream && !is_covered(entry)) {
        CUcontext current = NULL;
        real(cuCtxGetCurrent)(&current);
        bool pushed = current != context_in(entry) && own_calls_push(context_in(entry));
        if (stream != CU_STREAM_LEGACY || !in_flight_is_capturing(stream))
            record(entry, stream);
        if (pushed)
            own_calls_pop();
    }
    guard_unlock(&entry->lock);
}

static void cover_own(struct in_flight_entry *entry)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&entry->lock);
    cover(entry);
    own_calls_end(&calls);
}

/* Another thread's; its owner may hold the lock while it records a mark, which takes long where the
 * stream is full. */
static void cover_other(struct in_flight_entry *entry)
{
    if (guard_trylock(&entry->lock))
        cover(entry);
}

static uint64_t ahead_least_ns(const struct gate *gate)
{
    uint64_t ns = atomic_load_explicit(&gate->ahead_least_ns, memory_order_relaxed);
    return ns ? ns : AHEAD_LEAST_NS;
}

static uint64_t ahead_ns(const struct gate *gate)
{
    uint64_t ns = atomic_load_explicit(&gate->ahead_ns, memory_order_relaxed),
             least_ns = ahead_least_ns(gate);
    return ns < least_ns ? least_ns : ns;
}

/* How long the GPU took from the mark before to this one, both reached; 0 where nobody can tell. The GPU's
 * own clock knows no thread that was not run for a moment. */
static uint64_t measured_ns(const struct in_flight_entry *entry, const struct in_flight_mark *mark)
{
    const struct in_flight_mark *before =
        &entry->ring[(entry->first + IN_FLIGHT_MARKS - 1) % IN_FLIGHT_MARKS];
    float ms = 0;
    if (!mark->queued || !before->event || !real(cuEventElapsedTime) ||
        real(cuEventElapsedTime)(&ms, before->event, mark->event) != CUDA_SUCCESS || !(ms > 0))
        return 0;
    return (uint64_t)((double)ms * 1e6);
}

/* Calls are done. `measured_ns`: how long their work took, 0 where nothing tells. */
static void count_done(struct in_flight_entry *entry, uint64_t calls, uint64_t measured_ns, bool is_sample)
{
    struct in_flight_counts *counts = &entry->counts;
    if (!measured_ns) {
        counts->others += calls;
    } else if (is_sample) {
        counts->sampled += calls;
        counts->sampled_ns += measured_ns;
    } else {
        counts->chained += calls;
        counts->chained_ns += measured_ns;
    }
}

/* A mark is reached: how long its pieces took says how many there should be. `watched`: it was not, a moment
 * ago. */
static void learn(struct gate *gate, struct in_flight_entry *entry, const struct in_flight_mark *mark,
                  uint64_t now_ns, bool watched)
{
    uint64_t pieces = mark->pieces, measured = measured_ns(entry, mark), took_ns = measured;
    /* By our own clock, where that is all there is: the GPU began with them when it was seen to end what was
     * before, or when they came to an idle stream. */
    bool follows = mark->queued && !mark->sample;
    uint64_t began_ns = follows ? entry->reached_ns : mark->recorded_ns;
    if (!took_ns && watched && (follows ? entry->reached_watched : pieces == 1) && now_ns > began_ns)
        took_ns = now_ns - began_ns;
    entry->reached_ns = now_ns;
    entry->reached_watched = watched;
    if (!pieces)
        return;
    count_done(entry, pieces, measured, mark->sample);
    if (!took_ns) {
        work_estimate_bounded(&entry->estimate, pieces, now_ns - mark->from_ns);
        return;
    }
    if (pieces == 1 && took_ns <= LONGEST_COUNTED_NS &&
        mark->recorded_ns > atomic_load_explicit(&gate->stalled_ns, memory_order_relaxed) &&
        took_ns > atomic_load_explicit(&gate->longest_ns, memory_order_relaxed))
        atomic_store_explicit(&gate->longest_ns, took_ns, memory_order_relaxed);
    work_estimate_measured(&entry->estimate, pieces, took_ns, ahead_ns(gate));
}

/* Take out what is reached. Under the entry's lock. */
static void settle(struct gate *gate, struct in_flight_entry *entry, bool watched)
{
    for (uint32_t marks; (marks = atomic_load_explicit(&entry->marks, memory_order_relaxed)) > 0;) {
        const struct in_flight_mark *mark = &entry->ring[entry->first];
        if (real(cuEventQuery)(mark->event) == CUDA_ERROR_NOT_READY)
            return;
        learn(gate, entry, mark, monotonic_ns(), watched);
        entry->first = (entry->first + 1) % IN_FLIGHT_MARKS;
        atomic_store_explicit(&entry->marks, marks - 1, memory_order_relaxed);
        watched = false; /* it may have been reached long before */
    }
    atomic_store_explicit(&entry->stuck, false, memory_order_relaxed);
}

/* How long what is marked should still take. Under the entry's lock. */
static uint64_t left_ns(const struct in_flight_entry *entry, uint64_t now_ns)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    uint64_t others = 0;
    if (marks == 0)
        return 0;
    const struct in_flight_mark *oldest = &entry->ring[entry->first];
    uint64_t from_ns =
        oldest->queued && !oldest->sample && entry->reached_ns ? entry->reached_ns : oldest->recorded_ns;
    for (uint32_t i = 1; i < marks; i++)
        others += entry->ring[(entry->first + i) % IN_FLIGHT_MARKS].pieces;
    return work_estimate_left_ns(&entry->estimate, oldest->pieces ? oldest->pieces : 1,
                                 now_ns > from_ns ? now_ns - from_ns : 0, others);
}

/* How many calls are to be made until the next mark. In a program that leaves its stream idle between calls
 * that is by chance, so that what the marks measure does not keep step with the program's own rhythm. */
static uint32_t calls_to_mark(struct in_flight_entry *entry, bool sampled)
{
    uint32_t chunk = work_estimate_chunk(&entry->estimate);
    if (!sampled || chunk == 1)
        return chunk;
    entry->chance = entry->chance * 1664525u + 1013904223u;
    return 1 + (entry->chance >> 8) % (2 * chunk - 1);
}

void in_flight_begin_sample(struct gate *gate)
{
    struct in_flight_entry *entry = gate_self.entry;
    if (!entry || entry->left > 1 || atomic_load_explicit(&gate->captures, memory_order_relaxed))
        return;
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&entry->lock);
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    settle(gate, entry, false);
    /* What is before the stream has ended, but for what no mark is behind: a mark here is where the GPU begins
     * with this call. */
    if (stream && atomic_load_explicit(&entry->marks, memory_order_relaxed) == 0)
        entry->sampling = record(entry, stream);
    guard_unlock(&entry->lock);
    own_calls_end(&calls);
}

void in_flight_count(struct gate *gate, CUstream stream, bool marks)
{
    struct in_flight_entry *entry = entry_of(gate, stream);
    if (!entry)
        return;
    in_flight_entry_count(entry);
    if (!marks)
        return;
    if (entry->left > 1 && stream != CU_STREAM_PER_THREAD &&
        atomic_load_explicit(&gate->captures, memory_order_relaxed) == 0) {
        entry->left--;
        return;
    }
    bool sampled = entry->sampling;
    cover_own(entry);
    entry->sampling = false;
    entry->left = calls_to_mark(entry, sampled);
}

/* Whether a thread may put something more before the stream. Under the entry's lock. */
static bool has_room(const struct gate *gate, const struct in_flight_entry *entry, uint64_t now_ns)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    bool known = work_estimate_piece_ns(&entry->estimate) > 0;
    return marks == 0 || atomic_load_explicit(&entry->stuck, memory_order_relaxed) ||
           (marks < (known ? IN_FLIGHT_MARKS - 1 : 2) && left_ns(entry, now_ns) < ahead_ns(gate));
}

bool in_flight_is_full(struct gate *gate, CUstream stream)
{
    struct in_flight_entry *entry = entry_of(gate, stream);
    if (!entry || !is_covered(entry) || atomic_load_explicit(&entry->marks, memory_order_relaxed) == 0)
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
    uint64_t left = left_ns(entry, now_ns), enough = ahead_ns(gate);
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
    for (bool watched = false;; watched = true) {
        guard_lock(&entry->lock);
        settle(gate, entry, watched);
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
            atomic_store_explicit(&gate->ahead_ns,
                                  work_estimate_ahead(ahead_ns(gate), ahead_least_ns(gate), marks == 0),
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
    entry->left = work_estimate_chunk(&entry->estimate);
}

void in_flight_cover_own(void)
{
    for (struct in_flight_entry *entry = gate_self.entries; entry; entry = entry->next) {
        if (atomic_load_explicit(&entry->stream, memory_order_relaxed) != CU_STREAM_PER_THREAD ||
            is_covered(entry) || in_flight_is_capturing(CU_STREAM_PER_THREAD))
            continue;
        cover_own(entry);
    }
}

/* --- All of the process's -------------------------------------------------------------------------- */

void in_flight_cover_all(struct gate *gate)
{
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
        if (stream && !is_covered(entry) && !in_flight_is_capturing(stream) &&
            (stream != CU_STREAM_PER_THREAD ||
             atomic_load_explicit(&entry->tid, memory_order_relaxed) ==
                 atomic_load_explicit(&gate_self.thread->tid, memory_order_relaxed)))
            cover_other(entry);
    }
    own_calls_end(&calls);
}

/* Under both locks, in the entry's context. */
static bool is_finished(struct gate *gate, struct in_flight_entry *entry)
{
    settle(gate, entry, false);
    if (atomic_load_explicit(&entry->marks, memory_order_relaxed))
        return false;
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    if (submitted == atomic_load_explicit(&entry->covered, memory_order_relaxed))
        return true;
    if (atomic_load_explicit(&gate->captures, memory_order_relaxed) || !real(cuStreamQuery))
        return false; /* asking might end a capture */
    /* Another thread's default stream has no name: the legacy stream waits for it. */
    if (stream && real(cuStreamQuery)(stream == CU_STREAM_PER_THREAD ? CU_STREAM_LEGACY : stream) ==
                      CUDA_ERROR_NOT_READY)
        return false;
    count_done(entry, submitted - atomic_load_explicit(&entry->covered, memory_order_relaxed), 0, false);
    atomic_store_explicit(&entry->covered, submitted, memory_order_relaxed);
    return true;
}

static bool ask_entry(struct gate *gate, struct in_flight_entry *entry)
{
    if (!is_open(entry))
        return true;
    /* As in cover_other(). */
    if (!guard_trylock(&entry->lock))
        return false;
    bool pushed = own_calls_push(context_in(entry));
    bool finished = !pushed || is_finished(gate, entry); /* a context that has gone has nothing to do */
    if (pushed)
        own_calls_pop();
    guard_unlock(&entry->lock);
    return finished;
}

void in_flight_look_at_own(struct gate *gate)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&gate->lock);
    for (struct in_flight_entry *entry = gate_self.entries; entry; entry = entry->next)
        ask_entry(gate, entry);
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
}

bool in_flight_has_work(struct gate *gate)
{
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (!is_open(entry))
            continue;
        if (!guard_trylock(&entry->lock))
            return true;
        bool has_work = pieces_in(entry) > 0;
        guard_unlock(&entry->lock);
        if (has_work)
            return true;
    }
    return false;
}

/* Before the agent asks the driver of its own accord. False, with nothing begun, once the process ends. */
static bool begin_asking(struct gate *gate, struct own_calls *calls)
{
    guard_lock(&gate->lock);
    if (atomic_load_explicit(&gate->ended, memory_order_relaxed)) { /* under the lock: gate_end() */
        guard_unlock(&gate->lock);
        return false;
    }
    own_calls_begin(calls, NULL);
    return true;
}

static void end_asking(struct gate *gate, struct own_calls *calls)
{
    own_calls_end(calls);
    guard_unlock(&gate->lock);
}

bool in_flight_is_finished(struct gate *gate)
{
    bool finished = true;
    struct own_calls calls;
    if (gate_is_loading(gate))
        return !in_flight_has_work(gate); /* who asks now may wait for as long as that takes */
    if (!begin_asking(gate, &calls))
        return true;
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count && finished; i++)
        finished = ask_entry(gate, &gate->entries[i]);
    end_asking(gate, &calls);
    return finished;
}

uint64_t in_flight_left_ns(struct gate *gate)
{
    uint64_t most_ns = 0, now_ns = monotonic_ns();
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (!is_open(entry))
            continue;
        uint64_t piece_ns = work_estimate_piece_ns(&entry->estimate);
        if (!guard_trylock(&entry->lock))
            return UINT64_MAX;
        bool has_work = pieces_in(entry) > 0;
        if (!has_work || !piece_ns || atomic_load_explicit(&entry->stuck, memory_order_relaxed)) {
            guard_unlock(&entry->lock);
            if (has_work)
                return UINT64_MAX;
            continue;
        }
        uint64_t unmarked = atomic_load_explicit(&entry->submitted, memory_order_relaxed) -
                            atomic_load_explicit(&entry->covered, memory_order_relaxed);
        uint64_t entry_ns = left_ns(entry, now_ns) + unmarked * piece_ns;
        guard_unlock(&entry->lock);
        most_ns = entry_ns > most_ns ? entry_ns : most_ns;
    }
    return most_ns;
}

uint64_t in_flight_submitted(struct gate *gate)
{
    uint64_t sum = 0;
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++)
        sum += atomic_load_explicit(&gate->entries[i].submitted, memory_order_relaxed);
    return sum;
}

/* What an entry has to tell, with what is reached by now. Under its lock. */
static void take_counts(struct gate *gate, struct in_flight_entry *entry, struct in_flight_done *done)
{
    if (!gate_is_loading(gate) && atomic_load_explicit(&entry->marks, memory_order_relaxed) &&
        own_calls_push(context_in(entry))) {
        settle(gate, entry, false);
        own_calls_pop();
    }
    struct in_flight_counts counts = entry->counts;
    uint64_t calls = counts.chained + counts.sampled + counts.others;
    if (!calls)
        return;
    if (counts.sampled)
        entry->sample_ns = counts.sampled_ns / counts.sampled;
    else if (!entry->sample_ns)
        entry->sample_ns = work_estimate_piece_ns(&entry->estimate);
    entry->counts = (struct in_flight_counts){0};
    done->calls += calls;
    done->ns += counts.chained_ns + counts.sampled_ns + counts.others * entry->sample_ns;
    done->streams++;
}

struct in_flight_done in_flight_take_done(struct gate *gate)
{
    struct in_flight_done done = {0};
    struct own_calls calls;
    if (!begin_asking(gate, &calls))
        return done;
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (!guard_trylock(&entry->lock))
            continue; /* next time */
        take_counts(gate, entry, &done);
        guard_unlock(&entry->lock);
    }
    end_asking(gate, &calls);
    return done;
}

/* Under the gate's lock. */
static void drop_capture(struct gate *gate, CUstream stream, CUcontext context)
{
    for (unsigned i = 0; i < GATE_CAPTURES; i++) {
        struct gate_capture *capture = &gate->capturing[i];
        if (!capture->stream || (capture->stream != stream && capture->context != context))
            continue;
        *capture = (struct gate_capture){0};
        atomic_fetch_sub_explicit(&gate->captures, 1, memory_order_relaxed);
    }
}

void in_flight_forget_stream(struct gate *gate, CUstream stream)
{
    if (!stream || is_default(stream))
        return;
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    bool capturing = in_flight_is_capturing(stream);
    guard_lock(&gate->lock);
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (atomic_load_explicit(&entry->stream, memory_order_relaxed) != stream)
            continue;
        if (!capturing)
            cover_other(entry); /* what is before it goes on without it */
        atomic_store_explicit(&entry->covered, atomic_load_explicit(&entry->submitted, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&entry->stream, NULL, memory_order_relaxed);
    }
    drop_capture(gate, stream, NULL);
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
}

void in_flight_forget_context(struct gate *gate, CUcontext context)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    guard_lock(&gate->lock);
    bool pushed = own_calls_push(context);
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (context_in(entry) != context)
            continue;
        guard_lock(&entry->lock);
        drop_events(entry);
        atomic_store_explicit(&entry->context, NULL, memory_order_relaxed);
        atomic_store_explicit(&entry->covered, atomic_load_explicit(&entry->submitted, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&entry->stream, NULL, memory_order_relaxed);
        guard_unlock(&entry->lock);
    }
    if (pushed)
        own_calls_pop();
    drop_capture(gate, NULL, context);
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
    gate_forget_functions(gate);
}
