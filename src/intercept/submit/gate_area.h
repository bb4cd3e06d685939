/* gate_area.h - what the gate and the pace remember, in the process's private area (private.h); zero means
 * that this process has no gate.
 *
 * word     the gate's state; every submitting call reads it
 * thread   one place for each thread that has submitted work, so that the agent can wait for those inside a
 * call entry    what one thread submitted to one stream mark     an event recorded after some submissions;
 * when it is reached, they are done
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

enum gate_state {
    GATE_NONE,     /* no shares for this process */
    GATE_FREE,     /* open, and nothing is bounded */
    GATE_PACED,    /* open; work in flight is bounded by time */
    GATE_DRAINING, /* closed, what was submitted is waited for, and no capture begins */
    GATE_CLOSED,   /* closed, and nothing of this process is before the GPUs */
};

struct gate_thread {
    _Alignas(64) _Atomic uint32_t inside; /* the owner: it may be handing work to the driver */
    _Atomic int32_t tid;                  /* 0: the place is free */
};
#define GATE_THREADS 16384u /* more threads than that are not waited for */

struct in_flight_mark {
    CUevent event;
    uint64_t from_ns, recorded_ns; /* CLOCK_MONOTONIC: the mark before it, and itself */
    uint32_t pieces;               /* calls since the mark before */
    bool queued;                   /* behind the mark before: the GPU goes from one to the other */
};
#define IN_FLIGHT_MARKS                                                                                      \
    8u /* and one less before a stream: the last that was reached is kept, to measure from */

struct in_flight_entry {
    _Atomic int32_t tid;        /* the owner; 0: the place is free; -1: its thread has ended */
    _Atomic(CUstream) stream;   /* NULL: the stream or its context has gone */
    _Atomic(CUcontext) context; /* under the gate's turn */
    _Atomic uint64_t submitted; /* the owner: how many calls */
    _Atomic uint64_t covered;   /* under `turn`: how many of these are before a mark, or known to be done */
    uint32_t left;              /* the owner: calls until the next mark */
    _Atomic uint32_t chunk;     /* under `turn`: calls from mark to mark */
    _Atomic uint32_t marks;     /* under `turn`: how many are not reached */
    atomic_bool stuck;          /* they did not come in time: nothing is bounded until they do */
    pthread_mutex_t turn;
    uint32_t first;            /* under `turn`, as all below: index of the oldest mark */
    bool unmarkable;           /* the driver refused an event */
    _Atomic uint64_t piece_ns; /* how long a call's work takes, by the last marks; 0: not known */
    uint64_t recorded_ns;      /* the last mark */
    uint64_t reached_ns;       /* when the last one was seen reached */
    bool reached_watched;      /* and it was not, a moment before */
    struct in_flight_mark ring[IN_FLIGHT_MARKS];
    struct in_flight_entry *next; /* the owner: of its entries */
};
#define IN_FLIGHT_ENTRIES 4096u

/* By the owner: one call more was made. */
static inline void in_flight_entry_count(struct in_flight_entry *entry)
{
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    atomic_store_explicit(&entry->submitted, submitted + 1, memory_order_relaxed);
}

struct gate_capture {
    CUstream stream;
    CUcontext context;
};
#define GATE_CAPTURES 256u

struct gate {
    _Alignas(64) _Atomic uint32_t word; /* enum gate_state; a futex. The agent writes it */
    _Atomic uint32_t captures;          /* under `turn`: how many are open */
    atomic_bool fenced;                 /* the kernel gives no membarrier: threads fence themselves */
    atomic_bool resting;                /* the agent waits for the next submission: tell it */

    _Alignas(64) _Atomic uint32_t waiters; /* threads at the closed gate */
    _Atomic uint32_t held;                 /* threads that wait for a stream to have room */
    _Atomic uint32_t capture_waiters;      /* threads that wait for a drain to end, to begin a capture */
    _Atomic uint64_t waited_ns;            /* of threads at the gate, since it was last told */
    _Atomic uint64_t resumed_ns;           /* when the submission came that `resting` waited for */
    _Atomic uint64_t ahead_ns;             /* what a stream has before it when a thread may add to it */
    _Atomic uint64_t longest_ns;           /* the longest that one piece of work took */
    _Atomic uint64_t gpus;                 /* a bit for each GPU of the policy that has contexts */
    atomic_bool started;                   /* the agent */

    /* To look at entries of other threads, and to begin and end captures. Never held while anything is waited
     * for. */
    pthread_mutex_t turn;
    struct gate_capture capturing[GATE_CAPTURES];
    _Atomic uint32_t thread_count, entry_count; /* places used so far */
    struct gate_thread threads[GATE_THREADS];
    struct in_flight_entry entries[IN_FLIGHT_ENTRIES];
};
