/* runner.h - runs checks, each in a process of its own with a deadline, with a daemon that runs only for them.
 *
 * Everything is in one folder in TMPDIR. When runner_end() returns, no process and no file of ours is left,
 * whatever the checks did. If this process is killed, its children die with it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "gpucheck/check.h"

/* Start. It is not a failure if the daemon does not start: checks that need no session still run. `gpu`: NVML's
 * index or a UUID for CUDA_VISIBLE_DEVICES; NULL for the first visible one. All checks use that GPU alone. All checks together take at most
 * `budget_s`. */
int runner_begin(const char *gpu, double budget_s, struct error *error);

/* Run one check, until `until_s` (by now_s()) at most. Returns {name, claim, outcome: "passed" | "failed" | "not run",
 * reasons: [...], seconds, figures: {NAME: {value, unit} | text}, details: {NAME: text}, stops: whether no other check
 * means anything}; NULL after a signal that asked us to end. */
json_t *runner_run(const struct check *check, double until_s);
/* The result of a check that is not run, because the check of that name has stopped the run. */
json_t *runner_skip(const struct check *check, const char *stopped_by);

/* End the daemon and remove everything; also after runner_begin() failed. Returns a result about the daemon, like
 * that of a check. */
json_t *runner_end(void);
