#include "daemon/history/past.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/worker.h"

#define STOP_SECONDS 5

struct past {
    struct history_file *file; /* the thread's when it runs */
    struct worker *worker;
    uint32_t next_series;
    bool has_failed;       /* the last write failed, and that was told */
    struct batch *writing; /* the thread has it; NULL: none */
    struct history_record *gathered, **gathered_end;
    unsigned gathered_count;
};

/* Records on their way to the file. */
struct batch {
    struct past_job job;
    struct history_record *records;
};

static void run_jobs(struct worker_job *first, void *context)
{
    for (struct worker_job *at = first; at; at = at->next) {
        struct past_job *job = (struct past_job *)at;
        job->run(context, job);
    }
}

/* Told once, until a write succeeds again. */
static void tell_failure(struct past *past, const struct past_job *job)
{
    bool had_failed = past->has_failed;
    past->has_failed = job->error.status != 0;
    job->daemon->failed_writes += past->has_failed;
    if (had_failed || !past->has_failed)
        return;
    log_error("a part of the history is lost: %s", job->error.message);
    change_publish(job->daemon, &(struct change){CHANGE_HISTORY_UNWRITTEN},
                   "%s; what happens until it can be written again is not kept", job->error.message);
}

static void on_done(struct worker_job *worker_job)
{
    struct past_job *job = (struct past_job *)worker_job;
    if (!job->is_question && job->daemon->past)
        tell_failure(job->daemon->past, job);
    job->done(job);
}

bool past_is_kept(const struct daemon *daemon)
{
    return daemon->past;
}

static void submit(struct daemon *daemon, struct past_job *job)
{
    job->daemon = daemon;
    job->job.done = on_done;
    worker_submit(daemon->past->worker, &job->job);
}

/* --- Records --------------------------------------------------------------------------------------- */

static void free_records(struct history_record *records)
{
    while (records) {
        struct history_record *next = records->next;
        free(records);
        records = next;
    }
}

static void write_batch(struct history_file *file, struct past_job *job)
{
    history_records_put(file, ((struct batch *)job)->records, &job->error);
}

static void submit_gathered(struct daemon *daemon);

static void on_written(struct past_job *job)
{
    struct batch *batch = (struct batch *)job;
    struct daemon *daemon = job->daemon;
    if (daemon->past && daemon->past->writing == batch) {
        daemon->past->writing = NULL;
        submit_gathered(daemon);
    }
    free_records(batch->records);
    free(batch);
}

static void submit_gathered(struct daemon *daemon)
{
    struct past *past = daemon->past;
    struct batch *batch = past->gathered ? calloc(1, sizeof(*batch)) : NULL;
    if (!batch)
        return; /* they are written with the next */
    batch->job.run = write_batch;
    batch->job.done = on_written;
    batch->records = past->gathered;
    past->gathered = NULL;
    past->gathered_end = &past->gathered;
    past->gathered_count = 0;
    past->writing = batch;
    submit(daemon, &batch->job);
}

void past_keep(struct daemon *daemon, struct history_record *record)
{
    struct past *past = daemon->past;
    if (!past || past->gathered_count == PAST_WAITING_MAX) {
        free(record);
        return;
    }
    record->next = NULL;
    *past->gathered_end = record;
    past->gathered_end = &record->next;
    past->gathered_count++;
    if (!past->writing)
        submit_gathered(daemon);
}

/* --- Jobs ------------------------------------------------------------------------------------------ */

void past_submit(struct daemon *daemon, struct past_job *job)
{
    submit_gathered(daemon); /* a question sees all that has happened */
    submit(daemon, job);
}

void past_read_totals(const struct daemon *daemon,
                      void (*take)(const char *session_id, const char *text, void *context), void *context)
{
    struct error error;
    if (history_records_totals(daemon->past->file, take, context, &error) < 0)
        log_error("what sessions used under earlier daemons is not counted: %s", error.message);
}

uint32_t past_next_series(struct daemon *daemon)
{
    return daemon->past->next_series++;
}

int past_start(struct daemon *daemon, struct error *error)
{
    char path[PATH_MAX + 16];
    struct error why;
    if (daemon->config.daemon.history_days == 0)
        return 0;
    struct past *past = calloc(1, sizeof(*past));
    if (!past)
        return error_set_errno(error, ENOMEM, "cannot keep a history");
    snprintf(path, sizeof(path), "%s/history.db", daemon->paths.state_dir);
    if (history_file_open(path, &past->file, &past->next_series, &why) < 0) {
        log_error("the daemon keeps no history: %s", why.message);
        free(past);
        return 0;
    }
    int result = worker_start(&past->worker, daemon->loop, "gpusliced-past", run_jobs, past->file, error);
    if (result < 0) {
        history_file_close(past->file);
        free(past);
        return result;
    }
    past->gathered_end = &past->gathered;
    daemon->past = past;
    return 0;
}

void past_stop(struct daemon *daemon)
{
    struct past *past = daemon->past;
    if (!past)
        return;
    submit_gathered(daemon);
    daemon->past = NULL;
    if (!worker_stop(past->worker, STOP_SECONDS)) {
        log_error("the history could not be written for %d s; its last seconds are lost", STOP_SECONDS);
        return;
    }
    history_file_close(past->file);
    free_records(past->gathered);
    free(past);
}
