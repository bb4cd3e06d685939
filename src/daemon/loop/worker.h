/* worker.h - a helper thread for work that would make the loop wait, one batch of jobs at a time.
 *
 * The loop submits jobs. The thread runs all jobs that have gathered, in order; the loop then gets each job back
 * through `done`. A job is embedded in a struct of its submitter; `done` frees it.
 *
 * Where users' jobs take long, the thread takes turns among the users instead (job_turns.h), one job at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/error.h"
#include "daemon/loop/job.h"

struct worker;

/* Start a thread called `name`, which calls `run` with lists of one or more jobs. */
int worker_start(struct worker **worker, sd_event *loop, const char *name,
                 void (*run)(struct worker_job *first, void *context), void *context, struct error *error);

/* The same, with turns: `run` is called with one job each time. */
int worker_start_in_turns(struct worker **worker, sd_event *loop, const char *name,
                          void (*run)(struct worker_job *first, void *context), void *context,
                          struct error *error);

void worker_submit(struct worker *worker, struct worker_job *job);

/* Run what was submitted, call every `done`, end the thread, free. Returns false if the thread has not ended
 * after `seconds`: it is then left to the end of the process, and its jobs never come back. */
bool worker_stop(struct worker *worker, unsigned seconds);
