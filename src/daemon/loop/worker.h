/* worker.h - a helper thread for work that would make the loop wait, one batch of jobs at a time.
 *
 * The loop submits jobs. The thread runs all jobs that have gathered, in order; the loop then gets each job back
 * through `done`. A job is embedded in a struct of its submitter; `done` frees it. */
#pragma once

#include <stdbool.h>
#include <systemd/sd-event.h>

#include "base/error.h"

struct worker_job {
    struct worker_job *next;
    void (*done)(struct worker_job *job); /* in the loop's thread */
};

struct worker;

/* Start a thread called `name`, which calls `run` with lists of one or more jobs. */
int worker_start(struct worker **worker, sd_event *loop, const char *name,
                 void (*run)(struct worker_job *first, void *context), void *context, struct error *error);

void worker_submit(struct worker *worker, struct worker_job *job);

/* Run what was submitted, call every `done`, end the thread, free. Returns false if the thread has not ended
 * after `seconds`: it is then left to the end of the process, and its jobs never come back. */
bool worker_stop(struct worker *worker, unsigned seconds);
