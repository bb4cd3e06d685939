/* gate_threads.h - the threads that pass the gate: what each knows of itself, and what is known of all of them. */
#pragma once

#include "intercept/submit/gate_area.h"

/* What a thread knows of itself. */
struct gate_self {
    /* NULL: it has not entered yet. */
    struct gate_thread *thread;
    /* The entry of its last submission, and the list of all its entries. */
    struct in_flight_entry *entry, *entries;
    /* The current context, to which the default streams belong; NULL: the driver has to be asked. */
    CUcontext context;
    /* It is inside a submitting call; and how deep it is in calls that the driver makes in there, which are part of it. */
    bool is_submitting;
    unsigned nested;
    /* The kernel has no membarrier. */
    bool fenced;
    /* This call counts towards a mark, or may be on a captured stream. */
    bool attentive;
};
extern __thread struct gate_self gate_self;

/* This thread's entry for `stream`, which also becomes the entry of the last submission. NULL: there is none, or the driver
 * has to be asked first. */
__attribute__((cold)) struct in_flight_entry *gate_find_entry(struct gate_self *self, CUstream stream);

__attribute__((always_inline)) static inline struct in_flight_entry *gate_entry(struct gate_self *self,
                                                                                CUstream stream)
{
    struct in_flight_entry *entry = self->entry;
    return entry && atomic_load_explicit(&entry->stream, memory_order_relaxed) == stream
               ? entry
               : gate_find_entry(self, stream);
}

/* Once in a process: have `ended` called as a thread ends that has passed the gate. False: the C library has no key left for
 * thread ends. */
bool gate_threads_make(void (*ended)(int32_t tid));
/* Give this thread a place. */
void gate_register_thread(struct gate *gate);

bool gate_is_left(struct gate *gate);
/* Whether a thread may be loading code. The driver may then keep any other caller waiting. */
bool gate_is_loading(struct gate *gate);
/* Whether no thread is inside, other than those with one kernel each that may be waiting for its code to be loaded. */
bool gate_is_left_but_for_loads(struct gate *gate);
/* Whether no thread is inside, not even one that only names addresses. */
bool gate_is_left_by_all(struct gate *gate);
