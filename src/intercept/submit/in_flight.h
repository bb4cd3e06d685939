/* in_flight.h - how much work a process has before the GPUs, and when it is done. gate_area.h has the words.
 *
 * How much. While the gate is paced, every thread counts what it submits to each stream, and records an event there, a
 * mark, after about 0.5 ms of work. How many calls that are follows from how long they take from mark to mark, by the
 * GPU's own clock. A thread that would begin another such chunk while the stream has more than 1.5 ms of work before it
 * waits, outside the gate. So a revoked lease ends soon, and still the GPU always has the next piece before it, even if
 * a thread is late by a millisecond. The bound grows in two cases: up to 6 ms if threads wake up later than that, as on
 * a machine whose CPUs are all busy; and up to 12 ms if a thread that had waited for room then does something else for
 * so long that the GPU runs out of work.
 *
 * For how long. If a mark was recorded before the GPU had reached the mark before it, the GPU had no gap between the
 * two. In a stream that is idle between calls, single calls chosen by chance get one mark right before them and one
 * right after. The other calls are taken to be like these on average. Where calls are rare, one is measured about every
 * 5 ms, so that each report covers some. Calls that differ are all measured where that costs little, as they are long on
 * average.
 *
 * Bursts. Most programs wait for their stream again and again, and what they submit in between, a burst, is much the same
 * each time. The first call of a burst may take a hundredth of what the last one takes, so a few measured calls would
 * say nothing about the others. Therefore chance decides whether all calls of a burst are measured, with marks further
 * and further apart, or none of them. A burst ends when the thread waits for its stream, when it asks and learns that
 * all is done, and at a function of the host. A copy from or to the host is not a call of the burst, as it takes no GPU
 * time from others: in a measured burst there are marks between copies and the calls behind them.
 *
 * Overlaps. A kernel may be launched so that it begins before the one before it has ended (programmatic stream serialization), and
 * a mark between the two would keep it from that. So where a stream gets such launches, a mark that is due waits for the
 * next call, and stands before it only if that is not such a launch, or if the stream has nothing to do. Where such launches
 * follow each other for as long as IN_FLIGHT_CHAIN_NS, one has to wait: without any mark, what is before the GPU would not be bounded.
 * While a capture is open, events stand behind all calls nevertheless.
 *
 * Several streams. What they do at the same time counts once. For that their calls are measured in the same slices of time
 * (in_flight_slice()), and marks tell when they were done, by one clock for all (in_flight_times.c).
 *
 * Asking. Work without a mark is found done by asking the stream itself (cuStreamQuery). The agent never puts anything
 * into a stream of the program: an event in the legacy stream would make other streams wait for each other, and a
 * program whose streams wait for values from each other would then hang. No thread can ask about another thread's own
 * default stream: the legacy stream, which waits for it, is asked instead.
 *
 * Captures. While a capture is open, nobody asks the streams, since one of them may be the captured one. Instead the
 * thread that submits puts an event without timing behind each call: one event for each entry, recorded again and again.
 * A thread puts such an event into its own default stream before it waits at the closed gate. All these calls to the
 * driver are made between cuThreadExchangeStreamCaptureMode(RELAXED) and its restore. */
#pragma once

#include "base/clock.h"
#include "intercept/submit/gate_area.h"

/* --- For threads that submit (gate.c) -------------------------------------------------------------- */

/* Whether this thread's stream has enough work before it. If so, go outside and call in_flight_wait(). */
bool in_flight_is_full(struct gate *gate, CUstream stream);
/* Wait until the stream of in_flight_is_full() has room, the gate changes, or its marks have not come in time. */
void in_flight_wait(struct gate *gate);

/* Inside, before in_flight_is_full(): put a mark that was put off, unless the call that follows `overlaps` with what is before
 * it (GATE_OVERLAPS). */
void in_flight_put_what_was_put_off(struct gate *gate, CUstream stream, bool overlaps);

/* Inside, after in_flight_is_full(): if the call that follows is to be measured by itself, record a mark before it. `what`: bits of
 * enum gate_inside. Not for a call in which code may be loaded, as that time is not the GPU's work. */
void in_flight_begin_sample(struct gate *gate, uint32_t what);

/* Before the thread waits: in a measured burst, put a mark behind the calls since the last mark, since the next mark would
 * come too late. */
void in_flight_end_chunk(struct gate *gate, struct in_flight_entry *entry);
/* The same before a copy that the call does not wait for, if there are other calls behind the last mark; and before another
 * call, if there are only copies. */
void in_flight_begin_part(struct gate *gate, struct in_flight_entry *entry, bool is_copy);

/* Inside: a call was made. `marks`: it counts towards a mark, unless it is a synchronous copy. `what`: bits of enum gate_inside. */
void in_flight_count(struct gate *gate, CUstream stream, bool marks, uint32_t what);

/* Outside: around a call that waits for this thread's stream. `stream` NULL: the stream to which the thread submitted last.
 * The first function returns the entry to pass to the second, or NULL if there is nothing to do. */
enum in_flight_wait {
    IN_FLIGHT_WAIT_ALL,     /* the thread has waited for all that it gave the stream */
    IN_FLIGHT_WAIT_CONTEXT, /* it has waited for all streams of its current context */
    IN_FLIGHT_WAIT_DONE,    /* all was done before in_flight_wait_begins() */
    IN_FLIGHT_WAIT_SOME,    /* it may be done: the driver is asked */
    IN_FLIGHT_WAIT_HOST,    /* the stream waits for a function of the host */
};
struct in_flight_entry *in_flight_wait_begins(struct gate *gate, CUstream stream);
void in_flight_wait_ended(struct gate *gate, struct in_flight_entry *entry, enum in_flight_wait wait);

/* Note which of this thread's work is done. The thread calls it before it loads code, since nobody can ask meanwhile. */
void in_flight_look_at_own(struct gate *gate);

/* Put an event behind what this thread has submitted to its own default stream, which no other thread can ask about. */
void in_flight_follow_own(struct gate *gate);

/* Before a capture begins: wait for what other threads gave their own default streams if no event stands behind it, since
 * nobody can ask about it while the capture is open. Waits no longer than 3 ms. */
void in_flight_wait_for_nameless(struct gate *gate);

/* Whether `stream` is being captured. For the legacy stream, also whether a stream is that it would wait for: then nothing
 * can be put into the legacy stream either, and trying to would invalidate that capture (cuda.h 13.0,
 * cuStreamIsCapturing). */
bool in_flight_is_capturing(CUstream stream);

/* The context of the stream; of a default stream, the current one. NULL: there is none. */
CUcontext in_flight_stream_context(CUstream stream);

void in_flight_thread_ended(int32_t tid);

/* --- For others ------------------------------------------------------------------------------------ */

/* Whether a mark may stand in the entry's stream that neither precedes nor follows a call of the program's at once. What is put
 * into the legacy stream waits for all blocking streams of the context, and what they get later waits for it (CUDA programming
 * guide, "Default stream"). So nothing is put there that the program does not put there, if another stream has work, which may
 * wait for something that this thread is about to do. `entry` NULL: true. */
bool in_flight_may_mark(const struct gate *gate, const struct in_flight_entry *entry);

/* Under the gate's lock, before a capture begins: note which work in legacy streams is done. */
void in_flight_look_at_legacy(struct gate *gate);
/* Under the gate's lock: put an event behind all work that has none, where one may stand. */
void in_flight_follow_all(struct gate *gate);

/* Whether there is work that is not known to be done. Does not ask the driver. */
bool in_flight_has_work(struct gate *gate);
/* Whether all that was submitted is done. */
bool in_flight_is_finished(struct gate *gate);
/* How many streams have work that is not done, up to `most`; a stream counts once for each thread that uses it. `computing`:
 * how many of these have more than copies from or to the host. */
uint32_t in_flight_streams(struct gate *gate, uint32_t most, uint32_t *computing);

/* Whether all is done, and known by more than the legacy stream's word for other threads' own default streams. */
bool in_flight_is_surely_finished(void);
/* How often that word was taken. And: all that was done when it had been taken so often is surely done. */
uint64_t in_flight_doubts(void);
void in_flight_note_proof(uint64_t doubts);

/* Whether a capture is open. */
bool in_flight_has_captures(void);
/* Have `record` put an event behind all that the context was given, while no capture is open and none can begin.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: one is open. CUDA_ERROR_NOT_SUPPORTED: one may be, in a process without a gate. */
CUresult in_flight_follow_context(CUcontext context, CUevent event,
                                  CUresult (*record)(CUcontext context, CUevent event));

/* About how long the work in flight should still take; UINT64_MAX: unknown. */
uint64_t in_flight_left_ns(struct gate *gate);

/* How many calls were submitted; only differences mean something. */
uint64_t in_flight_submitted(struct gate *gate);

/* What was done since the last in_flight_take_done(). Copies from and to the host are left out. */
struct in_flight_done {
    /* For how long the GPUs had work, waiting for other sessions included, where the time of streams that work side by side
     * counts once; and how many calls it was. */
    uint64_t ns, calls;
    /* The same without the waiting of calls that the GPU had not begun with. The GPU computed for no longer. */
    uint64_t begun_ns;
    /* The least time that a measured call took, and how many measurements between two marks there were. */
    uint64_t least_ns, measured;
    /* How many streams had work done, or still have some. */
    uint32_t streams;
    /* Of `calls`, those that were not measured and are taken to be like the measured ones. */
    uint64_t unmeasured;
    /* The measured calls were few, and differ. */
    bool is_guess;
};
struct in_flight_done in_flight_take_done(struct gate *gate);
/* Calls may take a different time from now on, since the neighbours have changed: calls that are not measured are no longer
 * taken to be like those measured before, nor at the same time as others as often. */
void in_flight_forget_late(struct gate *gate);

/* Before the program destroys a stream or a context. */
void in_flight_forget_stream(struct gate *gate, CUstream stream);
void in_flight_forget_context(struct gate *gate, CUcontext context);
