/* in_flight_entry.h - what the files that implement in_flight.h share: entries, their marks, and what marks tell.
 *
 * in_flight.c         what a thread does when it submits work
 * in_flight_choose.c  which calls are measured
 * in_flight_entry.c   which entry belongs to which thread, stream and context
 * in_flight_marks.c   events in streams, and what is learned from them
 * in_flight_times.c   when the streams of the process had work
 * in_flight_all.c     questions about all entries of the process */
#pragma once

#include "intercept/submit/gate_threads.h"
#include "intercept/submit/in_flight.h"

static inline bool in_flight_entry_is_covered(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->covered, memory_order_relaxed) ==
           atomic_load_explicit(&entry->submitted, memory_order_relaxed);
}

/* Whether the entry has calls that are not known to be done, or marks that are not reached. */
static inline bool in_flight_entry_is_open(const struct in_flight_entry *entry)
{
    return !in_flight_entry_is_covered(entry) || atomic_load_explicit(&entry->marks, memory_order_relaxed);
}

/* How many calls are not covered; and how many of these are asynchronous copies. */
static inline uint64_t in_flight_entry_unmarked(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->submitted, memory_order_relaxed) -
           atomic_load_explicit(&entry->covered, memory_order_relaxed);
}

static inline uint64_t in_flight_entry_unmarked_async_copies(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->async_copies.made, memory_order_acquire) -
           atomic_load_explicit(&entry->async_copies.covered, memory_order_relaxed);
}

/* Whether this thread owns the entry. */
static inline bool in_flight_entry_is_own(const struct in_flight_entry *entry)
{
    const struct gate_thread *thread = gate_self.thread;
    return thread && atomic_load_explicit(&entry->tid, memory_order_relaxed) ==
                         atomic_load_explicit(&thread->tid, memory_order_relaxed);
}

static inline CUcontext in_flight_entry_context(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->context, memory_order_relaxed);
}

/* Under the entry's lock: calls that are not measured are no longer taken to be like those measured before. */
static inline void in_flight_forget_late_of(struct in_flight_entry *entry)
{
    for (unsigned i = 0; i < IN_FLIGHT_AFRESH; i++)
        entry->late[i] = (struct in_flight_late){0};
    atomic_store_explicit(&entry->mean_ns, 0, memory_order_relaxed);
}

/* For one in several, chance is a number below this. */
#define IN_FLIGHT_CHANCES (UINT32_C(1) << 24)
#define IN_FLIGHT_SLICE_NS UINT64_C(8000000)
/* The first part of a slice, in which not yet all streams' calls are measured. */
#define IN_FLIGHT_SLICE_FIRST_NS UINT64_C(2000000)
/* Slices that are looked ahead at: what a call does after them is not known to be at the same time as other work. */
#define IN_FLIGHT_SLICES_AHEAD 16u

/* The chance of the slice of time that `now_ns` lies in: a slice of less is measured. By the golden ratio, so that no time is
 * long without a slice of any chance, and slices keep step with no rhythm. */
static inline uint32_t in_flight_slice(uint64_t now_ns)
{
    return (uint32_t)(now_ns / IN_FLIGHT_SLICE_NS) * UINT32_C(2654435769) >> 8;
}

/* For how many ms from `now_ns` on the calls of all streams that work side by side are measured; 0: they are not, or there is no
 * other stream. */
static inline uint16_t in_flight_shared_ms(const struct gate *gate, uint64_t now_ns)
{
    if (atomic_load_explicit(&gate->entry_count, memory_order_relaxed) < 2)
        return 0;
    uint32_t chance = atomic_load_explicit(&gate->shared_chance, memory_order_relaxed),
             least = atomic_load_explicit(&gate->least_chance, memory_order_relaxed);
    chance = least && least < chance ? least : chance;
    if (in_flight_slice(now_ns) >= chance || in_flight_slice(now_ns - IN_FLIGHT_SLICE_FIRST_NS) >= chance)
        return 0;
    uint64_t to_ns = now_ns - now_ns % IN_FLIGHT_SLICE_NS;
    for (unsigned i = 0; i < IN_FLIGHT_SLICES_AHEAD && in_flight_slice(to_ns) < chance; i++)
        to_ns += IN_FLIGHT_SLICE_NS;
    return (uint16_t)((to_ns - now_ns) / 1000000);
}

/* The calls of a stream are measured with this chance. */
static inline void in_flight_note_chance(struct gate *gate, uint32_t chance)
{
    uint32_t least = atomic_load_explicit(&gate->least_chance, memory_order_relaxed);
    if (!least || chance < least)
        atomic_store_explicit(&gate->least_chance, chance, memory_order_relaxed);
}

/* The largest number of calls, which may be doubled for each mark without an overflow. */
#define IN_FLIGHT_CALLS_MOST (UINT32_MAX >> IN_FLIGHT_MARKS)

/* How many calls the burst that goes on has so far. */
static inline uint32_t in_flight_calls_in_burst(const struct in_flight_entry *entry)
{
    uint64_t calls = atomic_load_explicit(&entry->submitted, memory_order_relaxed) - entry->burst_from;
    return calls < IN_FLIGHT_CALLS_MOST ? (uint32_t)calls : IN_FLIGHT_CALLS_MOST;
}

/* The next calls are to take the slow path. */
static inline void in_flight_end_quick(struct in_flight_entry *entry)
{
    entry->left += entry->quick;
    entry->quick = 0;
}

/* All calls before the next mark, except the last, may be quick. */
static inline void in_flight_begin_quick(struct in_flight_entry *entry)
{
    entry->quick = entry->left - 1;
    entry->left = 1;
}

/* The mark before the oldest one that is not reached. */
static inline struct in_flight_mark *in_flight_mark_before(struct in_flight_entry *entry)
{
    return &entry->ring[(entry->first + IN_FLIGHT_MARKS - 1) % IN_FLIGHT_MARKS];
}

/* --- in_flight_choose.c: by the owner ------------------------------------------------------------- */

/* How many calls are to be made until the next mark. If the program leaves its stream idle between calls (`sampled`), chance
 * decides, so that marks do not keep step with the program's own rhythm. */
uint32_t in_flight_calls_to_mark(struct gate *gate, struct in_flight_entry *entry, bool sampled);

/* Begin a burst: up to the thread's next wait, all calls are measured or none, so that each is measured with the same
 * chance, whatever its place. `has_waited`: the stream has nothing before it. */
void in_flight_begin_burst(struct gate *gate, struct in_flight_entry *entry, bool has_waited);

/* --- in_flight_entry.c ----------------------------------------------------------------------------- */

/* This thread's entry for `stream`; NULL: the driver does not know the stream, or all places are taken. */
struct in_flight_entry *in_flight_entry_find(struct gate *gate, CUstream stream);

/* Under the gate's lock. */
void in_flight_entry_drop_events(struct in_flight_entry *entry);

/* How much work a mark is put off for at most; less, if the lease allows less before the stream. */
#define IN_FLIGHT_CHAIN_NS AHEAD_MOST_NS

/* --- in_flight_marks.c: under the entry's lock, except the last three ------------------------------ */

/* Record a mark, in the entry's context. False: the ring is full, or the driver refused the event. */
bool in_flight_mark(struct gate *gate, struct in_flight_entry *entry, CUstream stream);

/* Whether the stream may have nothing to do. While a capture is open it is not asked. */
bool in_flight_entry_may_be_idle(const struct gate *gate, const struct in_flight_entry *entry,
                                 CUstream stream);

/* Whether the newest mark is not reached yet, so that what was submitted since then came in time. */
bool in_flight_entry_is_behind(const struct in_flight_entry *entry);

/* Take out the marks that are reached. `watched`: a moment ago, the oldest was not reached. */
void in_flight_settle(struct gate *gate, struct in_flight_entry *entry, bool watched);

/* `calls` are done. `measured_ns`: how long their work took once the GPU had begun with it; 0: it was not measured. `waited_ns`:
 * for how long it waited before that. */
void in_flight_count_done(struct in_flight_entry *entry, uint64_t calls, uint64_t measured_ns,
                          uint64_t waited_ns, enum in_flight_place place);

/* How many calls are not known to be done (a mark with no call before it counts as none); and the same without copies. */
uint64_t in_flight_entry_pieces(const struct in_flight_entry *entry);
uint64_t in_flight_entry_computing(const struct in_flight_entry *entry);

/* How long the work before the marks should still take. */
uint64_t in_flight_entry_left_ns(const struct in_flight_entry *entry, uint64_t now_ns);

/* How much work a stream may have before it when a thread adds to it; and the least value of that which the lease allows. */
uint64_t in_flight_ahead_ns(const struct gate *gate);
uint64_t in_flight_ahead_least_ns(const struct gate *gate);

/* Whether an event stands behind all that was submitted, so that nobody needs to ask the stream. */
bool in_flight_entry_is_followed(const struct in_flight_entry *entry);

/* Put an event behind what was submitted if none stands there: a mark if one `is_due` and the ring has room, else the event
 * without timing. Called with the entry's lock, which it releases. */
void in_flight_entry_follow(struct gate *gate, struct in_flight_entry *entry, bool is_due);
/* The same, but never a mark, and only if the entry's lock is free: the owner may hold the lock while it records a mark,
 * which takes long if the stream is full. */
void in_flight_entry_follow_other(struct gate *gate, struct in_flight_entry *entry);

/* Under the gate's lock: whether all work of the entry is done. False also if another thread holds the entry's lock. */
bool in_flight_entry_ask(struct gate *gate, struct in_flight_entry *entry);

/* --- in_flight_times.c ----------------------------------------------------------------------------- */

/* From one event that was reached to another, by the GPU's own clock, which is not disturbed when a thread is descheduled for
 * a moment. False: unknown. */
bool in_flight_elapsed_ns(CUevent from, CUevent to, double *ns);

/* Under the entry's lock, in its context: when the GPU reached the mark before the oldest one, which was recorded on an idle
 * stream, and which it has reached by `by_ns`; 0: unknown. May take the event of that mark. */
uint64_t in_flight_reached_idle_ns(struct in_flight_times *times, struct in_flight_entry *entry,
                                   uint64_t by_ns);

/* Under the entry's lock, in its context: the calls of this mark, which is reached by `now_ns`, took the last `measured_ns`
 * before it. May take the event of the mark before, or exchange it. */
void in_flight_note_times(struct in_flight_times *times, struct in_flight_entry *entry,
                          const struct in_flight_mark *mark, uint64_t measured_ns, uint64_t now_ns);

/* The work of all streams since this was last called added up to `told_ns`: for how long any stream had some. */
uint64_t in_flight_take_times(struct in_flight_times *times, uint64_t told_ns);

/* Streams may work at other times from now on. */
void in_flight_change_times(struct in_flight_times *times);

/* In `context`, which the program destroys. */
void in_flight_forget_clock(struct in_flight_times *times, CUcontext context);
