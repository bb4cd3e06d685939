/* gate_area.h - what the gate remembers, and what is known of the work in flight, in the process's private
 * area (private.h). Zero means that this process has no gate.
 *
 * word     the gate's state; every submitting call reads it
 * thread   a place for each thread that has submitted work, so that the agent can wait for those inside a call
 * entry    what one thread submitted to one stream
 * mark     an event recorded after some submissions; when it is reached, they are done
 *
 * The order in which locks are taken. A thread that holds one takes only those below it:
 *
 *   gate.lock                to look at entries of other threads, and to begin and end captures
 *   in_flight_entry.lock     one at a time; another thread's only by trylock, since its owner holds it while
 *                            it records a mark, which takes long where the driver's queue is full
 *   (the driver's own) */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/waits.h"
#include "cuda/driver.h"
#include "intercept/session/private.h"
#include "intercept/submit/work_estimate.h"

enum gate_state {
    GATE_NONE,     /* no shares for this process */
    GATE_FREE,     /* open, and nothing is bounded */
    GATE_PACED,    /* open; work in flight is bounded by time */
    GATE_DRAINING, /* closed, what was submitted is waited for, and no capture begins */
    GATE_CLOSED,   /* closed, and nothing of this process is before the GPUs */
};

/* What a thread is doing inside of the driver; a launch may be loading code as well. */
enum gate_inside {
    GATE_SUBMITS = 1, /* handing work to it */
    GATE_LAUNCHES =
        2, /* handing one kernel to it, which takes long only where code is loaded or compiled first */
    GATE_LOADS = 4, /* it may be loading or compiling code, under a lock for which others wait */
    GATE_NAMES = 8, /* naming device addresses to it, and giving the GPU nothing */
    GATE_PIECES =
        16, /* with GATE_SUBMITS: several pieces of work, the first of which may begin while the call lasts */
    GATE_APART = 32,  /* with GATE_SUBMITS: a copy from or to the host, which the call waits for */
    GATE_COPIES = 64, /* with GATE_SUBMITS: such a copy, for which the call does not wait */
};

struct gate_thread {
    /* By the owner: enum gate_inside; 0: it is outside. */
    _Alignas(64) _Atomic uint32_t inside;
    /* 0: the place is free. */
    _Atomic int32_t tid;
};
/* More threads than that are not waited for. */
#define GATE_THREADS 16384u

/* Of the calls between two waits of a thread for its stream, or calls that are apart. */
enum in_flight_burst {
    IN_FLIGHT_BURST_UNKNOWN,  /* it does not wait: calls are measured by chance */
    IN_FLIGHT_BURST_MEASURED, /* all of them are */
    IN_FLIGHT_BURST_SKIPPED,  /* none is */
};

/* Where a call stands that is measured by itself: calls of a place are like each other. */
enum in_flight_place {
    IN_FLIGHT_WITHIN, /* behind others of its burst, or in none */
    IN_FLIGHT_FIRST, /* it may wait for a slice of the GPU's time, and of a burst of which few calls are measured it always is one */
    IN_FLIGHT_AFRESH, /* the same since the gate was closed: the GPU may have to turn to this process, once in a turn */
    IN_FLIGHT_PLACES,
};

struct in_flight_mark {
    CUevent event;
    /* CLOCK_MONOTONIC: when the mark before it was recorded, and when it was itself. */
    uint64_t from_ns, recorded_ns;
    /* Calls since the mark before; and how many of these are apart, or copies. */
    uint32_t pieces, apart, copies;
    /* Behind the mark before, which was not reached yet: the GPU went from one to the other without a gap. */
    bool queued;
    /* Behind a mark right before its one call. */
    bool sample;
    enum in_flight_place place;
    /* In a burst that is not to be measured: it tells how much a stream may have before it. */
    bool is_skipped;
    /* Of a sample: how long the call was under way to the GPU, which had reached the mark before and had nothing to do. */
    uint64_t lead_ns;
};
/* One less before a stream: the last that was reached is kept, to measure from. */
#define IN_FLIGHT_MARKS 8u

struct in_flight_entry {
    /* The owner; 0: the place is free; -1: its thread has ended. */
    _Atomic int32_t tid;
    /* NULL: the stream or its context has gone. */
    _Atomic(CUstream) stream;
    /* Under the gate's lock. */
    _Atomic(CUcontext) context;
    /* By the owner: how many calls it has made. */
    _Atomic uint64_t submitted;
    /* Under `lock`: how many of these are before a mark, or known to be done. */
    _Atomic uint64_t covered;
    /* Of its calls, those that take no GPU time from others: copies from and to the host, for which the call waits, or not. */
    struct in_flight_part {
        /* By the owner. */
        _Atomic uint64_t made;
        /* Under `lock`: how many of them are covered. */
        uint64_t covered;
    } apart, copies;
    /* By the owner: calls until the next mark, but for `quick`; and those of them for which there is nothing to do but to
     * count them. */
    uint32_t left, quick;
    /* By the owner: what is done with the calls since it waited for all of them last; how many it had made by then, and those since
     * that take no GPU time from others; and how many others it made between the two waits before. */
    enum in_flight_burst burst;
    uint64_t burst_from, burst_began_ns;
    uint32_t burst_calls;
    /* By the owner: the burst, which is measured, has begun with a copy. */
    bool is_behind_copy;
    /* By the owner: how many bursts began; and, under `lock`, how many of these somebody was told of. */
    _Atomic uint64_t bursts;
    uint64_t bursts_told;
    /* By the owner: the stream waits for a function of the host behind the last mark. */
    bool is_parted;
    /* By the owner: how many calls came of late in the time in which one is to be measured; and since when they are counted anew, and
     * what it had submitted then. */
    uint64_t calls_of_late, counted_ns, counted_at;
    /* Under `lock`: how many marks are not reached. */
    _Atomic uint32_t marks;
    /* Marks did not come in time: nothing is bounded until they do. */
    atomic_bool stuck;
    /* Under `lock`: some calls took much less than they did on average, in one of so many reports at least. */
    _Atomic uint16_t varies;
    /* By the owner: it waited for room when the gate had been closed so many times, less one, and has not found the stream
     * without work since then; 0: it has. */
    uint32_t held_at;

    pthread_mutex_t lock;
    /* The rest: under `lock`. How long a call's work takes, and how many calls make a mark. */
    struct work_estimate estimate;
    /* Of calls that are done and nobody was told of yet. */
    struct in_flight_counts {
        /* Those between two marks without a gap, and how long the GPU had them, waiting for others included; and those of which
         * nothing tells, which are taken to be like these. */
        struct in_flight_told {
            uint64_t calls, ns;
        } told[IN_FLIGHT_PLACES];
        uint64_t others;
        /* The least that a call took, by the time of those and the others that were measured with it; and how often that was
         * measured. */
        uint64_t least_ns, measured;
    } counts;
    /* Of late, how many calls were measured and what they took; older ones count half. The few of one report may all be short,
     * and marks are far apart behind those. Calls that begin a turn are told of, and no others are taken to be like them. */
    struct in_flight_late {
        double calls, ns;
    } late[IN_FLIGHT_AFRESH];
    uint32_t chance;
    /* Index of the oldest mark that is not reached. */
    uint32_t first;
    /* The driver refused an event. */
    bool unmarkable;
    /* The last mark was recorded right before a call, to measure this one; which gives the GPU several pieces of work. */
    bool sampling, samples_pieces;
    /* Where that one stands; and how often the gate had been closed when the last one was measured that was the first of a burst. */
    enum in_flight_place sampled_place;
    uint32_t first_at;
    /* Calls of before, which no mark is behind, were still being done when that mark was recorded. */
    bool samples_behind;
    /* When the last mark was recorded, when the call behind it returned that it is to measure, and when the last one was seen
     * reached. */
    uint64_t recorded_ns, returned_ns, reached_ns;
    /* The thread was not run while it recorded the last mark: nobody knows when the GPU had it. */
    bool recorded_late;
    /* When the last mark was seen not to be reached, right before the call that the next mark is for; 0: it was not. */
    uint64_t behind_ns;
    /* That one was not reached yet, a moment before. */
    bool reached_watched;
    struct in_flight_mark ring[IN_FLIGHT_MARKS];
    /* An event without timing, recorded again and again where nobody but the owner can ask about the stream; and what
     * was submitted when it was recorded last. */
    CUevent last;
    uint64_t last_at;
    /* By the owner: the next of its entries. */
    struct in_flight_entry *next;
};
#define IN_FLIGHT_ENTRIES 4096u

/* By the owner: one call more was made. */
static inline void in_flight_entry_count(struct in_flight_entry *entry)
{
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    atomic_store_explicit(&entry->submitted, submitted + 1, memory_order_relaxed);
}

/* One call more takes no GPU time from others. Before it is counted as a call: cover(). */
static inline void in_flight_entry_count_part(struct in_flight_entry *entry, struct in_flight_part *part)
{
    uint64_t made = atomic_load_explicit(&part->made, memory_order_relaxed);
    atomic_store_explicit(&part->made, made + 1, memory_order_release);
    entry->burst_from++;
}

struct gate_capture {
    CUstream stream;
    CUcontext context;
    const struct gate_self *thread; /* whose own stream it is, where the handle does not say */
};
#define GATE_CAPTURES 256u
/* A power of two. */
#define GATE_FUNCTIONS 4096u

struct gate {
    /* enum gate_state; a futex. The agent writes it. */
    _Alignas(64) _Atomic uint32_t word;
    /* Under `lock`: how many captures are open. */
    _Atomic uint32_t captures;
    /* The kernel gives no membarrier: threads fence themselves. */
    atomic_bool fenced;
    /* By the agent: the process is registered for membarrier's quick form. */
    bool registered;
    /* The agent waits for the next submission: tell it. */
    atomic_bool resting;

    /* Threads at the closed gate. */
    _Alignas(64) _Atomic uint32_t waiters;
    /* Calls that may pass the closed gate. */
    _Atomic uint32_t steps;
    /* The process's memory is away, or about to leave: the driver does not know its addresses. By the agent, while the
     * gate is closed. */
    atomic_bool is_away;
    /* Threads that wait for a stream to have room. */
    _Atomic uint32_t held;
    /* Threads that wait for a drain to end, to begin a capture. */
    _Atomic uint32_t capture_waiters;
    /* How long threads waited at the gate, since it was last told. */
    _Atomic uint64_t waited_ns;
    /* The same by the length of each wait, as far as nobody was told of it yet. */
    _Atomic uint32_t waits[WAITS_BUCKETS];
    /* What a stream may have before it when a thread adds to it; and as little as the lease allows. */
    _Atomic uint64_t ahead_ns, ahead_least_ns;
    /* Many calls are to be measured, as what they take is being found out; and what is measured may be the time of other sessions. */
    atomic_bool measures, has_company;
    /* The longest that one piece of work took, of late; and when a drain failed last: pieces from before do not count,
     * as they may have waited for what the gate held. */
    _Atomic uint64_t longest_ns, stalled_ns;
    /* How often the gate was closed. */
    _Atomic uint32_t closings;
    /* A bit for each GPU of the policy that has contexts. */
    _Atomic uint64_t gpus;
    /* The agent is. */
    atomic_bool started;
    /* The process ends: the gate stays open, and the agent asks the driver nothing more. */
    atomic_bool ended;

    /* Tells the agent that something has changed. Set before `word` says that there is a gate. */
    void (*poke)(void);

    /* Never held while anything is waited for. */
    pthread_mutex_t lock;
    struct gate_capture capturing[GATE_CAPTURES];
    /* Functions that were launched while the gate was paced, by a hash of their handles: their code is loaded. */
    _Atomic(CUfunction) launched[GATE_FUNCTIONS];
    /* Places used so far. */
    _Atomic uint32_t thread_count, entry_count;
    struct gate_thread threads[GATE_THREADS];
    struct in_flight_entry entries[IN_FLIGHT_ENTRIES];
};
_Static_assert(sizeof(struct gate) <= PRIVATE_GATE_BYTES, "it has room in the private area");

/* Where to look for a function first. */
static inline uint32_t gate_function_place(CUfunction function)
{
    return (uint32_t)((uint64_t)(uintptr_t)function * UINT64_C(0x9e3779b97f4a7c15) >> 40) % GATE_FUNCTIONS;
}

static inline struct gate *gate_in(struct private_area *area)
{
    return (struct gate *)(void *)area->gate;
}
