#include "daemon/api/metrics_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "daemon/api/metrics.h"
#include "daemon/loop/appended.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"
#include "daemon/loop/log.h"
#include "daemon/loop/worker.h"

#define STOP_SECONDS 2
#define TIMER_ACCURACY_USEC UINT64_C(10000)

/* The samples of one moment, on their way to the file. Between submit and done they belong to the helper thread. */
struct batch {
    struct worker_job job;
    struct metrics_file *file;
    char path[PATH_MAX];
    uint64_t bytes_max;
    char *text;
    size_t length;
    struct error error; /* status 0: it has been written */
};

struct metrics_file {
    struct daemon *daemon;
    struct observer observer;
    struct worker *worker; /* NULL before the first file */
    sd_event_source *timer;
    struct deferred *next_piece;
    char path[PATH_MAX]; /* the path that the timer was set for */
    uint64_t interval_seconds;
    struct batch *batch; /* being made, or with the thread; NULL: neither */
    struct metrics_text page;
    FILE *out;       /* into batch->text, while that is being made */
    bool has_failed; /* the last batch failed, and that was reported */
};

/* --- In the helper thread -------------------------------------------------------------------------- */

static void run_batches(struct worker_job *first, void *context)
{
    for (struct worker_job *job = first; job; job = job->next) {
        struct batch *batch = (struct batch *)job;
        appended_add(batch->path, batch->bytes_max, batch->text, batch->length, &batch->error);
    }
}

/* --- In the loop ----------------------------------------------------------------------------------- */

static void free_batch(struct batch *batch)
{
    free(batch->text);
    free(batch);
}

static void on_added(struct worker_job *job)
{
    struct batch *batch = (struct batch *)job;
    struct metrics_file *file = batch->file;
    const bool failed = batch->error.status != 0;
    if (failed && !file->has_failed) {
        log_error("cannot add metrics to their file: %s", batch->error.message);
        change_publish(file->daemon, &(struct change){CHANGE_METRICS_UNWRITTEN},
                       "cannot add metrics to their file until this is mended: %s", batch->error.message);
    } else if (!failed && file->has_failed) {
        log_info("adding metrics to %s again", batch->path);
    }
    file->daemon->failed_writes += failed;
    file->has_failed = failed;
    file->batch = NULL;
    free_batch(batch);
}

static void drop_unfinished(struct metrics_file *file)
{
    if (!file->out)
        return;
    fclose(file->out);
    file->out = NULL;
    free_batch(file->batch);
    file->batch = NULL;
}

static void on_next_piece(void *context)
{
    struct metrics_file *file = context;
    struct batch *batch = file->batch;
    if (metrics_write(&file->page, file->out)) {
        deferred_wake(file->next_piece);
        return;
    }
    const bool is_whole = !ferror(file->out) && fclose(file->out) == 0;
    file->out = NULL;
    if (is_whole) {
        worker_submit(file->worker, &batch->job);
        return;
    }
    log_warning("the metrics are left out of %s once: no memory", batch->path);
    file->batch = NULL;
    free_batch(batch);
}

/* While a disk hangs, one batch is kept; later samples are left out until the disk is back. */
static void begin_batch(struct metrics_file *file)
{
    const struct config_daemon *config = &file->daemon->config.daemon;
    if (file->batch)
        return;
    struct batch *batch = calloc(1, sizeof(*batch));
    if (!batch)
        return;
    batch->job.done = on_added;
    batch->file = file;
    strcpy(batch->path, config->metrics_file);
    batch->bytes_max = config->metrics_file_bytes;
    file->out = open_memstream(&batch->text, &batch->length);
    if (!file->out) {
        free(batch);
        return;
    }
    file->batch = batch;
    file->page = metrics_begin(file->daemon, 0, config->metrics_file_is_json ? METRICS_JSON : METRICS_INFLUX);
    deferred_wake(file->next_piece);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct metrics_file *file = userdata;
    begin_batch(file);
    sd_event_source_set_time_relative(source, file->interval_seconds * 1000000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* Do as the settings say. A batch under way still goes to the old file. */
static int follow_settings(struct metrics_file *file, struct error *error)
{
    const struct config_daemon *config = &file->daemon->config.daemon;
    if (strcmp(file->path, config->metrics_file) == 0 &&
        file->interval_seconds == config->metrics_file_seconds)
        return 0;
    if (*config->metrics_file && !file->worker) {
        int result =
            worker_start(&file->worker, file->daemon->loop, "gpusliced-lines", run_batches, file, error);
        if (result < 0)
            return result;
    }
    strcpy(file->path, config->metrics_file);
    file->interval_seconds = config->metrics_file_seconds;
    file->has_failed = false;
    sd_event_source_set_time_relative(file->timer, 0);
    sd_event_source_set_enabled(file->timer, *file->path ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
    return 0;
}

static void on_change(void *context, const struct change *change)
{
    struct error error;
    if (change->kind == CHANGE_SETTINGS_READ && follow_settings(context, &error) < 0)
        log_error("no metrics are added to a file: %s", error.message);
}

int metrics_file_start(struct daemon *daemon, struct error *error)
{
    struct metrics_file *file = calloc(1, sizeof(*file));
    if (!file)
        return error_set_errno(error, ENOMEM, "cannot write metrics to a file");
    file->daemon = daemon;
    file->observer = (struct observer){.take = on_change, .context = file};
    change_observe(daemon, &file->observer);
    daemon->metrics_file = file;
    int result = sd_event_add_time_relative(daemon->loop, &file->timer, CLOCK_MONOTONIC, 0,
                                            TIMER_ACCURACY_USEC, on_timer, file);
    if (result >= 0)
        result = sd_event_source_set_enabled(file->timer, SD_EVENT_OFF);
    if (result >= 0)
        result = deferred_new(daemon->loop, on_next_piece, file, &file->next_piece);
    if (result < 0)
        return error_set_errno(error, -result, "cannot write metrics to a file");
    return follow_settings(file, error);
}

void metrics_file_stop(struct daemon *daemon)
{
    struct metrics_file *file = daemon->metrics_file;
    if (!file)
        return;
    daemon->metrics_file = NULL;
    change_observe_no_more(daemon, &file->observer);
    sd_event_source_disable_unref(file->timer);
    deferred_free(file->next_piece);
    drop_unfinished(file);
    if (!file->worker || worker_stop(file->worker, STOP_SECONDS))
        free(file);
    else
        log_warning("%s could not be written for %d s; the last metrics may not be in it", file->path,
                    STOP_SECONDS);
}
