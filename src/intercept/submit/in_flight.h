/* in_flight.h - how much a process has before the GPUs, and when it is done.
 *
 * While the gate is paced, every thread counts what it submits to each stream, and after about 0.5 ms of work
 * records an event there: a mark. How many calls that are follows from how long they take, by the GPU's own
 * clock from mark to mark. A thread that would begin another such chunk while there are more than 1.5 ms of work
 * before the stream waits, outside. So a revoked lease ends soon, while the GPU always has the next piece before
 * it, also when a thread is late by a millisecond. Where threads are later than that, as on a machine whose CPUs
 * are all busy, it becomes more, up to 6 ms; and where a thread that had waited does something else for so long that
 * the GPU has nothing to do meanwhile, up to 12 ms.
 *
 * Marks also tell how long the process had work before the GPU. From a mark to the next, where that one was
 * recorded before the first was reached, the GPU had no gap. Where the stream is idle between calls, one call
 * chosen by chance has a mark right before it and one right after: the others are taken to take as long as such
 * calls do on average. Where calls come seldom that is one in 5 ms, so that each report tells of some.
 *
 * Most programs wait for their stream again and again, and what they give it in between is alike each time: a burst, the first call of
 * which may take a hundredth of what the last one takes. Whoever measured some calls of it would take the others to be like them. So all
 * calls of a burst are measured, with marks ever further apart, or none of them, by chance. A burst ends where the thread waits, or asks
 * and learns that all is done, or puts a function of the host in between. A copy from or to the host is not a call of it, as it takes no
 * GPU time from others: in a burst that is measured, there are marks between copies and what is behind them.
 *
 * What is not marked is found done by asking the stream itself (cuStreamQuery). The agent never puts anything
 * into a stream of the program: an event in the legacy stream would make other streams wait for each other,
 * which a program whose streams wait for values of each other could not survive.
 *
 * While a capture is open, nobody asks the streams, since one of them may be captured: the thread that submits puts an
 * event without timing behind each call, one for the entry, recorded again and again. About a thread's own default stream
 * no other thread can ask: the legacy stream, which waits for it, is asked instead. A thread that waits at the closed
 * gate has put such an event there. All of this stands between
 * cuThreadExchangeStreamCaptureMode(RELAXED) and its restore. */
#pragma once

#include "base/clock.h"
#include "intercept/submit/gate_area.h"

/* --- For threads that submit (gate.c) -------------------------------------------------------------- */

/* Whether this thread's stream has enough before it: then call in_flight_wait(), outside. */
bool in_flight_is_full(struct gate *gate, CUstream stream);
/* Wait until the stream of in_flight_is_full() has room, the gate changes, or it has taken too long. */
void in_flight_wait(struct gate *gate);

/* Inside, after in_flight_is_full(): the call that follows, of several pieces of work or of one, may be one to measure by
 * itself. Not where code may be loaded in it, which is not the GPU's work. */
void in_flight_begin_sample(struct gate *gate, bool has_pieces);

/* Before the thread waits: in a burst that is measured, what is behind the last mark ends with another one, since the next will be late. */
void in_flight_end_chunk(struct gate *gate, struct in_flight_entry *entry);
/* The same before a copy that is not waited for, where there are other calls behind the last mark, and the other way round. */
void in_flight_begin_part(struct gate *gate, struct in_flight_entry *entry, bool is_copy);

/* A call was made. `marks`: it counts towards a mark; not where it is apart. `what`: enum gate_inside. Inside. */
void in_flight_count(struct gate *gate, CUstream stream, bool marks, uint32_t what);

/* Outside, around a call that waits for this thread's stream; NULL: for the one that it gave work last. The first answers with that,
 * or NULL where there is nothing to do. */
enum in_flight_wait {
    IN_FLIGHT_WAIT_ALL,  /* all that the thread gave the stream is done */
    IN_FLIGHT_WAIT_SOME, /* it may be: the driver is asked */
    IN_FLIGHT_WAIT_HOST, /* the stream waits, for the host */
};
struct in_flight_entry *in_flight_wait_begins(struct gate *gate, CUstream stream);
void in_flight_wait_ended(struct gate *gate, struct in_flight_entry *entry, enum in_flight_wait wait);

/* Note what of this thread's work is done: it is going to load code, and then nobody can ask. */
void in_flight_look_at_own(struct gate *gate);

/* Put an event behind what this thread has submitted to its own default stream, which no other thread can ask about. */
void in_flight_follow_own(struct gate *gate);

/* Before a capture begins: what other threads gave their own default streams, with no event behind it, is waited for, since
 * nobody can ask about it while the capture is open. Not where that takes long. */
void in_flight_wait_for_nameless(struct gate *gate);

/* Whether a stream is being captured; or, of the legacy stream, one that it would wait for: then nothing can
 * be put into it either, and to try would invalidate that capture (cuda.h 13.0, cuStreamIsCapturing). */
bool in_flight_is_capturing(CUstream stream);

void in_flight_thread_ended(int32_t tid);

/* --- For others ------------------------------------------------------------------------------------ */

/* Under the gate's lock: put an event behind all that has none. */
void in_flight_follow_all(struct gate *gate);

/* Whether anything that was submitted is not known to be done. Does not ask the driver. */
bool in_flight_has_work(struct gate *gate);
/* Whether all that was submitted is done. */
bool in_flight_is_finished(struct gate *gate);
/* How many streams have something that is not done, of each thread that uses them; no more than `most`. Of these, `computing` have more
 * than copies from or to the host. */
uint32_t in_flight_streams(struct gate *gate, uint32_t most, uint32_t *computing);

/* How long what was submitted should still take, about; UINT64_MAX where that is not known. */
uint64_t in_flight_left_ns(struct gate *gate);

/* How many calls there were; only differences mean something. */
uint64_t in_flight_submitted(struct gate *gate);

/* What was done since the last question: how many calls, and how long the GPUs had their work, the waiting for
 * others included; copies from and to the host are left out. Streams that work side by side count each for itself: `streams` is how many
 * there were, or still have work. `least_ns`: what a call took at least, of those that were measured, by `measured` marks. `unmeasured` calls
 * are taken to be like those that were measured by themselves; `is_guess`: these are few, and differ. `unreached`: so many more calls
 * are not known to be done. */
struct in_flight_done {
    uint64_t ns, calls;
    uint64_t least_ns, measured;
    uint32_t streams;
    uint64_t unmeasured, unreached;
    bool is_guess;
};
struct in_flight_done in_flight_take_done(struct gate *gate);
/* Calls may take another time from now on, as the neighbours have changed: those that are not measured are not taken to be like those
 * of before. */
void in_flight_forget_late(struct gate *gate);

/* Before the program destroys a stream or a context. */
void in_flight_forget_stream(struct gate *gate, CUstream stream);
void in_flight_forget_context(struct gate *gate, CUcontext context);
