/* in_flight_all.c - questions about all entries of the process, and what becomes of entries when streams and contexts are
 * destroyed. */
#include "intercept/submit/in_flight_entry.h"

#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

/* Whether other streams than the legacy one of the entry's context have work that is not known to be done. */
static bool has_work_beside(const struct gate *gate, const struct in_flight_entry *entry)
{
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    CUcontext context = in_flight_entry_context(entry);
    for (uint32_t i = 0; i < count; i++) {
        const struct in_flight_entry *other = &gate->entries[i];
        if (atomic_load_explicit(&other->stream, memory_order_relaxed) != CU_STREAM_LEGACY &&
            in_flight_entry_context(other) == context && in_flight_entry_is_open(other))
            return true;
    }
    return false;
}

bool in_flight_may_mark(const struct gate *gate, const struct in_flight_entry *entry)
{
    return !entry || atomic_load_explicit(&entry->stream, memory_order_relaxed) != CU_STREAM_LEGACY ||
           (!atomic_load_explicit(&gate->has_host_functions, memory_order_relaxed) &&
            !has_work_beside(gate, entry));
}

void in_flight_look_at_legacy(struct gate *gate)
{
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    for (uint32_t i = 0; i < count; i++)
        if (atomic_load_explicit(&gate->entries[i].stream, memory_order_relaxed) == CU_STREAM_LEGACY)
            in_flight_entry_ask(gate, &gate->entries[i]);
    own_calls_end(&calls);
}

void in_flight_follow_all(struct gate *gate)
{
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        CUstream stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
        if (stream && !in_flight_entry_is_covered(entry) && !in_flight_is_capturing(stream) &&
            (stream != CU_STREAM_PER_THREAD || in_flight_entry_is_own(entry)) &&
            in_flight_may_mark(gate, entry))
            in_flight_entry_follow_other(gate, entry);
    }
    own_calls_end(&calls);
}

bool in_flight_has_work(struct gate *gate)
{
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (!in_flight_entry_is_open(entry))
            continue;
        if (!guard_trylock(&entry->lock))
            return true;
        bool has_work = in_flight_entry_pieces(entry) > 0;
        guard_unlock(&entry->lock);
        if (has_work)
            return true;
    }
    return false;
}

/* Before the agent asks the driver. False, with nothing begun: the process ends. */
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

/* Of an entry with work that is not done: whether it has more than copies. If its owner holds the lock, it is submitting. */
static bool is_computing(struct in_flight_entry *entry)
{
    if (!guard_trylock(&entry->lock))
        return true;
    bool is_computing = in_flight_entry_computing(entry) > 0;
    guard_unlock(&entry->lock);
    return is_computing;
}

uint32_t in_flight_streams(struct gate *gate, uint32_t most, uint32_t *computing)
{
    uint32_t streams = 0;
    struct own_calls calls;
    *computing = 0;
    if (gate_is_loading(gate)) /* to ask now could take as long as the loading */
        return *computing = in_flight_has_work(gate);
    if (!begin_asking(gate, &calls))
        return 0;
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count && streams < most; i++) {
        if (in_flight_entry_ask(gate, &gate->entries[i]))
            continue;
        streams++;
        *computing += is_computing(&gate->entries[i]);
    }
    end_asking(gate, &calls);
    return streams;
}

bool in_flight_is_finished(struct gate *gate)
{
    uint32_t computing;
    return in_flight_streams(gate, 1, &computing) == 0;
}

bool in_flight_is_surely_finished(void)
{
    struct gate *gate = gate_of();
    return gate && in_flight_is_finished(gate) &&
           in_flight_doubts() == atomic_load_explicit(&gate->proven_doubts, memory_order_relaxed);
}

uint64_t in_flight_doubts(void)
{
    const struct gate *gate = gate_of();
    return gate ? atomic_load_explicit(&gate->doubts, memory_order_acquire) : 0;
}

void in_flight_note_proof(uint64_t doubts)
{
    struct gate *gate = gate_of();
    if (!gate)
        return;
    guard_lock(&gate->lock);
    if (atomic_load_explicit(&gate->proven_doubts, memory_order_relaxed) < doubts)
        atomic_store_explicit(&gate->proven_doubts, doubts, memory_order_relaxed);
    guard_unlock(&gate->lock);
}

bool in_flight_has_captures(void)
{
    const struct gate *gate = gate_of();
    return gate && atomic_load_explicit(&gate->captures, memory_order_relaxed) != 0;
}

CUresult in_flight_follow_context(CUcontext context, CUevent event,
                                  CUresult (*record)(CUcontext context, CUevent event))
{
    struct gate *gate = gate_of();
    if (!gate)
        return own_calls_has_captured() ? CUDA_ERROR_NOT_SUPPORTED : record(context, event);
    guard_lock(&gate->lock); /* gate_capture_begin() */
    CUresult result =
        in_flight_has_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : record(context, event);
    guard_unlock(&gate->lock);
    return result;
}

uint64_t in_flight_left_ns(struct gate *gate)
{
    uint64_t most_ns = 0, now_ns = monotonic_ns();
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (!in_flight_entry_is_open(entry))
            continue;
        uint64_t piece_ns = work_estimate_piece_ns(&entry->estimate);
        if (!guard_trylock(&entry->lock))
            return UINT64_MAX;
        bool has_work = in_flight_entry_pieces(entry) > 0;
        if (!has_work || !piece_ns || atomic_load_explicit(&entry->stuck, memory_order_relaxed)) {
            guard_unlock(&entry->lock);
            if (has_work)
                return UINT64_MAX;
            continue;
        }
        uint64_t entry_ns =
            in_flight_entry_left_ns(entry, now_ns) + in_flight_entry_unmarked(entry) * piece_ns;
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

/* A report is a guess if it has more than GUESS_CALLS unmeasured calls for each measured one, and if the measured calls took
 * more than GUESS_TIMES as long on average as the shortest of them. */
#define GUESS_CALLS 8u
#define GUESS_TIMES 4u
/* After so many measured calls, earlier ones count half. */
#define LATE_CALLS 64.0
/* Calls differ if one took less than this part of the mean, and this much less besides, since a single call is not measured more
 * exactly. They are then taken to differ for so many reports. */
#define ALIKE_PART 0.8
#define NOISE_NS 10000.0
#define VARIES_REPORTS 500u
/* Streams are taken to work side by side for so many more takes. */
#define PARALLEL_TAKES 50u

static void note_late(struct in_flight_late *late, struct in_flight_told told)
{
    if (late->calls > LATE_CALLS)
        *late = (struct in_flight_late){late->calls / 2, late->ns / 2, late->waited_ns / 2};
    late->calls += (double)told.calls;
    late->ns += (double)told.ns;
    late->waited_ns += (double)told.waited_ns;
}

static double mean_ns(const struct in_flight_late *late, double unknown_ns)
{
    return late->calls > 0 ? late->ns / late->calls : unknown_ns;
}

static double mean_waited_ns(const struct in_flight_late *late, double unknown_ns)
{
    return late->calls > 0 ? late->waited_ns / late->calls : unknown_ns;
}

/* Calls that differed once are taken to differ for many reports: the long calls may be so rare that chance measures hardly
 * any. */
static void note_variety(struct in_flight_entry *entry, const struct in_flight_counts *counts)
{
    double mean = mean_ns(&entry->late[IN_FLIGHT_WITHIN], mean_ns(&entry->late[IN_FLIGHT_FIRST], 0));
    uint16_t varies = atomic_load_explicit(&entry->varies, memory_order_relaxed);
    if (counts->measured && (double)counts->least_ns + NOISE_NS < ALIKE_PART * mean)
        varies = VARIES_REPORTS;
    else if (varies)
        varies--;
    atomic_store_explicit(&entry->varies, varies, memory_order_relaxed);
    atomic_store_explicit(&entry->mean_ns, (uint64_t)mean, memory_order_relaxed);
}

static struct in_flight_told told_of_all(const struct in_flight_counts *counts)
{
    struct in_flight_told sum = {0};
    for (unsigned i = 0; i < IN_FLIGHT_PLACES; i++) {
        sum.calls += counts->told[i].calls;
        sum.ns += counts->told[i].ns;
        sum.waited_ns += counts->told[i].waited_ns;
    }
    return sum;
}

/* How many of the calls that were not measured are the first of a burst. */
static uint64_t other_firsts(const struct in_flight_entry *entry, const struct in_flight_counts *counts)
{
    uint64_t bursts = atomic_load_explicit(&entry->bursts, memory_order_relaxed) - entry->bursts_told;
    uint64_t told = counts->told[IN_FLIGHT_FIRST].calls + counts->told[IN_FLIGHT_AFRESH].calls;
    uint64_t firsts = bursts > told ? bursts - told : 0;
    return firsts < counts->others ? firsts : counts->others;
}

/* What the calls that were not measured took. */
static struct in_flight_told told_of_others(const struct in_flight_entry *entry,
                                            const struct in_flight_counts *counts)
{
    const struct in_flight_late *first = &entry->late[IN_FLIGHT_FIRST],
                                *within = &entry->late[IN_FLIGHT_WITHIN];
    double unknown_ns = (double)work_estimate_piece_ns(&entry->estimate);
    double firsts = (double)other_firsts(entry, counts), others = (double)counts->others - firsts;
    double ns = firsts * mean_ns(first, mean_ns(within, unknown_ns)) +
                others * mean_ns(within, mean_ns(first, unknown_ns));
    double waited_ns = firsts * mean_waited_ns(first, mean_waited_ns(within, 0)) +
                       others * mean_waited_ns(within, mean_waited_ns(first, 0));
    return (struct in_flight_told){counts->others, (uint64_t)ns, (uint64_t)waited_ns};
}

/* Under the entry's lock: add what the entry has counted, up to the marks that are reached by now, to `done`. */
static void take_counts(struct gate *gate, struct in_flight_entry *entry, struct in_flight_done *done)
{
    if (!gate_is_loading(gate) && atomic_load_explicit(&entry->marks, memory_order_relaxed) &&
        own_calls_push(in_flight_entry_context(entry))) {
        in_flight_settle(gate, entry, false);
        own_calls_pop();
    }
    struct in_flight_counts counts = entry->counts;
    struct in_flight_told told = told_of_all(&counts);
    uint64_t calls = told.calls + counts.others;
    done->streams += calls || in_flight_entry_computing(entry);
    if (!calls)
        return;
    if (counts.measured && (!done->measured || counts.least_ns < done->least_ns))
        done->least_ns = counts.least_ns;
    done->measured += counts.measured;
    done->unmeasured += counts.others;
    done->is_guess |= told.calls && counts.others > GUESS_CALLS * told.calls &&
                      told.ns - told.waited_ns > GUESS_TIMES * counts.least_ns * told.calls;
    for (unsigned i = 0; i < IN_FLIGHT_AFRESH; i++)
        note_late(&entry->late[i], counts.told[i]);
    note_variety(entry, &counts);
    done->calls += calls;
    struct in_flight_told others = told_of_others(entry, &counts);
    done->ns += told.ns + others.ns;
    done->begun_ns += told.ns - told.waited_ns + others.ns - others.waited_ns;
    entry->counts = (struct in_flight_counts){0};
    entry->bursts_told = atomic_load_explicit(&entry->bursts, memory_order_relaxed);
}

static void note_parallel(struct gate *gate, uint32_t streams)
{
    uint16_t parallel = atomic_load_explicit(&gate->parallel, memory_order_relaxed);
    parallel = streams > 1 ? PARALLEL_TAKES : parallel ? (uint16_t)(parallel - 1) : 0;
    atomic_store_explicit(&gate->parallel, parallel, memory_order_relaxed);
}

/* From now on, times are kept of the slices in which all streams' calls were measured since the last take. */
static void share_chance(struct gate *gate)
{
    uint32_t least = atomic_exchange_explicit(&gate->least_chance, 0, memory_order_relaxed);
    atomic_store_explicit(&gate->shared_chance, least ? least : IN_FLIGHT_CHANCES, memory_order_relaxed);
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
    note_parallel(gate, done.streams);
    share_chance(gate);
    uint64_t any_ns = in_flight_take_times(&gate->times, done.ns);
    done.ns = done.streams > 1 ? any_ns : done.ns;
    done.begun_ns = done.begun_ns < done.ns ? done.begun_ns : done.ns;
    end_asking(gate, &calls);
    return done;
}

void in_flight_forget_late(struct gate *gate)
{
    in_flight_change_times(&gate->times);
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (!guard_trylock(&entry->lock))
            continue; /* this entry keeps what it measured */
        in_flight_forget_late_of(entry);
        guard_unlock(&entry->lock);
    }
}

/* Under the gate's lock. */
static void drop_capture(struct gate *gate, CUstream stream, CUcontext context)
{
    for (unsigned i = 0; i < GATE_CAPTURES; i++) {
        struct gate_capture *capture = &gate->capturing[i];
        if (!capture->stream || (capture->stream != stream && (!context || capture->context != context)))
            continue;
        *capture = (struct gate_capture){0};
        atomic_fetch_sub_explicit(&gate->captures, 1, memory_order_relaxed);
    }
}

void in_flight_forget_stream(struct gate *gate, CUstream stream)
{
    if (!stream || in_flight_is_default(stream))
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
            in_flight_entry_follow_other(gate, entry); /* the work goes on after the stream is destroyed */
        if (!in_flight_entry_is_followed(entry))
            atomic_store_explicit(&entry->covered,
                                  atomic_load_explicit(&entry->submitted, memory_order_relaxed),
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
    in_flight_forget_clock(&gate->times, context);
    uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        if (in_flight_entry_context(entry) != context)
            continue;
        guard_lock(&entry->lock);
        in_flight_entry_drop_events(entry);
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
}
