/* gate.h - the gate: every call that gives the GPU work passes it. In a session whose daemon schedules, the agent
 * (agent/agent.h) opens and closes it.
 *
 *   struct gate *gate = gate_of();
 *   if (!gate)
 *       return real(cuLaunchKernel)(...);
 *   gate_enter(gate, stream);
 *   CUresult result = real(cuLaunchKernel)(...);
 *   gate_leave(gate, stream);
 *
 * A process in no session has no gate. An open gate costs plain stores to the thread's own memory and loads of words
 * that hardly ever change: no locked instruction, no system call. Under a lease that can end it also costs a countdown;
 * two calls in each stretch between marks (in_flight.h) cost more.
 *
 * Closing is safe for this reason: the thread says that it is inside, then reads the gate's word. The agent writes the
 * word, makes every thread of the process pass a barrier (membarrier), then reads which threads are inside. So either
 * the thread sees the word or the agent sees the thread.
 *
 * A launch that loads or compiles code may take tens of milliseconds, in which the GPU has no work of the process. So a
 * thread marks the first launch of each function as one that loads (GATE_LOADS), and the agent does not wait for it
 * before it tells the daemon that the gate is closed. The kernel then runs beside the next session's work: one kernel,
 * once for each function.
 *
 * A call inside another call never waits: what the driver or a callback of the program does inside a hook is part of
 * the outer call. Calls on a stream that is being captured do not wait either, as they give the GPU nothing. They do
 * wait while the process's memory is away, since the driver looks at the addresses that they name. */
#pragma once

#include "base/check.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/submit/gate_threads.h"

/* A handle for `stream` that means the same stream in every form of a call. */
#define GATE_LEGACY(stream) ((stream) ? (stream) : CU_STREAM_LEGACY)
#define GATE_PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* False: the launch of `function` is refused, and the thread is not inside. */
bool gate_enter_slow(struct gate *gate, CUstream stream, uint32_t what, CUfunction function);
void gate_leave_slow(struct gate *gate, CUstream stream);

/* For a thread that is already inside a hook: whether the program made this call nevertheless, as it does in a signal
 * handler, or after it has jumped out of a hook (own_calls.h). If not, the call counts as a part of the outer one. */
bool gate_begins_anew(const void *caller);

static inline void gate_go_inside(struct gate_self *self, uint32_t what)
{
    atomic_store_explicit(&self->thread->inside, what, memory_order_relaxed);
    if (__builtin_expect(self->fenced, 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst); /* partner: gate_barrier() */
}

/* Under a lease that can end: whether this call, between two marks, need only be counted. That is not so for the first
 * call after the agent has seen no work. */
__attribute__((always_inline)) static inline bool gate_counts_down(struct gate *gate, struct gate_self *self,
                                                                   CUstream stream, uint32_t what)
{
    struct in_flight_entry *entry = gate_entry(self, stream);
    if (!entry || !entry->quick || atomic_load_explicit(&gate->resting, memory_order_relaxed))
        return false;
    if ((what & GATE_COPIES_SYNC) || ((what & GATE_COPIES_ASYNC) && entry->burst == IN_FLIGHT_BURST_MEASURED))
        return false;
    entry->quick--;
    return true;
}

/* Whether the function was launched before, as far as a look at the first two of its places tells. */
static inline bool gate_knows(const struct gate *gate, CUfunction function)
{
    uint32_t at = gate_function_place(function);
    return atomic_load_explicit(&gate->launched[at], memory_order_relaxed) == function ||
           atomic_load_explicit(&gate->launched[(at + 1) % GATE_FUNCTIONS], memory_order_relaxed) == function;
}

/* False: it is refused, and the driver must not be called. */
__attribute__((always_inline)) static inline bool gate_enter_for(struct gate *gate, CUstream stream,
                                                                 uint32_t what, CUfunction function)
{
    struct gate_self *self = &gate_self;
    if (__builtin_expect(self->is_submitting | own_calls_depth, 0) &&
        !gate_begins_anew(__builtin_return_address(0)))
        return true;
    self->is_submitting = true;
    if (self->thread && (!function || gate_knows(gate, function))) {
        gate_go_inside(self, what);
        uint32_t word = atomic_load_explicit(&gate->word, memory_order_acquire); /* gate_open() */
        if (atomic_load_explicit(&gate->captures, memory_order_relaxed) == 0 &&
            (word == GATE_FREE || (word == GATE_PACED && gate_counts_down(gate, self, stream, what))))
            return true;
    }
    return gate_enter_slow(gate, stream, what, function);
}

/* Call this before the driver. `stream` is a handle that means the same in every form of a call: CU_STREAM_LEGACY or
 * CU_STREAM_PER_THREAD for 0. Waits while the gate is closed, and while the stream has enough work before it. */
__attribute__((always_inline)) static inline void gate_enter(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS, NULL);
}

/* The same for a call that gives the GPU several pieces of work. */
__attribute__((always_inline)) static inline void gate_enter_pieces(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS | GATE_PIECES, NULL);
}

/* The same for a copy from or to the host that the call waits for. It takes no GPU time from other sessions. */
__attribute__((always_inline)) static inline void gate_enter_sync_copy(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS | GATE_COPIES_SYNC, NULL);
}

/* The same for a copy from or to the host that the call does not wait for. Follow it with gate_leave_async_copy(). */
__attribute__((always_inline)) static inline void gate_enter_async_copy(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS | GATE_COPIES_ASYNC, NULL);
}

/* The same for the launch of one function. `overlaps`: as GATE_OVERLAPS says. Follow it with gate_leave_launch(), unless it
 * returns false: then the function is refused (gate_when_launched()). */
__attribute__((always_inline)) static inline bool gate_enter_launch(struct gate *gate, CUstream stream,
                                                                    CUfunction function, bool overlaps)
{
    return gate_enter_for(gate, stream, overlaps ? GATE_LAUNCHES | GATE_OVERLAPS : GATE_LAUNCHES, function);
}

__attribute__((always_inline)) static inline void gate_leave_from(struct gate *gate, CUstream stream,
                                                                  bool is_copy)
{
    struct gate_self *self = &gate_self;
    if (__builtin_expect(self->nested, 0)) {
        self->nested--;
        return;
    }
    self->is_submitting = false;
    struct in_flight_entry *entry = self->attentive ? NULL : gate_entry(self, stream);
    if (!entry) {
        gate_leave_slow(gate, stream);
        return;
    }
    if (is_copy)
        in_flight_entry_count_part(entry, &entry->async_copies);
    in_flight_entry_count(entry);
    atomic_store_explicit(&self->thread->inside, 0, memory_order_release); /* gate_is_left() */
}

/* Call this after the driver, whatever it answered. */
__attribute__((always_inline)) static inline void gate_leave(struct gate *gate, CUstream stream)
{
    gate_leave_from(gate, stream, false);
}

/* The stream's marks have to know of such launches before the first one is due. */
__attribute__((always_inline)) static inline void gate_leave_launch(struct gate *gate, CUstream stream,
                                                                    bool overlaps)
{
    struct in_flight_entry *entry = overlaps ? gate_entry(&gate_self, stream) : NULL;
    if (entry)
        entry->overlaps = IN_FLIGHT_OVERLAPS;
    gate_leave_from(gate, stream, false);
}

__attribute__((always_inline)) static inline void gate_leave_async_copy(struct gate *gate, CUstream stream)
{
    gate_leave_from(gate, stream, true);
}

/* Around a call that loads code and submits nothing. It passes a closed gate. */
void gate_load_begin(struct gate *gate);
void gate_load_end(struct gate *gate);

/* Where memory moves: around a call that names device addresses and submits nothing. It passes a closed gate, but waits
 * while the memory is away. Between the two functions the memory stays. `caller` is the hook's caller. Returns whether
 * gate_names_end() must follow. */
bool gate_names_begin(struct gate *gate, const void *caller);
void gate_names_end(void);

/* `may` is asked once for each function before its first launch; false: such launches are refused for lack of memory. */
void gate_when_launched(bool (*may)(CUfunction function));

/* `wait` waits until there may be room for what the driver takes inside a launch on the current context's GPU, more with each
 * attempt (from 0); false: there will be none. */
void gate_when_full(bool (*wait)(unsigned attempt));

/* The driver had no memory for a launch on `stream`, which the thread has left again. True: try again, there may be room now.
 * Where the launch is captured it is not waited for. The thread waits outside the gate: other processes leave the card to make
 * room, and this one may have to. */
bool gate_wait_for_room(CUstream stream, unsigned attempt);

/* Modules were unloaded, or a context was destroyed: the driver may use handles of functions again for other functions. */
void gate_forget_functions(struct gate *gate);

/* The thread's current context may have changed, and with it the thread's default stream. */
static inline void gate_context_changed(void)
{
    gate_self.entry = NULL;
    gate_self.context = NULL;
}

/* --- For hooks of captures (hook_capture.c) -------------------------------------------------------- */

/* Call this before a capture begins. Waits while a drain goes on. Afterwards, events stand behind all that was submitted
 * so far, where one may stand (in_flight_may_mark()): while a capture is open, only the threads that submit talk to the driver,
 * and work without an event is not known to be done. `caller` is the hook's caller. Returns
 * whether gate_capture_begun() must follow; until then the thread holds gate.lock. */
bool gate_capture_begin(struct gate *gate, const void *caller);
/* The driver answered `result` when asked to begin a capture on `stream`. */
void gate_capture_begun(struct gate *gate, CUstream stream, CUstreamCaptureMode mode, CUresult result);
/* Whether an open capture forbids this thread, whose mode is `mode`, calls that are not safe in captures (cuda.h 13.0,
 * cuThreadExchangeStreamCaptureMode). */
bool gate_capture_forbids(struct gate *gate, CUstreamCaptureMode mode);
/* `stream` is no longer being captured. */
void gate_capture_ended(struct gate *gate, CUstream stream);

/* --- For the agent --------------------------------------------------------------------------------- */

/* Set up the gate, open. Once in a process. False: the C library has no key left for thread ends. */
bool gate_make(struct gate *gate, void (*poke)(void));

/* Open the gate as `state` says (GATE_FREE or GATE_PACED), and wake the threads that wait at it. */
void gate_open(struct gate *gate, enum gate_state state);

/* Close the gate. Then call gate_is_left() (gate_threads.h) until it says that no thread is inside. */
void gate_close(struct gate *gate);

/* Let one call pass the closed gate. Then call gate_end_step() until it returns true: the call has gone inside, or the
 * caller `gives_up`. The gate is to be closed afterwards. */
void gate_begin_step(struct gate *gate);
bool gate_end_step(struct gate *gate, bool gives_up);

/* What was submitted is done: captures may begin, but no work may be submitted. */
void gate_drained(struct gate *gate);

/* Of a drained gate: from now on, calls that name addresses wait at it as well. Then call gate_is_left_by_all() until it
 * says that no thread is inside. gate_memory_is_back() ends this. */
void gate_memory_leaves(struct gate *gate);
void gate_memory_is_back(struct gate *gate);

/* As the process ends: open the gate for good. When this returns, the agent is not in the driver and does not call it
 * again, unless the wait for gate.lock took longer than a second. */
void gate_end(struct gate *gate);

/* Orders this thread's accesses with those of all threads that submit (partner: gate_go_inside()): what they wrote before
 * their barrier, this thread reads after it. */
void gate_barrier(struct gate *gate);
