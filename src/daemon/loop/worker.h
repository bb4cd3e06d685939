/* worker.h - a helper thread that does what would make the loop wait, one batch at a time.
 *
 * The loop submits jobs; the thread runs all that have gathered, in order; the loop then gets each back
 * through `done`. A job belongs to whoever embeds it; `done` frees it. */
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

/* Run what was submitted, call every `done`, end the thread, free. A thread that has not come to its end
 * after `seconds` is left to the end of the process, and its jobs never come back: then false. */
bool worker_stop(struct worker *worker, unsigned seconds);
