/* gate_threads.c - the threads that pass the gate: their places, and which of them are inside. */
#include "intercept/submit/gate_threads.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct gate_self gate_self;
/* The place of a thread for which `threads` has no room: the agent does not wait for such threads. */
static __thread struct gate_thread unplaced;

/* Has leave_place() run as a thread ends. */
static pthread_key_t thread_end;
static bool thread_end_made;
static void (*tell_ended)(int32_t tid);

static void leave_place(void *place)
{
    struct gate_thread *thread = place;
    tell_ended(atomic_load_explicit(&thread->tid, memory_order_relaxed));
    atomic_store_explicit(&thread->inside, 0, memory_order_relaxed);
    atomic_store_explicit(&thread->tid, 0, memory_order_release); /* take_place() */
    gate_self = (struct gate_self){0};
}

static struct gate_thread *take_place(struct gate *gate, int32_t tid)
{
    for (uint32_t i = 0; i < GATE_THREADS; i++) {
        int32_t nobody = 0;
        if (!atomic_compare_exchange_strong_explicit(&gate->threads[i].tid, &nobody, tid,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        uint32_t count = atomic_load_explicit(&gate->thread_count, memory_order_relaxed);
        while (count <= i &&
               !atomic_compare_exchange_weak_explicit(&gate->thread_count, &count, i + 1,
                                                      memory_order_seq_cst, memory_order_relaxed))
            ;
        return &gate->threads[i];
    }
    return &unplaced;
}

void gate_register_thread(struct gate *gate)
{
    struct gate_self *self = &gate_self;
    self->fenced = atomic_load_explicit(&gate->fenced, memory_order_relaxed);
    self->thread = take_place(gate, (int32_t)syscall(SYS_gettid));
    if (self->thread != &unplaced)
        pthread_setspecific(thread_end, self->thread);
}

/* In a forked child, in the thread that called fork. */
static void forget_parent(void)
{
    gate_self = (struct gate_self){0};
}

bool gate_threads_make(void (*ended)(int32_t tid))
{
    tell_ended = ended;
    if (!thread_end_made && pthread_key_create(&thread_end, leave_place) != 0)
        return false;
    thread_end_made = true;
    private_at_fork(forget_parent);
    return true;
}

struct in_flight_entry *gate_find_entry(struct gate_self *self, CUstream stream)
{
    bool is_default = in_flight_is_default(stream); /* any other stream belongs to one context only */
    CUcontext context = self->context;
    if (is_default && !context)
        return NULL;
    struct in_flight_entry *entry = self->entries;
    while (entry && (atomic_load_explicit(&entry->stream, memory_order_relaxed) != stream ||
                     (is_default && atomic_load_explicit(&entry->context, memory_order_relaxed) != context)))
        entry = entry->next;
    if (entry)
        self->entry = entry;
    return entry;
}

/* --- All threads ----------------------------------------------------------------------------------- */

/* The bits of all threads that do any of `what`. */
static uint32_t inside_of(struct gate *gate, uint32_t what)
{
    uint32_t all = 0, count = atomic_load_explicit(&gate->thread_count, memory_order_seq_cst);
    for (uint32_t i = 0; i < count; i++) {
        struct gate_thread *thread = &gate->threads[i];
        /* Pairs with go_outside(). */
        uint32_t inside = atomic_load_explicit(&thread->inside, memory_order_acquire);
        if (!(inside & what) || !(inside & ~all))
            continue;
        int32_t tid = atomic_load_explicit(&thread->tid, memory_order_relaxed);
        if (tid && syscall(SYS_tgkill, getpid(), tid, 0) == 0)
            all |= inside;
        else /* it ended inside a call, without its destructors */
            atomic_store_explicit(&thread->inside, 0, memory_order_relaxed);
    }
    return all;
}

bool gate_is_left(struct gate *gate)
{
    return inside_of(gate, GATE_SUBMITS | GATE_LAUNCHES) == 0;
}

bool gate_is_left_by_all(struct gate *gate)
{
    return inside_of(gate, GATE_SUBMITS | GATE_LAUNCHES | GATE_NAMES) == 0;
}

bool gate_is_loading(struct gate *gate)
{
    return inside_of(gate, GATE_LOADS) != 0;
}

bool gate_is_left_but_for_loads(struct gate *gate)
{
    uint32_t inside = inside_of(gate, GATE_SUBMITS | GATE_LAUNCHES | GATE_LOADS);
    return !(inside & GATE_SUBMITS) && (!(inside & GATE_LAUNCHES) || (inside & GATE_LOADS));
}
