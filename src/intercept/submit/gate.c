/* gate.c - how threads pass the gate when it is not simply open, and how the agent opens and closes it. */
#include "intercept/submit/gate.h"
#include "intercept/resolve/guard.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "intercept/resolve/real.h"
#include "intercept/submit/in_flight.h"

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* --- Passing --------------------------------------------------------------------------------------- */

static void go_outside(struct gate_self *self)
{
    atomic_store_explicit(&self->thread->inside, 0, memory_order_release); /* gate_is_left() */
}

static uint32_t word_of(struct gate *gate)
{
    return atomic_load_explicit(&gate->word, memory_order_acquire); /* gate_open() */
}

/* Called from inside: either the thread sees that the memory is away, or gate_is_left_by_all() sees the thread. */
static bool is_away(struct gate *gate)
{
    return atomic_load_explicit(&gate->is_away, memory_order_acquire); /* gate_memory_is_back() */
}

static void wait_closed(struct gate *gate)
{
    uint64_t from_ns = monotonic_ns();
    /* An agent that drains looks for waiters once the gate is closed, and one that holds still needs no WANT. Either this
     * thread sees that the gate is closed, or the agent sees the thread (agent_serve()). */
    bool is_first = atomic_fetch_add_explicit(&gate->waiters, 1, memory_order_seq_cst) == 0;
    if (is_first && atomic_load_explicit(&gate->word, memory_order_seq_cst) == GATE_CLOSED)
        gate->poke();
    for (uint32_t word; (word = word_of(gate)) >= GATE_DRAINING && !atomic_load(&gate->steps);)
        futex_wait(&gate->word, word);
    atomic_fetch_sub_explicit(&gate->waiters, 1, memory_order_relaxed);
    uint64_t waited_ns = monotonic_ns() - from_ns;
    atomic_fetch_add_explicit(&gate->waited_ns, waited_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&gate->waits[waits_bucket(waited_ns)], 1, memory_order_relaxed);
}

static bool take_step(struct gate *gate)
{
    uint32_t steps = atomic_load_explicit(&gate->steps, memory_order_relaxed);
    return steps && atomic_compare_exchange_strong_explicit(&gate->steps, &steps, 0, memory_order_seq_cst,
                                                            memory_order_relaxed);
}

/* --- Code ------------------------------------------------------------------------------------------ */

#define LOOKS                                                                                                \
    8u /* places to try for a function; if others have them all, the launch is taken not to be the first */

/* Whether the function was launched before. */
static bool is_known(const struct gate *gate, CUfunction function)
{
    uint32_t at = gate_function_place(function);
    for (uint32_t i = 0; i < LOOKS; i++)
        if (atomic_load_explicit(&gate->launched[(at + i) % GATE_FUNCTIONS], memory_order_relaxed) ==
            function)
            return true;
    return false;
}

/* Note that it is. False: another thread has just done so, or there is no place. */
static bool note_launched(struct gate *gate, CUfunction function)
{
    uint32_t at = gate_function_place(function);
    for (uint32_t i = 0; i < LOOKS; i++) {
        CUfunction other = NULL;
        if (atomic_compare_exchange_strong_explicit(&gate->launched[(at + i) % GATE_FUNCTIONS], &other,
                                                    function, memory_order_relaxed, memory_order_relaxed))
            return true;
        if (other == function)
            return false;
    }
    return false;
}

static bool (*_Atomic may_launch)(CUfunction function);

void gate_when_launched(bool (*may)(CUfunction function))
{
    atomic_store_explicit(&may_launch, may, memory_order_relaxed);
}

static bool is_refused(CUfunction function)
{
    bool (*may)(CUfunction) = atomic_load_explicit(&may_launch, memory_order_relaxed);
    return may && !may(function);
}

void gate_forget_functions(struct gate *gate)
{
    for (uint32_t i = 0; i < GATE_FUNCTIONS; i++)
        atomic_store_explicit(&gate->launched[i], NULL, memory_order_relaxed);
}

void gate_load_begin(struct gate *gate)
{
    struct gate_self *self = &gate_self;
    int saved_errno = errno;
    if (!self->thread)
        gate_register_thread(gate);
    if (self->entries && word_of(gate) != GATE_FREE)
        in_flight_look_at_own(gate);
    uint32_t inside = atomic_load_explicit(&self->thread->inside, memory_order_relaxed);
    atomic_store_explicit(&self->thread->inside, inside | GATE_LOADS, memory_order_relaxed);
    errno = saved_errno;
}

void gate_load_end(struct gate *gate)
{
    struct gate_self *self = &gate_self;
    (void)gate;
    uint32_t inside = atomic_load_explicit(&self->thread->inside, memory_order_relaxed);
    atomic_store_explicit(&self->thread->inside, inside & ~(uint32_t)GATE_LOADS, memory_order_release);
}

/* --- Passing with more to do than to read the word --------------------------------------------------- */

bool gate_enter_slow(struct gate *gate, CUstream stream, uint32_t what, CUfunction function)
{
    struct gate_self *self = &gate_self;
    int saved_errno = errno;
    bool is_new = function && !is_known(gate, function);
    if (is_new && is_refused(function)) {
        self->is_submitting = false;
        errno = saved_errno;
        return false;
    }
    guard_begin();
    if (!self->thread)
        gate_register_thread(gate);
    if (is_new && note_launched(gate, function)) {
        what |= GATE_LOADS;
        in_flight_look_at_own(gate);
    }
    for (;;) {
        gate_go_inside(self, what);
        uint32_t word = word_of(gate);
        bool captures = atomic_load_explicit(&gate->captures, memory_order_relaxed) != 0;
        self->attentive = captures || word != GATE_FREE;
        if (word == GATE_FREE || (captures && !is_away(gate) && in_flight_is_capturing(stream)))
            break;
        if (word >= GATE_DRAINING && take_step(gate))
            break;
        if (word == GATE_PACED)
            in_flight_put_what_was_put_off(gate, stream, what & GATE_OVERLAPS);
        if (word == GATE_PACED && !in_flight_is_full(gate, stream)) {
            if (what & GATE_COPIES_SYNC)
                in_flight_end_chunk(gate, self->entry);
            else
                in_flight_begin_part(gate, self->entry, what & GATE_COPIES_ASYNC);
            if (!(what & (GATE_COPIES_SYNC | GATE_COPIES_ASYNC | GATE_LOADS)))
                in_flight_begin_sample(gate, what);
            break;
        }
        go_outside(self);
        if (word == GATE_PACED) {
            in_flight_wait(gate);
        } else {
            in_flight_follow_own(gate);
            wait_closed(gate);
        }
    }
    guard_end();
    errno = saved_errno;
    return true;
}

void gate_leave_slow(struct gate *gate, CUstream stream)
{
    struct gate_self *self = &gate_self;
    int saved_errno = errno;
    guard_begin();
    bool attentive = self->attentive;
    self->attentive = false;
    if (!attentive ||
        !(atomic_load_explicit(&gate->captures, memory_order_relaxed) && in_flight_is_capturing(stream)))
        in_flight_count(gate, stream, attentive,
                        atomic_load_explicit(&self->thread->inside, memory_order_relaxed));
    go_outside(self);
    if (attentive && atomic_load_explicit(&gate->resting, memory_order_relaxed) &&
        atomic_exchange_explicit(&gate->resting, false, memory_order_acq_rel))
        gate->poke();
    guard_end();
    errno = saved_errno;
}

bool gate_begins_anew(const void *caller)
{
    struct gate_self *self = &gate_self;
    if (own_calls_is_program(caller)) {
        self->nested = 0;
        return true;
    }
    self->nested++;
    return false;
}

/* --- Addresses ------------------------------------------------------------------------------------- */

bool gate_names_begin(struct gate *gate, const void *caller)
{
    struct gate_self *self = &gate_self;
    if ((self->is_submitting || own_calls_depth) && !own_calls_is_program(caller))
        return false;
    int saved_errno = errno;
    guard_begin();
    self->is_submitting = true;
    self->nested = 0;
    if (!self->thread)
        gate_register_thread(gate);
    for (;;) {
        gate_go_inside(self, GATE_NAMES);
        if (!is_away(gate) || word_of(gate) < GATE_DRAINING)
            break;
        go_outside(self);
        in_flight_follow_own(gate);
        wait_closed(gate);
    }
    guard_end();
    errno = saved_errno;
    return true;
}

void gate_names_end(void)
{
    gate_self.is_submitting = false;
    go_outside(&gate_self);
}

/* --- Captures -------------------------------------------------------------------------------------- */

bool gate_capture_begin(struct gate *gate, const void *caller)
{
    struct gate_self *self = &gate_self;
    if ((self->is_submitting || own_calls_depth) && !own_calls_is_program(caller))
        return false;
    int saved_errno = errno;
    if (!self->thread)
        gate_register_thread(gate);
    in_flight_wait_for_nameless(gate);
    for (;;) {
        gate_go_inside(self, GATE_SUBMITS);
        if (word_of(gate) != GATE_DRAINING)
            break;
        go_outside(self);
        atomic_fetch_add_explicit(&gate->capture_waiters, 1, memory_order_seq_cst);
        while (word_of(gate) == GATE_DRAINING)
            futex_wait(&gate->word, GATE_DRAINING);
        atomic_fetch_sub_explicit(&gate->capture_waiters, 1, memory_order_relaxed);
    }
    guard_lock(&gate->lock);
    in_flight_look_at_legacy(gate);
    atomic_fetch_add_explicit(&gate->captures, 1, memory_order_seq_cst);
    in_flight_follow_all(gate);
    errno = saved_errno;
    return true;
}

static struct gate_capture capture_of(CUstream stream)
{
    return (struct gate_capture){stream, in_flight_stream_context(stream),
                                 stream == CU_STREAM_PER_THREAD ? &gate_self : NULL};
}

/* A thread's own default stream has the same handle in all threads and contexts. */
static bool is_same_capture(const struct gate_capture *a, const struct gate_capture *b)
{
    return a->stream == b->stream && a->thread == b->thread && (!a->thread || a->context == b->context);
}

void gate_capture_begun(struct gate *gate, CUstream stream, CUstreamCaptureMode mode, CUresult result)
{
    unsigned i = 0;
    while (i < GATE_CAPTURES && gate->capturing[i].stream)
        i++;
    if (result == CUDA_SUCCESS && i < GATE_CAPTURES) {
        gate->capturing[i] = capture_of(stream);
        gate->capturing[i].mode = mode;
        gate->capturing[i].by = &gate_self;
    } else
        atomic_fetch_sub_explicit(&gate->captures, 1, memory_order_relaxed);
    guard_unlock(&gate->lock);
    go_outside(&gate_self);
}

/* A thread that asks with the mode GLOBAL minds all captures of that mode, and its own that are not RELAXED; with
 * THREAD_LOCAL only its own. Of captures beyond the table nothing is known. */
static bool forbids(const struct gate_capture *capture, CUstreamCaptureMode mode)
{
    bool is_own = capture->by == &gate_self && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return is_own ||
           (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

bool gate_capture_forbids(struct gate *gate, CUstreamCaptureMode mode)
{
    unsigned open = 0;
    bool any = false;
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        atomic_load_explicit(&gate->captures, memory_order_relaxed) == 0)
        return false;
    guard_lock(&gate->lock);
    for (unsigned i = 0; i < GATE_CAPTURES && !any; i++) {
        open += gate->capturing[i].stream != NULL;
        any = gate->capturing[i].stream && forbids(&gate->capturing[i], mode);
    }
    guard_unlock(&gate->lock);
    return any || open == GATE_CAPTURES;
}

void gate_capture_ended(struct gate *gate, CUstream stream)
{
    const struct gate_capture ended = capture_of(stream);
    guard_lock(&gate->lock);
    for (unsigned i = 0; i < GATE_CAPTURES; i++) {
        if (!is_same_capture(&gate->capturing[i], &ended))
            continue;
        GS_CHECK(atomic_load_explicit(&gate->captures, memory_order_relaxed) > 0);
        gate->capturing[i] = (struct gate_capture){0};
        atomic_fetch_sub_explicit(&gate->captures, 1, memory_order_relaxed);
        break;
    }
    guard_unlock(&gate->lock);
}

static bool (*_Atomic wait_for_room)(unsigned attempt);

void gate_when_full(bool (*wait)(unsigned attempt))
{
    atomic_store_explicit(&wait_for_room, wait, memory_order_relaxed);
}

bool gate_wait_for_room(CUstream stream, unsigned attempt)
{
    bool (*wait)(unsigned) = atomic_load_explicit(&wait_for_room, memory_order_relaxed);
    return wait && !in_flight_is_capturing(stream) && wait(attempt);
}

/* --- The agent's side ------------------------------------------------------------------------------ */

bool gate_make(struct gate *gate, void (*poke)(void))
{
    if (!gate_threads_make(in_flight_thread_ended))
        return false;
    gate->poke = poke;
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    bool fenced = commands < 0 || !(commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    atomic_store_explicit(&gate->fenced, fenced, memory_order_relaxed);
    atomic_store_explicit(&gate->word, GATE_FREE, memory_order_release);
    return true;
}

/* In a process with threads, registering takes a grace period of the kernel, 10 to 30 ms. So the agent registers when it
 * first has a lease that can end; a process whose GPUs nobody shares never does. */
static void register_for_barriers(struct gate *gate)
{
    if (gate->registered || atomic_load_explicit(&gate->fenced, memory_order_relaxed))
        return;
    gate->registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void gate_barrier(struct gate *gate)
{
    register_for_barriers(gate);
    /* Once registered, the fast form cannot fail; the slow form needs no registering. */
    if (!atomic_load_explicit(&gate->fenced, memory_order_relaxed))
        syscall(SYS_membarrier, gate->registered ? MEMBARRIER_CMD_PRIVATE_EXPEDITED : MEMBARRIER_CMD_SHARED,
                0, 0);
    atomic_thread_fence(memory_order_seq_cst);
}

static void set_open(struct gate *gate, enum gate_state state)
{
    uint32_t before = atomic_exchange_explicit(&gate->word, state, memory_order_seq_cst); /* word_of() */
    if (before >= GATE_DRAINING)
        futex_wake_all(&gate->word);
}

/* Called after each change of the gate, in case gate_end() ran meanwhile. */
static void keep_to_the_end(struct gate *gate)
{
    if (atomic_load_explicit(&gate->ended, memory_order_seq_cst))
        set_open(gate, GATE_FREE);
}

void gate_open(struct gate *gate, enum gate_state state)
{
    set_open(gate, state);
    keep_to_the_end(gate);
    if (state == GATE_PACED)
        register_for_barriers(gate); /* before the first time that it has to close */
}

void gate_end(struct gate *gate)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    /* The thread that holds the lock may be asking the driver. If it is this thread, which ends the process from a signal
     * handler, it would wait for itself: hence the time limit. */
    guard_begin();
    bool locked = pthread_mutex_timedlock(&gate->lock, &until) == 0;
    atomic_store_explicit(&gate->ended, true, memory_order_seq_cst);
    set_open(gate, GATE_FREE);
    if (locked)
        pthread_mutex_unlock(&gate->lock);
    guard_end();
}

void gate_close(struct gate *gate)
{
    atomic_fetch_add_explicit(&gate->closings, 1, memory_order_relaxed);
    atomic_store_explicit(&gate->word, GATE_DRAINING, memory_order_seq_cst);
    keep_to_the_end(gate);
    gate_barrier(gate);
}

void gate_begin_step(struct gate *gate)
{
    /* The threads that wait do so until the word changes. */
    atomic_store_explicit(&gate->steps, 1, memory_order_seq_cst);
    atomic_store_explicit(&gate->word, GATE_DRAINING, memory_order_seq_cst);
    keep_to_the_end(gate);
    futex_wake_all(&gate->word);
}

bool gate_end_step(struct gate *gate, bool gives_up)
{
    if (gives_up)
        atomic_store_explicit(&gate->steps, 0, memory_order_seq_cst);
    return atomic_load_explicit(&gate->steps, memory_order_seq_cst) == 0;
}

void gate_drained(struct gate *gate)
{
    GS_CHECK(word_of(gate) == GATE_DRAINING || atomic_load(&gate->ended));
    atomic_store_explicit(&gate->word, GATE_CLOSED, memory_order_seq_cst);
    keep_to_the_end(gate);
    if (atomic_load_explicit(&gate->capture_waiters, memory_order_seq_cst))
        futex_wake_all(&gate->word);
}

void gate_memory_leaves(struct gate *gate)
{
    atomic_store_explicit(&gate->is_away, true, memory_order_seq_cst);
    gate_barrier(gate);
}

void gate_memory_is_back(struct gate *gate)
{
    atomic_store_explicit(&gate->is_away, false, memory_order_release); /* is_away() */
}
