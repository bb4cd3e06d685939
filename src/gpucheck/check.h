/* check.h - what a check is, and how it says what it found.
 *
 * check     a named claim about the driver, the card, or GPU Slice on them, with a function that finds out. Each
 *           runs in a process of its own, which has until its deadline
 * part      another process that a check starts and talks with by lines, in a session or outside
 * figure    a measured number with its unit (or a text), kept whatever the outcome
 * outcome   passed, failed (with reasons), or not run (with why): a check that did not run proves nothing
 *
 * A check that ends without a word has passed; one that crashes, or outlives its deadline, has failed. */
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
/* Room for a context of any card (some 600 MiB), for what is held, and less than what is asked for in vain.
 */
#define CHECK_QUOTA_BYTES (2 * GIB)
/* What checks take at most at one time, outside and inside together, and so want free. */
#define CHECK_FREE_BYTES (4 * GIB)

struct check {
    const char *name;
    enum check_place place;
    unsigned deadline_s;
    const char *claim; /* one sentence */
    void (*run)(const struct check *check);
};
extern const struct check checks[]; /* checks.def; ends with a NULL name */

/* What a check's process was told; the same in its parts. */
struct settings {
    bool simulated;
};
extern struct settings settings;

/* Bytes or counts for a card, or for the simulated GPU, whose memory is the host's. */
static inline uint64_t scaled(uint64_t card, uint64_t simulated)
{
    return settings.simulated ? simulated : card;
}

/* --- Saying what was found. Names are lower_case with a unit of its own column ("GB/s", "us", "bytes"). ---- */

void figure(const char *name, double value, const char *unit);
void figure_text(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What is kept with the results and not shown in the table. */
void detail(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The claim does not hold. The check goes on, for there may be more to say. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* ... and the process ends. */
_Noreturn void fail_and_end(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What the check needs is not here. */
_Noreturn void not_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For driver calls that have to succeed. */
#define must(call) must_succeed(#call, call)
void must_succeed(const char *call, CUresult result);
const char *result_name(CUresult result); /* "CUDA_SUCCESS" */

/* --- Often needed ---------------------------------------------------------------------------------- */

/* The driver, and the primary context of the GPU, current. Its memory has all been taken, and in a session
 * counted, when this returns. */
void open_context(void);
/* Until what is free has been the same for a while: in a session the daemon's sample of what the driver took
 * besides comes up to 100 ms after the event. Returns what is free. */
uint64_t settle(void);
/* One of examples/kernels.ptx. */
CUfunction load_kernel(const char *name);
uint64_t free_bytes(void); /* cuMemGetInfo */

double now_s(void); /* CLOCK_MONOTONIC */
/* Whether the machine's CPUs were less than a tenth idle since the last call, or since they started: what a
 * process gets of a GPU says nothing then, as who is not run cannot launch. */
bool cpus_are_busy(void);
void sleep_s(double seconds);
/* Of `count` values, which are put in order. */
double quantile(double *values, unsigned count, double fraction);
#define median(values, count) quantile(values, count, 0.5)
