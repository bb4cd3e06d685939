/* fake_streams.h - a gate on a driver of a few functions: streams that the test finishes, calls that are counted, and a clock that stands. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/driver_more.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define STREAMS 64u
#define PATIENCE_NS UINT64_C(20000000000)
#define MS UINT64_C(1000000)
/* Of more streams than STREAMS, several have one queue. */
#define STREAM(n) ((CUstream)(uintptr_t)(0x1000 + (n)))
#define CONTEXT(n) ((CUcontext)(uintptr_t)(0x100000 * (n)))
#define STREAMS_CONTEXT                                                                                      \
    CONTEXT(1) /* of all streams but the default ones, of which each context has its own */

extern struct gate *gate;

/* What the clock says while it stands, so that a thread that is not run for a moment takes no time; 0: it runs. */
extern _Atomic uint64_t stands_ns;
void stop_the_clock(void);
void let_the_clock_run(void);
/* What happens while a thread naps, which takes no time but by the clock that stands; NULL: it naps as usual. */
extern void (*while_napping)(void);
/* Threads that say so here are watched, and how often those have looked at the clock. */
extern _Thread_local bool is_watched;
extern atomic_uint watched_looks;

extern atomic_uint calls;              /* that submit */
extern _Atomic uint64_t put[STREAMS];  /* calls on a stream */
extern _Atomic uint64_t done[STREAMS]; /* of these, finished */
extern atomic_bool capturing[STREAMS];
extern atomic_bool blocks_legacy;           /* one of those is a blocking stream */
extern atomic_uint touched_while_capturing; /* events recorded on, or questions about, a captured stream */
extern atomic_bool blocked;                 /* calls that submit do not return */
extern uint64_t way_ns;     /* how long launches are under way to the GPU, by the clock that stands */
extern bool ends_meanwhile; /* what was before the GPU is done by then */
extern uint64_t reach_ns; /* how long it takes until an event behind nothing is reached, by the same clock */
extern atomic_uint pokes; /* of the agent */
extern atomic_uint context_questions; /* that a launch can do without */
struct fake_event {
    CUstream stream;
    CUcontext context;
    bool has_timing;
    _Atomic uint64_t at;
    _Atomic uint64_t recorded_ns;
    atomic_bool was_idle; /* the stream had nothing to do then */
};
extern struct fake_event events[8192];
/* Of both kinds; and questions about streams, and of these about the legacy one. */
extern atomic_uint timed_records, untimed_records, untimed_events, stream_questions, legacy_questions;
extern atomic_uint legacy_records; /* of both kinds, in the legacy stream */
extern atomic_uint
    foreign_records;         /* that the driver refused, as the event is of another context than the stream */
extern atomic_uint refusals; /* so many of the next records are refused, of both kinds */
extern atomic_uint
    ended_overlaps; /* kernels that an event kept from beginning before the work before them had ended */
/* The next launch of this thread is jumped out of, as by a handler of a signal. */
extern _Thread_local bool jumps_out;
extern sigjmp_buf way_out;

unsigned number(CUstream stream);
CUresult submit_any(void);
void install(int id, void *function);

/* For the group: the gate, on this driver. */
int make_gate(void **state);
/* Each test begins with an open gate, nothing before the GPU, and a current context. */
int open_gate(void **state);
void work_stays(void);
CUresult launch_on(CUstream stream);
/* By programmatic stream serialization. */
CUresult launch_overlapping(CUstream stream);
/* Whether it was seen true; a thread that turns back at the gate is inside for a moment. */
bool comes_true(bool (*condition)(void));
bool nobody_is_inside(void);
void close_gate(void);
