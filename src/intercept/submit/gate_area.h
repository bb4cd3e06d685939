/* gate_area.h - what the gate remembers, and what is known of the work in flight. All of it lies in the process's
 * private area (private.h); as long as that is zero, the process has no gate.
 *
 * word     the gate's state; every submitting call reads it
 * thread   the place of one thread that has submitted work: tells the agent whether that thread is inside a call
 * call     a call of the program's that gives the GPU work; "piece" is the work of one call
 * entry    what one thread submitted to one stream
 * mark     an event recorded in a stream after some calls; once the GPU has reached it, those calls are done
 * covered  of a call: a mark stands behind it, or it is known to be done
 * burst    the calls that a thread makes between two waits for its stream
 * sample   a mark behind a single call that has another mark right before it, so that the call is measured by itself
 * copy     a call that copies from or to the host; a synchronous one waits for its end. Neither kind takes GPU time from
 *          other sessions
 *
 * Order of locks: a thread that holds one takes only those below it.
 *
 *   gate.lock                to look at other threads' entries, and to begin and end captures
 *   in_flight_entry.lock     one at a time; another thread's only by trylock, since the owner holds it while it records
 *                            a mark, which takes long if the driver's queue is full
 *   in_flight_times.lock
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
#include "intercept/submit/work_spans.h"

enum gate_state {
    GATE_NONE,     /* this process has no gate */
    GATE_FREE,     /* open; work in flight is not bounded */
    GATE_PACED,    /* open; work in flight is bounded by time */
    GATE_DRAINING, /* closed; the agent waits for what was submitted, and no capture begins */
    GATE_CLOSED,   /* closed, and this process has no work before the GPUs */
};

/* What a thread is doing inside the driver; several bits may be set. */
enum gate_inside {
    /* It submits work. */
    GATE_SUBMITS = 1,
    /* It submits one kernel, which takes long only if the driver loads or compiles its code first. */
    GATE_LAUNCHES = 2,
    /* The driver may be loading or compiling code for it, under a lock for which other threads wait. */
    GATE_LOADS = 4,
    /* It names device addresses, and gives the GPU nothing. */
    GATE_NAMES = 8,
    /* With GATE_SUBMITS: several pieces of work, the first of which may begin before the call returns. */
    GATE_PIECES = 16,
    /* With GATE_SUBMITS: a synchronous copy. */
    GATE_COPIES_SYNC = 32,
    /* With GATE_SUBMITS: an asynchronous copy. */
    GATE_COPIES_ASYNC = 64,
    /* With GATE_LAUNCHES: the kernel may begin before the work before it in its stream has ended, unless an event stands
     * between the two. */
    GATE_OVERLAPS = 128,
};

struct gate_thread {
    /* Bits of enum gate_inside, by the owner; 0: it is outside. */
    _Alignas(64) _Atomic uint32_t inside;
    /* 0: the place is free. */
    _Atomic int32_t tid;
};
/* The agent does not wait for threads beyond this number. */
#define GATE_THREADS 16384u

/* Whether the calls of the burst that goes on are measured. */
enum in_flight_burst {
    IN_FLIGHT_BURST_UNKNOWN,  /* the thread does not wait: single calls are measured by chance */
    IN_FLIGHT_BURST_MEASURED, /* all of them are measured */
    IN_FLIGHT_BURST_SKIPPED,  /* none is measured */
};

/* Where in its burst a call stands that is measured by itself. Calls of one place are taken to be like each other. */
enum in_flight_place {
    /* Behind other calls of its burst, or in no burst. */
    IN_FLIGHT_WITHIN,
    /* The first call. It may wait for a slice of the GPU's time. In a measured burst it is always measured, even if few
     * other calls are. */
    IN_FLIGHT_FIRST,
    /* The first call of the first measured burst since the gate was closed: the GPU may have to switch to this process,
     * once in a turn. */
    IN_FLIGHT_AFRESH,
    IN_FLIGHT_PLACES,
};

struct in_flight_mark {
    CUevent event;
    /* CLOCK_MONOTONIC: when the thread began to record this mark, and when it had done so. */
    uint64_t began_ns, recorded_ns;
    /* Calls between the mark before and this one; and how many of these are copies. */
    uint32_t pieces, sync_copies, async_copies;
    /* The GPU had no gap between the mark before and this one, except for `lead_ns`: the time between them is the calls'. */
    bool queued;
    /* The mark before was recorded right before the one call of this mark. */
    bool sample;
    enum in_flight_place place;
    /* In a burst that is not measured: the mark only bounds how much the stream may have before it. */
    bool is_skipped;
    /* For how many ms from when it was recorded the calls of all streams are measured; 0: they were not. */
    uint16_t shared_ms;
    /* Of a sample: how long the call was on its way to the GPU while the GPU, which had reached the mark before, had nothing
     * to do. */
    uint64_t lead_ns;
    /* Of a sample that came to an idle stream: since when its call waited for the GPU, if the GPU did not reach the mark before
     * at once; 0: unknown. */
    uint64_t waits_from_ns;
};
/* Size of the ring. A stream has at most one mark less before it, since the last mark that was reached stays in the ring to
 * measure from. */
#define IN_FLIGHT_MARKS 8u

struct in_flight_entry {
    /* The owner; 0: the place is free; -1: its thread has ended. */
    _Atomic int32_t tid;
    /* NULL: the program has destroyed the stream or its context. */
    _Atomic(CUstream) stream;
    /* Under the gate's lock. */
    _Atomic(CUcontext) context;
    /* By the owner: how many calls it has made. */
    _Atomic uint64_t submitted;
    /* Under `lock`: how many of these are covered. */
    _Atomic uint64_t covered;
    /* Of these calls, the ones that take no GPU time from other sessions. */
    struct in_flight_part {
        /* By the owner. */
        _Atomic uint64_t made;
        /* Written under `lock`, and read by the owner without it: how many of them are covered. */
        _Atomic uint64_t covered;
    } sync_copies, async_copies;
    /* By the owner: `left` + `quick` calls until the next mark. The `quick` ones come first; they are only counted. */
    uint32_t left, quick;
    /* By the owner: the kind of the burst that goes on. `burst_from`: what the thread had submitted when it began, plus its
     * calls since then that are copies. `burst_calls`: how many other calls the burst before had. */
    enum in_flight_burst burst;
    uint64_t burst_from, burst_began_ns;
    uint32_t burst_calls;
    /* By the owner: when the thread had last waited for all that it gave the stream. */
    _Atomic uint64_t waited_ns;
    /* By the owner: the burst is measured, and began with a copy. */
    bool is_behind_copy;
    /* By the owner: how many bursts began; and, under `lock`, how many of these in_flight_take_done() has counted. */
    _Atomic uint64_t bursts;
    uint64_t bursts_told;
    /* By the owner. Not 0: kernels that may begin before the work before them has ended were launched lately. Then a mark that is due
     * is put off until the next call, which shows whether such a kernel follows; and it is put off now. */
    uint16_t overlaps;
    bool is_put_off;
    /* By the owner, while a mark is put off: the stream was seen without work, so the time up to that mark tells nothing. */
    bool has_gap;
    /* By the owner: behind the last mark, the stream waits for a function of the host. */
    bool is_parted;
    /* By the owner: the thread does not wait for the stream, and all calls are measured in the slice of time that goes on
     * (in_flight_slice()); and when a call was last measured that came to the idle stream. */
    bool is_in_slice;
    uint32_t idle_us;
    /* By the owner: how many calls came recently in SAMPLE_EVERY_NS; when the current count began, and how many calls the
     * thread had made by then. */
    uint64_t recent_calls, counted_ns, counted_at;
    /* Under `lock`: how many marks the GPU has not reached. */
    _Atomic uint32_t marks;
    /* Marks did not come in time: nothing is bounded until they do. */
    atomic_bool stuck;
    /* Under `lock`. Not 0: in one of the last VARIES_REPORTS reports at least, some calls took much less than the average. */
    _Atomic uint16_t varies;
    /* Under `lock`: how long a measured call took lately, on average; 0: none was measured. */
    _Atomic uint64_t mean_ns;
    /* By the owner: the gate's `closings` + 1 when the thread last waited for room. 0: since then it has found the stream
     * without work. */
    uint32_t held_at;

    pthread_mutex_t lock;
    /* From here on, all under `lock`. How long the work of a call takes, and how many calls make a mark. */
    struct work_estimate estimate;
    /* Calls that are done and that in_flight_take_done() has not taken yet. */
    struct in_flight_counts {
        /* Measured calls, that is those between two marks without a gap, and for how long the GPU had them, waiting for other
         * sessions included; and `waited_ns` of that, before it began with them. */
        struct in_flight_told {
            uint64_t calls, ns, waited_ns;
        } told[IN_FLIGHT_PLACES];
        /* Calls that were not measured. They are taken to be like the measured ones. */
        uint64_t others;
        /* The least time that a call took, as the mean between two marks; and how many such means there were. */
        uint64_t least_ns, measured;
    } counts;
    /* The latest measured calls and how long they took; older ones count half. The few calls of one report may all be short,
     * and long ones come rarely there, as marks are far apart behind short calls. Calls that begin a turn are counted in
     * reports, but no other calls are taken to be like them. */
    struct in_flight_late {
        double calls, ns, waited_ns;
    } late[IN_FLIGHT_AFRESH];
    uint32_t chance;
    /* Index of the oldest mark that is not reached. */
    uint32_t first;
    /* The driver refused the last event, and is not asked for another one before this time; and for how long it is left alone
     * after a refusal, from the first one on. 0: it has refused none since it last took one. */
    uint64_t refused_until_ns, refused_ns;
    /* The last mark was recorded right before a call, to measure that call; and that call gives the GPU several pieces. */
    bool sampling, samples_pieces;
    /* Where that call stands; and the gate's `closings` when the first call of a burst was last measured. */
    enum in_flight_place sampled_place;
    uint32_t first_at;
    /* Earlier calls, behind which there is no mark, may stand before that mark; and they were not done yet when it was
     * recorded. */
    bool samples_follow, samples_behind;
    /* When the last mark was recorded, when the call behind it that it is to measure returned, and when a mark was last seen
     * to be reached. */
    uint64_t recorded_ns, returned_ns, reached_ns;
    /* The thread was descheduled while it recorded the last mark: nobody knows when the GPU had it. */
    bool recorded_late;
    /* When the last mark was seen not to be reached, right before the call that the next mark is for; 0: it was not. */
    uint64_t behind_ns;
    /* The mark of `reached_ns` had been seen not to be reached a moment before, so that time is exact. */
    bool reached_watched;
    struct in_flight_mark ring[IN_FLIGHT_MARKS];
    /* An event without timing, which is recorded again and again where only the owner can ask about the stream; and the value
     * of `submitted` when it was last recorded. */
    CUevent last;
    uint64_t last_at;
    /* By the owner: the next of its entries. */
    struct in_flight_entry *next;
};
#define IN_FLIGHT_ENTRIES 4096u
/* When work was done is not known in contexts beyond this number. */
#define IN_FLIGHT_CLOCKS 16u

/* When the GPUs reached marks, and when streams had the work that was measured; the latter not while the process has only one. */
struct in_flight_times {
    pthread_mutex_t lock;
    /* From here on, all under `lock`. The clocks of the contexts' GPUs, by CLOCK_MONOTONIC. */
    struct in_flight_clock {
        CUcontext context; /* NULL: the place is free */
        /* About when the GPU reached this event, which was some stream's mark. */
        CUevent origin;
        uint64_t origin_ns;
        /* Since the origin was last moved: how many marks on idle streams were timed; the least time from when one of them
         * began to be recorded until the GPU reached it; and the least from the end of its call until the host knew of it. */
        uint32_t idle_marks;
        uint64_t least_before_ns, least_after_ns;
    } clocks[IN_FLIGHT_CLOCKS];
    struct work_spans spans;
};

/* Launches that may begin before the work before them are expected until so many marks that were put off for them stood before
 * other calls. */
#define IN_FLIGHT_OVERLAPS 64u

static inline bool in_flight_is_default(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* By the owner: one more call was made. */
static inline void in_flight_entry_count(struct in_flight_entry *entry)
{
    uint64_t submitted = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    atomic_store_explicit(&entry->submitted, submitted + 1, memory_order_relaxed);
}

/* By the owner: one more call was made that takes no GPU time from other sessions. Call it before in_flight_entry_count():
 * cover() relies on that order. */
static inline void in_flight_entry_count_part(struct in_flight_entry *entry, struct in_flight_part *part)
{
    uint64_t made = atomic_load_explicit(&part->made, memory_order_relaxed);
    atomic_store_explicit(&part->made, made + 1, memory_order_release);
    entry->burst_from++;
}

struct gate_capture {
    CUstream stream;
    CUcontext context;
    /* The thread, if `stream` is CU_STREAM_PER_THREAD, which is the same handle in all threads. */
    const struct gate_self *thread;
    /* How it was begun, and by which thread, which may have ended since. */
    CUstreamCaptureMode mode;
    const struct gate_self *by;
};
#define GATE_CAPTURES 256u
/* A power of two. */
#define GATE_FUNCTIONS 4096u

struct gate {
    /* enum gate_state; a futex. The agent writes it. */
    _Alignas(64) _Atomic uint32_t word;
    /* Under `lock`: how many captures are open. */
    _Atomic uint32_t captures;
    /* The kernel has no membarrier: each thread that submits executes a fence itself. */
    atomic_bool fenced;
    /* By the agent: the process is registered for the fast form of membarrier. */
    bool registered;
    /* The agent waits for the next submission: wake it. */
    atomic_bool resting;

    /* How many threads wait at the closed gate. */
    _Alignas(64) _Atomic uint32_t waiters;
    /* How many calls may pass the closed gate. */
    _Atomic uint32_t steps;
    /* By the agent, while the gate is closed: the process's memory is away, or about to leave, so the driver does not know its
     * addresses. */
    atomic_bool is_away;
    /* How many threads wait for room in a stream. */
    _Atomic uint32_t held;
    /* How many threads wait for the end of a drain, to begin a capture. */
    _Atomic uint32_t capture_waiters;
    /* How long threads waited at the gate since the agent last reported it. */
    _Atomic uint64_t waited_ns;
    /* How many waits of each length there were since the agent last reported them. */
    _Atomic uint32_t waits[WAITS_BUCKETS];
    /* How much work a stream may have before it when a thread adds to it; and the least value that the lease allows. */
    _Atomic uint64_t ahead_ns, ahead_least_ns;
    /* Many calls are to be measured, since the daemon is learning what they take; and what is measured may include time that
     * other sessions had the GPU. */
    atomic_bool measures, has_company;
    /* Nobody asks what calls take: marks only keep what is before the GPU within bounds. */
    atomic_bool only_bounds;
    /* The program has put a function of the host into a stream. */
    atomic_bool has_host_functions;
    /* How often other threads' own default streams were taken for done since the legacy stream was: nobody promises that its
     * query sees them. And how many of these times are proven since, by asking for a whole context. */
    _Atomic uint64_t doubts, proven_doubts;
    /* Not 0: in one of the last PARALLEL_TAKES calls of in_flight_take_done(), several streams had work. */
    _Atomic uint16_t parallel;
    /* The least chance with which a stream's calls were measured then, of IN_FLIGHT_CHANCES: all streams' calls are in a slice
     * of less. And the same since then; 0: unknown. */
    _Atomic uint32_t shared_chance, least_chance;
    /* The longest that one piece of work took recently; and when a drain last failed. Pieces from before that do not count,
     * as they may have waited for work that the gate held back. */
    _Atomic uint64_t longest_ns, stalled_ns;
    /* How often the gate was closed. */
    _Atomic uint32_t closings;
    /* One bit for each GPU of the policy on which the process has contexts. */
    _Atomic uint64_t gpus;
    /* The agent's thread was started. */
    atomic_bool started;
    /* The process ends: the gate stays open, and the agent no longer asks the driver anything. */
    atomic_bool ended;

    /* Tells the agent that something has changed. Set before `word` says that there is a gate. */
    void (*poke)(void);

    struct in_flight_times times;
    /* No thread waits for anything while it holds this lock. */
    pthread_mutex_t lock;
    struct gate_capture capturing[GATE_CAPTURES];
    /* Functions that were launched while the gate was paced, by a hash of their handles: their code is loaded. */
    _Atomic(CUfunction) launched[GATE_FUNCTIONS];
    /* How many places of `threads` and `entries` were used so far. */
    _Atomic uint32_t thread_count, entry_count;
    struct gate_thread threads[GATE_THREADS];
    struct in_flight_entry entries[IN_FLIGHT_ENTRIES];
};
_Static_assert(sizeof(struct gate) <= PRIVATE_GATE_BYTES, "it has room in the private area");

/* The index in `launched` at which to look for a function first. */
static inline uint32_t gate_function_place(CUfunction function)
{
    return (uint32_t)((uint64_t)(uintptr_t)function * UINT64_C(0x9e3779b97f4a7c15) >> 40) % GATE_FUNCTIONS;
}

static inline struct gate *gate_in(struct private_area *area)
{
    return (struct gate *)(void *)area->gate;
}

/* The process's gate; NULL if it has none. */
static inline struct gate *gate_of(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return area && atomic_load_explicit(&gate_in(area)->word, memory_order_relaxed) != GATE_NONE
               ? gate_in(area)
               : NULL;
}
