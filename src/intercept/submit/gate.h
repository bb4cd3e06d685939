/* gate.h - what every call passes that gives the GPU work.
 *
 *   struct gate *gate = gate_of();
 *   if (!gate)
 *       return real(cuLaunchKernel)(...);
 *   gate_enter(gate, stream);
 *   CUresult result = real(cuLaunchKernel)(...);
 *   gate_leave(gate, stream);
 *
 * A process in no session has no gate. An open gate costs plain stores to memory of the thread's own and
 * loads of words that hardly ever change: no locked instruction, no system call. The thread says that it is
 * inside, then reads the gate's word; the agent writes the word, makes every thread of the process pass a
 * barrier (membarrier), then reads who is inside: so either the thread sees the word or the agent sees the
 * thread. Under a lease that can end it costs a countdown more, but for two calls in each stretch between marks
 * (in_flight.h).
 *
 * A launch that loads or compiles code may take tens of milliseconds, in which nothing is before the GPU: the first
 * launch of each function is said to load, so that the agent does not wait for it before it tells the daemon that
 * the gate is closed. Its kernel then runs beside what the next one does: one kernel, once for each function.
 *
 * Calls inside other calls never wait: what the driver, or a callback of the program's, does of itself inside
 * a hook is part of it. Nor do calls on a stream that is being captured, as they give the GPU nothing, unless the process's
 * memory is away: the driver looks at the addresses that they name. */
#pragma once

#include "base/check.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/submit/gate_area.h"

struct gate_self {
    /* NULL: not entered yet. */
    struct gate_thread *thread;
    /* Of the last submission, and all of this thread's. */
    struct in_flight_entry *entry, *entries;
    /* The current one, whose the default streams are; NULL: the driver has to be asked. */
    CUcontext context;
    /* Inside a submitting call; and how deep in calls that the driver makes of itself in there, which count as a part. */
    bool is_submitting;
    unsigned nested;
    /* The kernel gives no membarrier. */
    bool fenced;
    /* This call is counted towards a mark, or may be on a captured stream. */
    bool attentive;
};
extern __thread struct gate_self gate_self;

/* The handle of a stream that means the same in every form of a call. */
#define GATE_LEGACY(stream) ((stream) ? (stream) : CU_STREAM_LEGACY)
#define GATE_PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* The process's gate; NULL where there is none. */
static inline struct gate *gate_of(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return area && atomic_load_explicit(&gate_in(area)->word, memory_order_relaxed) != GATE_NONE
               ? gate_in(area)
               : NULL;
}

void gate_enter_slow(struct gate *gate, CUstream stream, uint32_t what, CUfunction function);
void gate_leave_slow(struct gate *gate, CUstream stream);

/* In a thread that is inside a hook already: whether the call is the program's own nevertheless, as in a handler of a
 * signal, or after it jumped out of a hook (own_calls.h). Else it counts as a part of the outer call. */
bool gate_begins_anew(const void *caller);

static inline void gate_go_inside(struct gate_self *self, uint32_t what)
{
    atomic_store_explicit(&self->thread->inside, what, memory_order_relaxed);
    if (__builtin_expect(self->fenced, 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst); /* the other half is gate_barrier() */
}

/* This thread's entry for a stream, which is that of the last submission from now on; NULL where there is none, or where the
 * driver has to be asked first. */
__attribute__((cold)) struct in_flight_entry *gate_find_entry(struct gate_self *self, CUstream stream);

__attribute__((always_inline)) static inline struct in_flight_entry *gate_entry(struct gate_self *self,
                                                                                CUstream stream)
{
    struct in_flight_entry *entry = self->entry;
    return entry && atomic_load_explicit(&entry->stream, memory_order_relaxed) == stream
               ? entry
               : gate_find_entry(self, stream);
}

/* Under a lease that can end: whether the call is one of those between two marks for which there is nothing to do but to
 * count them. The first launch of a function is not, nor is the first call after the agent has seen no work. */
__attribute__((always_inline)) static inline bool gate_counts_down(struct gate *gate, struct gate_self *self,
                                                                   CUstream stream, uint32_t what,
                                                                   CUfunction function)
{
    struct in_flight_entry *entry = gate_entry(self, stream);
    if (!entry || !entry->quick || atomic_load_explicit(&gate->resting, memory_order_relaxed))
        return false;
    if ((what & GATE_APART) || ((what & GATE_COPIES) && entry->burst == IN_FLIGHT_BURST_MEASURED))
        return false;
    if (function && atomic_load_explicit(&gate->launched[gate_function_place(function)],
                                         memory_order_relaxed) != function)
        return false;
    entry->quick--;
    return true;
}

__attribute__((always_inline)) static inline void gate_enter_for(struct gate *gate, CUstream stream,
                                                                 uint32_t what, CUfunction function)
{
    struct gate_self *self = &gate_self;
    if (__builtin_expect(self->is_submitting | own_calls_depth, 0) &&
        !gate_begins_anew(__builtin_return_address(0)))
        return;
    self->is_submitting = true;
    if (self->thread) {
        gate_go_inside(self, what);
        uint32_t word = atomic_load_explicit(&gate->word, memory_order_acquire); /* gate_open() */
        if (atomic_load_explicit(&gate->captures, memory_order_relaxed) == 0 &&
            (word == GATE_FREE ||
             (word == GATE_PACED && gate_counts_down(gate, self, stream, what, function))))
            return;
    }
    gate_enter_slow(gate, stream, what, function);
}

/* Before the driver is called. `stream` is a handle that means the same in every form of a call:
 * CU_STREAM_LEGACY or CU_STREAM_PER_THREAD for 0. Waits while the gate is closed, and where the stream has
 * enough before it. */
__attribute__((always_inline)) static inline void gate_enter(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS, NULL);
}

/* The same for a call that gives the GPU several pieces of work. */
__attribute__((always_inline)) static inline void gate_enter_pieces(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS | GATE_PIECES, NULL);
}

/* The same for what takes no GPU time from others: a copy from or to the host that the call waits for. */
__attribute__((always_inline)) static inline void gate_enter_apart(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS | GATE_APART, NULL);
}

/* The same for such a copy that the call does not wait for. gate_leave_copy() follows. */
__attribute__((always_inline)) static inline void gate_enter_copy(struct gate *gate, CUstream stream)
{
    gate_enter_for(gate, stream, GATE_SUBMITS | GATE_COPIES, NULL);
}

/* The same for the launch of one function. */
__attribute__((always_inline)) static inline void gate_enter_launch(struct gate *gate, CUstream stream,
                                                                    CUfunction function)
{
    gate_enter_for(gate, stream, GATE_LAUNCHES, function);
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
        in_flight_entry_count_part(entry, &entry->copies);
    in_flight_entry_count(entry);
    atomic_store_explicit(&self->thread->inside, 0, memory_order_release); /* gate_is_left() */
}

/* After it, whatever it answered. */
__attribute__((always_inline)) static inline void gate_leave(struct gate *gate, CUstream stream)
{
    gate_leave_from(gate, stream, false);
}

__attribute__((always_inline)) static inline void gate_leave_copy(struct gate *gate, CUstream stream)
{
    gate_leave_from(gate, stream, true);
}

/* Around calls that load code and submit nothing: they pass a closed gate. */
void gate_load_begin(struct gate *gate);
void gate_load_end(struct gate *gate);

/* Around calls that name device addresses and submit nothing, where memory moves: they pass a closed gate, and wait while
 * the memory is away; in between it stays. Returns whether gate_names_end() must follow. `caller` is the hook's. */
bool gate_names_begin(struct gate *gate, const void *caller);
void gate_names_end(void);

/* Modules were unloaded, or a context has gone: handles of functions may come again for others. */
void gate_forget_functions(struct gate *gate);

/* The thread's current context may be another now: its default stream is. */
static inline void gate_context_changed(void)
{
    gate_self.entry = NULL;
    gate_self.context = NULL;
}

/* --- For hooks of captures (hook_capture.c) -------------------------------------------------------- */

/* Before a capture begins on `stream`; waits while a drain goes on. What was submitted so far has its marks
 * afterwards: while a capture is open, nobody but the threads that submit says anything to the driver.
 * Returns whether gate_capture_begun() must follow. `caller` is the hook's. */
bool gate_capture_begin(struct gate *gate, const void *caller);
void gate_capture_begun(struct gate *gate, CUstream stream, CUresult result);
/* The stream may be captured no more. */
void gate_capture_ended(struct gate *gate, CUstream stream);

/* --- For the agent --------------------------------------------------------------------------------- */

/* Set up the gate, open. Once in a process. */
bool gate_make(struct gate *gate, void (*poke)(void));

/* Open it, and let those go on who wait. */
void gate_open(struct gate *gate, enum gate_state state);

/* Close it; then call gate_is_left() until nobody is inside. */
void gate_close(struct gate *gate);
bool gate_is_left(struct gate *gate);
/* Whether a thread may be loading code: then the driver may keep anyone waiting who asks it something. */
bool gate_is_loading(struct gate *gate);
/* Whether nobody is inside, or nobody but threads with one kernel each that waits for code to be loaded. */
bool gate_is_left_but_for_loads(struct gate *gate);

/* Let one call pass the closed gate; then wait until it has gone inside, or give up. Afterwards it is to be closed. */
void gate_begin_step(struct gate *gate);
bool gate_end_step(struct gate *gate, bool gives_up);

/* What was waited for is done: captures may begin, work may not be submitted. */
void gate_drained(struct gate *gate);

/* Of a drained gate: from now on all that names addresses waits at it as well; then call gate_is_left_by_all() until nobody
 * is inside. And no longer. */
void gate_memory_leaves(struct gate *gate);
bool gate_is_left_by_all(struct gate *gate);
void gate_memory_is_back(struct gate *gate);

/* As the process ends: open it for good. When this returns, the agent is not in the driver and does not call it again.
 * May wait a second. */
void gate_end(struct gate *gate);

/* What threads wrote before and what this one reads after is in order, as theirs is (gate_go_inside()). */
void gate_barrier(struct gate *gate);
