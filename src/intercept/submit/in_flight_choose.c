/* in_flight_choose.c - which calls are measured, and how many are made until the next mark. */
#include "intercept/submit/in_flight_entry.h"

/* If calls are rare, about one in this time is measured, so that each report covers some. */
#define SAMPLE_EVERY_NS UINT64_C(5000000)
/* So many times more calls are measured if several streams have work, since that shows too how often they work side by side. */
#define MORE_IF_PARALLEL 4u
/* A stream that is idle only at the beginning of a turn has no call at which it is idle twice in this time. */
#define IDLE_OFTEN_US 10000u
/* The divisor for a small part of a number of calls. */
#define PART_OF_BURST 4u
/* A measured burst has this many marks, and one more each time that its number of calls doubles. A thread that has made more
 * than LONGER_BURST times the calls of its last burst counts as one that does not wait, and so does one that has not waited
 * for LONGEST_BURST_NS. */
#define MARKS_OF_BURST 2u
#define LONGER_BURST 4u
#define LONGEST_BURST_NS UINT64_C(50000000)
/* Work between two marks while the daemon is learning what calls take. Recording an event takes a fraction of it. Less work is
 * never between two marks on average: its time would hardly show beside theirs, and marks would take as long as it. */
#define MEASURED_NS UINT64_C(50000)
/* Work between two marks if calls differ: the long calls may be rare. Recording a mark takes a hundredth of it; in company,
 * where a mark may wait for a slice of the GPU's time, more. */
#define VARIED_NS UINT64_C(200000)
#define VARIED_BESIDE_NS UINT64_C(1000000)

/* How many calls come in SAMPLE_EVERY_NS, as counted in the last stretch that was at least so long. If more come in the
 * current stretch, a part of these counts at once. */
static uint32_t recent_calls(struct in_flight_entry *entry)
{
    uint64_t now_ns = monotonic_ns(), passed_ns = now_ns - entry->counted_ns;
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    uint64_t calls = submitted - entry->counted_at;
    if (passed_ns >= SAMPLE_EVERY_NS) {
        entry->recent_calls = calls * SAMPLE_EVERY_NS / passed_ns;
        entry->counted_at = submitted;
        entry->counted_ns = now_ns;
        calls = 0;
    }
    calls = calls / PART_OF_BURST > entry->recent_calls ? calls / PART_OF_BURST : entry->recent_calls;
    return calls < 1 ? 1 : calls < IN_FLIGHT_CALLS_MOST ? (uint32_t)calls : IN_FLIGHT_CALLS_MOST;
}

/* How many calls of `each_ns`, which 0 does not tell, make `ns` of work; up to `most`. */
static uint32_t calls_for(uint64_t each_ns, uint64_t ns, uint32_t most)
{
    uint64_t calls = each_ns ? ns / each_ns : most;
    return calls < 1 ? 1 : calls < most ? (uint32_t)calls : most;
}

/* How long one of the calls that differ takes on average. The estimate follows the last few of them, and copies. */
static uint64_t mean_ns(const struct in_flight_entry *entry)
{
    uint64_t piece_ns = work_estimate_piece_ns(&entry->estimate),
             mean_ns = atomic_load_explicit(&entry->mean_ns, memory_order_relaxed);
    return mean_ns > piece_ns ? mean_ns : piece_ns;
}

static uint32_t draw(struct in_flight_entry *entry)
{
    entry->chance = entry->chance * 1664525u + 1013904223u;
    return entry->chance >> 8;
}

/* Whether streams work side by side, as far as is known. */
static bool is_parallel(const struct gate *gate)
{
    return atomic_load_explicit(&gate->parallel, memory_order_relaxed) ||
           (atomic_load_explicit(&gate->measures, memory_order_relaxed) &&
            atomic_load_explicit(&gate->entry_count, memory_order_relaxed) > 1);
}

/* Whether `calls` of `of_calls` are to be measured now. In slices of time that chance chooses, if several streams have work:
 * for all streams in the same slices, so that what they do at the same time is measured together. */
static bool is_chosen(struct gate *gate, struct in_flight_entry *entry, uint64_t calls, uint64_t of_calls)
{
    uint64_t chance = calls < of_calls ? calls * IN_FLIGHT_CHANCES / of_calls : IN_FLIGHT_CHANCES;
    if (!is_parallel(gate))
        return draw(entry) < chance;
    in_flight_note_chance(gate, chance < 1 ? 1 : (uint32_t)chance);
    return in_flight_slice(monotonic_ns()) < chance;
}

/* How many calls there are to be between two marks. `grows`: more for each two marks that are not reached, so that there is
 * always room for another mark. */
static uint32_t calls_apart(const struct gate *gate, struct in_flight_entry *entry, bool grows)
{
    uint32_t chunk = work_estimate_chunk(&entry->estimate), calls = recent_calls(entry);
    if (atomic_load_explicit(&gate->parallel, memory_order_relaxed))
        calls = 1 + calls / MORE_IF_PARALLEL;
    bool has_company = atomic_load_explicit(&gate->has_company, memory_order_relaxed);
    if (atomic_load_explicit(&gate->measures, memory_order_relaxed))
        calls = calls_for(work_estimate_piece_ns(&entry->estimate), MEASURED_NS, calls);
    else if (atomic_load_explicit(&entry->varies, memory_order_relaxed))
        calls = calls_for(mean_ns(entry), has_company ? VARIED_BESIDE_NS : VARIED_NS, calls);
    uint64_t each_ns = mean_ns(entry);
    uint32_t least = each_ns ? calls_for(each_ns, MEASURED_NS, IN_FLIGHT_CALLS_MOST) : 1;
    calls = calls > least ? calls : least;
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

/* Of a stream that the thread does not wait for: whether all calls are measured now. */
static void find_slice(struct gate *gate, struct in_flight_entry *entry, bool sampled)
{
    uint32_t now_us = (uint32_t)(entry->recorded_ns / 1000);
    bool is_idle_often = sampled && now_us - entry->idle_us < IDLE_OFTEN_US;
    entry->idle_us = sampled ? now_us : entry->idle_us;
    entry->is_in_slice = (is_idle_often || entry->is_in_slice) && is_parallel(gate) &&
                         is_chosen(gate, entry, 1, calls_apart(gate, entry, false));
}

/* How many calls until the next mark where all are measured: one, or more once half of the ring is used, so that the
 * thread need not wait for room in it. */
static uint32_t calls_in_slice(const struct in_flight_entry *entry)
{
    uint32_t marks = atomic_load_explicit(&entry->marks, memory_order_relaxed);
    return marks < IN_FLIGHT_MARKS / 2 ? 1 : 2u << (marks - IN_FLIGHT_MARKS / 2);
}

uint32_t in_flight_calls_to_mark(struct gate *gate, struct in_flight_entry *entry, bool sampled)
{
    uint32_t chunk = work_estimate_chunk(&entry->estimate), made = in_flight_calls_in_burst(entry);
    if (made > LONGER_BURST * (entry->burst_calls + 1) ||
        monotonic_ns() - entry->burst_began_ns > LONGEST_BURST_NS) /* the thread no longer waits */
        entry->burst = IN_FLIGHT_BURST_UNKNOWN;
    if (entry->burst == IN_FLIGHT_BURST_SKIPPED)
        return chunk;
    if (atomic_load_explicit(&gate->only_bounds, memory_order_relaxed))
        return chunk;
    if (entry->burst == IN_FLIGHT_BURST_MEASURED) {
        uint32_t calls = calls_in_time(entry, made);
        return calls < chunk ? calls : chunk;
    }
    find_slice(gate, entry, sampled);
    if (entry->is_in_slice)
        return calls_in_slice(entry);
    uint32_t calls = calls_apart(gate, entry, !sampled);
    return !sampled || calls == 1 ? calls : 1 + draw(entry) % (2 * calls - 1);
}

void in_flight_begin_burst(struct gate *gate, struct in_flight_entry *entry, bool has_waited)
{
    uint32_t calls = in_flight_calls_in_burst(entry), marks = MARKS_OF_BURST;
    entry->burst_from = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    if (calls == 0)
        return;
    atomic_store_explicit(&entry->bursts, atomic_load_explicit(&entry->bursts, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    for (uint32_t left = calls; left > 1; left /= 2)
        marks++;
    in_flight_end_quick(entry);
    entry->is_behind_copy = entry->is_in_slice = entry->is_put_off = entry->sampling = false;
    entry->is_parted = !has_waited;
    entry->burst_calls = calls;
    entry->burst_began_ns = monotonic_ns();
    entry->left = 1;
    bool is_measured = !atomic_load_explicit(&gate->only_bounds, memory_order_relaxed) &&
                       is_chosen(gate, entry, calls, (uint64_t)calls_apart(gate, entry, false) * marks / 2);
    entry->burst = is_measured ? IN_FLIGHT_BURST_MEASURED : IN_FLIGHT_BURST_SKIPPED;
    if (entry->burst == IN_FLIGHT_BURST_MEASURED)
        return;
    entry->left = work_estimate_chunk(&entry->estimate);
    if (has_waited)
        in_flight_begin_quick(entry);
}
