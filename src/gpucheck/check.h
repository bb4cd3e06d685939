/* check.h - what a check is, and how it reports what it found.
 *
 * check     a named claim about the driver, the card, or GPU Slice on them, with a function that tests it. Each check
 *           runs in a process of its own, with a deadline
 * part      another process that a check starts, in a session or outside, and talks with by lines
 * figure    a measured number with its unit (or a text), kept whatever the outcome
 * outcome   passed, failed (with reasons), or not run (with the reason): a check that did not run proves nothing
 *
 * A check that ends without reporting a failure has passed. One that crashes or exceeds its deadline has failed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpucheck/driver.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum check_place {
    CHECK_OUTSIDE, /* in no session */
    CHECK_SESSION, /* in a session of CHECK_QUOTA_BYTES on the GPU */
};
/* Room for the context of any card (some 600 MiB) and for what checks hold, and less than what they ask for in
 * vain. */
#define CHECK_QUOTA_BYTES (2 * GIB)
/* The most that checks take at one time, outside and inside sessions together, so this much must be free. */
#define CHECK_FREE_BYTES (4 * GIB)

struct check {
    const char *name;
    enum check_place place;
    unsigned deadline_s;
    const char *claim; /* one sentence */
    void (*run)(const struct check *check);
};
extern const struct check checks[]; /* checks.def; ends with a NULL name */

/* What a check's process was told on its command line; its parts get the same. */
struct settings {
    bool simulated;
    double end_s; /* the check's deadline, by now_s(); parts know none */
};
extern struct settings settings;

/* Bytes or counts: `card` on a card, `simulated` on the simulated GPU, whose memory is the host's. */
static inline uint64_t scaled(uint64_t card, uint64_t simulated)
{
    return settings.simulated ? simulated : card;
}

/* --- Reporting. Names are lower_case; the unit is separate ("GB/s", "us", "bytes"). -------------------- */

void figure(const char *name, double value, const char *unit);
void figure_text(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A detail is kept with the results, but the table does not show it. */
void detail(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A question of the check that could not be put here, and why: the figure is a text that says so. */
#define NOT_TRIED "not tried: "
void could_not_try(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The claim does not hold. The check goes on, as there may be more to report. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, and the process ends. */
_Noreturn void fail_and_end(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The claim does not hold, and no other check can mean anything here. The process ends, and so does the run. */
_Noreturn void fail_and_stop(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Something that the check needs does not exist here. The process ends. */
_Noreturn void not_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For driver calls that must succeed: a failure is the check's, and ends the process. */
#define must(call) must_succeed(#call, call)
void must_succeed(const char *call, CUresult result);
const char *result_name(CUresult result); /* "CUDA_SUCCESS" */

/* --- Often needed ---------------------------------------------------------------------------------- */

/* Open the driver and make the GPU's primary context current. When this returns, the driver has taken all memory
 * that the context needs, and in a session the daemon has counted it. */
void open_context(void);
/* Wait until the free memory has been the same for 0.25 s, for 3 s at most: the daemon samples what the driver took
 * up to 100 ms after the event. Returns what is free. */
uint64_t settle(void);
/* A kernel of examples/kernels.ptx. */
CUfunction load_kernel(const char *name);
uint64_t free_bytes(void); /* cuMemGetInfo */

double now_s(void); /* CLOCK_MONOTONIC */
/* Whether the machine's CPUs were less than a tenth idle since the last call, or since boot at the first call. Then
 * a process's part of the GPU proves nothing: a process that does not run on a CPU cannot launch. */
bool cpus_are_busy(void);
/* Whether the check's deadline is further away than that. For checks that repeat something: what they have seen so far
 * counts, and a check that exceeds its deadline has failed. */
bool has_time(double seconds);
void sleep_s(double seconds);
/* A quantile of `count` values, which it sorts. */
double quantile(double *values, unsigned count, double fraction);
#define median(values, count) quantile(values, count, 0.5)
