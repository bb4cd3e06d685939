/* runner.h - runs checks, each in a process of its own with a deadline, beside a daemon that is there for
 * them alone.
 *
 * Everything lives in one folder of its own in TMPDIR; when runner_end() returns, no process and no file of
 * ours is left, whatever the checks did. If this process is killed its children die with it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "gpucheck/check.h"

/* A daemon that does not start is no failure here: what needs no session is checked without it. `gpu`: an
 * index of NVML's or a UUID for CUDA_VISIBLE_DEVICES; NULL for the first one that is visible. Runs of the
 * daemon and of programs take `budget_s` together at most. */
int runner_begin(const char *gpu, double budget_s, struct error *error);

/* {name, claim, outcome: "passed" | "failed" | "not run", reasons: [...], seconds, figures: {NAME: {value,
 * unit} | text}}; NULL after a signal that asked us to end. */
json_t *runner_run(const struct check *check);

/* Leaves nothing behind; also after runner_begin() failed. Returns the daemon's own result, as of a check. */
json_t *runner_end(void);
