/* in_flight_entry.h - what the parts of in_flight.h share: entries, their marks, and what these tell.
 *
 * in_flight.c         what threads do that submit
 * in_flight_entry.c   an entry's place, by thread, stream and context
 * in_flight_marks.c   events in streams, and what is learned from them
 * in_flight_all.c     what is asked about all of the process's entries */
#pragma once

#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

static inline bool in_flight_is_default(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

static inline bool in_flight_entry_is_covered(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->covered, memory_order_relaxed) ==
           atomic_load_explicit(&entry->submitted, memory_order_relaxed);
}

/* Whether anything of it is not known to be done: calls, or marks alone. */
static inline bool in_flight_entry_is_open(const struct in_flight_entry *entry)
{
    return !in_flight_entry_is_covered(entry) || atomic_load_explicit(&entry->marks, memory_order_relaxed);
}

/* Calls that no mark is behind, and that are not known to be done; and how many of these are copies. */
static inline uint64_t in_flight_entry_unmarked(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->submitted, memory_order_relaxed) -
           atomic_load_explicit(&entry->covered, memory_order_relaxed);
}

static inline uint64_t in_flight_entry_unmarked_copies(const struct in_flight_entry *entry)
{
    return atomic_load_explicit(&entry->copies.made, memory_order_acquire) - entry->copies.covered;
}

/* Whether this thread made it. */
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

/* Calls that are not measured are not taken to be like those of before. Under the entry's lock. */
static inline void in_flight_forget_late_of(struct in_flight_entry *entry)
{
    for (unsigned i = 0; i < IN_FLIGHT_AFRESH; i++)
        entry->late[i] = (struct in_flight_late){0};
}

/* --- in_flight_entry.c ----------------------------------------------------------------------------- */

/* This thread's entry for a stream; NULL where the driver knows no such stream, or the places are used up. */
struct in_flight_entry *in_flight_entry_find(struct gate *gate, CUstream stream);

/* Under the gate's lock. */
void in_flight_entry_drop_events(struct in_flight_entry *entry);

/* --- in_flight_marks.c: under the entry's lock, but for the last three -------------------- */

/* Record a mark, in the entry's context. Returns whether there is one now. */
bool in_flight_mark(struct gate *gate, struct in_flight_entry *entry, CUstream stream);

/* Whether the newest mark is not reached yet: what was submitted since then came in time. */
bool in_flight_entry_is_behind(const struct in_flight_entry *entry);

/* Take out the marks that are reached. `watched`: the oldest was not, a moment ago. */
void in_flight_settle(struct gate *gate, struct in_flight_entry *entry, bool watched);

/* Calls are done. `measured_ns`: how long their work took, 0 where nothing tells. */
void in_flight_count_done(struct in_flight_entry *entry, uint64_t calls, uint64_t measured_ns,
                          enum in_flight_place place);

/* Calls that are not known to be done: a mark right before a call stands for none. And without copies. */
uint64_t in_flight_entry_pieces(const struct in_flight_entry *entry);
uint64_t in_flight_entry_computing(const struct in_flight_entry *entry);

/* How long what is marked should still take. */
uint64_t in_flight_entry_left_ns(const struct in_flight_entry *entry, uint64_t now_ns);

/* What a stream may have before it when a thread adds to it; and as little as the lease allows. */
uint64_t in_flight_ahead_ns(const struct gate *gate);
uint64_t in_flight_ahead_least_ns(const struct gate *gate);

/* Whether an event is behind all that was submitted: then nobody needs to ask the stream. */
bool in_flight_entry_is_followed(const struct in_flight_entry *entry);

/* Put an event behind what was submitted, where none is: a mark if one `is_due` and there is room, else the one without
 * timing. With the entry's lock, which it gives back. */
void in_flight_entry_follow(struct gate *gate, struct in_flight_entry *entry, bool is_due);
/* Not a mark, and if the entry's lock can be had: its owner may hold it while it records a mark, which takes long where
 * the stream is full. */
void in_flight_entry_follow_other(struct gate *gate, struct in_flight_entry *entry);

/* Whether all of it is done. Under the gate's lock. */
bool in_flight_entry_ask(struct gate *gate, struct in_flight_entry *entry);
