/* past.h - the history's file, and the helper thread that alone reads and writes it.
 *
 * It is there before sessions are restored, so that it has what happens to them then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "daemon/history/history_file.h"
#include "daemon/history/history_records.h"
#include "daemon/loop/job.h"

struct daemon;

/* Part of a struct of its submitter. */
struct past_job {
    struct worker_job job;
    /* In the helper thread. On failure it sets `job->error`. */
    void (*run)(struct history_file *file, struct past_job *job);
    /* In the loop's thread; frees the job. `error.status` 0: it did not fail. */
    void (*done)(struct past_job *job);
    struct daemon *daemon;
    bool is_question; /* its submitter tells of its failure */
    struct error error;
};

/* Open the file and start the thread. If the file cannot be used, or the settings say so, no history is kept; that is
 * not an error. */
int past_start(struct daemon *daemon, struct error *error);
/* Write what was submitted, answer those who wait, and end. */
void past_stop(struct daemon *daemon);

/* Whether a history is kept. Without one, no job may be submitted. */
bool past_is_kept(const struct daemon *daemon);
void past_submit(struct daemon *daemon, struct past_job *job);

/* Have a record written, with what else has gathered when the thread is free; freed then. Without a history it is freed at
 * once. While a disk hangs, PAST_WAITING_MAX wait, and further ones are lost. */
#define PAST_WAITING_MAX 10000
void past_keep(struct daemon *daemon, struct history_record *record);

/* Read the totals that earlier daemons left. Only before a first job. */
void past_read_totals(const struct daemon *daemon,
                      void (*take)(const char *session_id, const char *text, void *context), void *context);

/* A number that no series in the file has; each call gives the next. */
uint32_t past_next_series(struct daemon *daemon);
