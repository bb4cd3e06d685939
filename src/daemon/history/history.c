#include "daemon/history/history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/saturating.h"
#include "daemon/gpu/card.h"
#include "daemon/history/ended.h"
#include "daemon/history/history_file.h"
#include "daemon/history/history_lines.h"
#include "daemon/history/history_query.h"
#include "daemon/history/past.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"
#include "daemon/residency/moves.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

#define NS_PER_MS UINT64_C(1000000)
#define SECOND_USEC UINT64_C(1000000)
#define ACCURACY_USEC UINT64_C(50000)
#define PRUNE_SECONDS 60
/* If the loop was held up for longer than this, so was the whole machine: nobody knows what was used then. */
#define TICK_MS_MAX 60000
/* How many samples are taken in one go; a sample is of a session on one GPU. */
#define SAMPLES_AT_ONCE 128

/* The tick of each level that is under way. */
struct level {
    uint64_t milliseconds; /* how long it is so far */
};

/* The samples of one second, while they are being taken: of some sessions in each round of the loop, because there may
 * be thousands. */
struct pass {
    bool is_under_way;
    int64_t before; /* the time of the last pass */
    uint64_t milliseconds;
    struct history_tick *tick; /* NULL without memory */
    uint64_t session;          /* the last session that was sampled: its number, and its ID */
    char session_id[SESSION_ID_TEXT];
};

struct history {
    struct daemon *daemon;
    struct observer observer;
    sd_event_source *timer;
    struct deferred *next_part;
    struct pass pass;
    struct lines lines;
    struct level levels[SAMPLES_LEVELS];
    int64_t last_at, flushed_at, pruned_at;  /* seconds since 1970 */
    uint64_t last_ms;                        /* by the clock that does not jump */
    struct history_tick *ticks, **ticks_end; /* not handed to the thread yet */
};

static bool history_is_valid(const struct history *history)
{
    const struct pass *pass = &history->pass;
    return *history->ticks_end == NULL &&
           (history->ticks == NULL) == (history->ticks_end == &history->ticks) &&
           history->lines.at == history->last_at && (pass->is_under_way || (!pass->tick && !pass->session));
}

/* --- The thread ------------------------------------------------------------------------------------ */

struct history_job {
    struct past_job job;
    struct history_series *series;
    struct history_tick *ticks;
    struct history_bounds bounds; /* days 0: prune nothing */
    history_done done;            /* NULL: nobody asks */
    void *argument;
    int (*query)(struct history_file *file, const struct history_ask *ask, json_t **answer,
                 struct error *error);
    struct history_ask ask;
    char *answer; /* JSON */
};

static void answer(struct history_file *file, struct history_job *job)
{
    json_t *answer = NULL;
    struct error *error = &job->job.error;
    if (job->query(file, &job->ask, &answer, error) < 0)
        return;
    error->status = 0;
    job->answer = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(answer);
    if (!job->answer)
        error_set_errno(error, ENOMEM, "cannot read the history");
}

static void run_job(struct history_file *file, struct past_job *past_job)
{
    struct history_job *job = (struct history_job *)past_job;
    int result = 0;
    if (job->series || job->ticks)
        result = history_file_append(file, job->series, job->ticks, &past_job->error);
    if (result == 0 && job->bounds.days)
        result = history_file_prune(file, time(NULL), &job->bounds, &past_job->error);
    if (job->query)
        answer(file, job);
}

static void free_series(struct history_series *series)
{
    while (series) {
        struct history_series *next = series->next;
        free(series);
        series = next;
    }
}

static void on_job_done(struct past_job *past_job)
{
    struct history_job *job = (struct history_job *)past_job;
    if (job->done)
        job->done(job->argument, job->answer, &past_job->error);
    free_series(job->series);
    history_ticks_free(job->ticks);
    free(job->answer);
    free(job);
}

/* Make a job with everything that waits to be written. NULL without memory. */
static struct history_job *make_job(struct history *history)
{
    struct history_job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    GS_CHECK(history_is_valid(history));
    job->job.run = run_job;
    job->job.done = on_job_done;
    job->series = history->lines.series;
    job->ticks = history->ticks;
    history->lines.series = NULL;
    history->ticks = NULL;
    history->ticks_end = &history->ticks;
    history->flushed_at = history->last_at;
    return job;
}

static void flush(struct history *history)
{
    const struct config_daemon *config = &history->daemon->config.daemon;
    struct history_job *job = make_job(history);
    if (!job)
        return; /* it is written next time, with what comes until then */
    if (history->last_at - history->pruned_at >= PRUNE_SECONDS) {
        job->bounds = (struct history_bounds){
            .bytes = config->history_bytes, .days = config->history_days, .records = config->history_records};
        history->pruned_at = history->last_at;
    }
    past_submit(history->daemon, &job->job);
}

/* --- Samples --------------------------------------------------------------------------------------- */

static struct history_tick *make_tick(struct history *history, enum samples_level level)
{
    struct history_tick *tick = calloc(1, sizeof(*tick));
    if (!tick)
        return NULL;
    tick->level = level;
    tick->at = history->last_at;
    tick->milliseconds = (uint32_t)history->levels[level].milliseconds;
    history->levels[level].milliseconds = 0;
    return tick;
}

/* The tick is complete: the thread may have it. */
static void keep_tick(struct history *history, struct history_tick *tick)
{
    if (!tick)
        return;
    *history->ticks_end = tick;
    history->ticks_end = &tick->next;
    GS_CHECK(!tick->next && tick->at <= history->last_at);
}

static void write_sample(struct history_tick *tick, const struct sample *sample)
{
    if (tick && !sample_is_nothing(sample))
        samples_write(&tick->row, sample);
}

static void keep_sample(struct line *line, const struct sample *sample, uint64_t milliseconds,
                        struct history_tick *tick)
{
    line->is_there = true;
    write_sample(tick, sample);
    for (int level = SAMPLES_TENS; level < SAMPLES_LEVELS; level++)
        sample_sum_add(&line->sums[level], sample, milliseconds);
}

static bool sample_gpus(struct history *history)
{
    const struct daemon *daemon = history->daemon;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        struct line *line = lines_at(&history->lines, i, NULL, i);
        if (!line)
            return false;
        struct sample sample = line_sample_gpu(line, &daemon->gpus[i], history->pass.milliseconds);
        keep_sample(line, &sample, history->pass.milliseconds, history->pass.tick);
    }
    return true;
}

/* What the session did on one of its GPUs since its last sample. */
static struct sample sample_session(struct line *line, struct session *session, uint64_t milliseconds)
{
    struct sample sample = line_sample_session(line, session);
    ended_add_sample(session, &sample);
    if (line->gpu == 0 && session->move && moves_standing(session).waits) {
        ended_add_room_wait(session, milliseconds * NS_PER_MS);
        sample.waited_ns = saturating_add(sample.waited_ns, milliseconds * NS_PER_MS);
    }
    return sample;
}

/* A session in the queue has no GPU, and waits. */
static bool sample_queued(struct history *history, const struct session *session)
{
    struct line *line =
        lines_at(&history->lines, lines_find(&history->lines, session->number), session, LINE_IN_QUEUE);
    if (!line)
        return false;
    struct sample sample = {.series = line->id, .waited_ns = history->pass.milliseconds * NS_PER_MS};
    keep_sample(line, &sample, history->pass.milliseconds, history->pass.tick);
    return true;
}

static bool sample_session_gpus(struct history *history, struct session *session)
{
    size_t at = lines_find(&history->lines, session->number);
    uint64_t bytes = 0;
    if (session->state == SESSION_QUEUED)
        return sample_queued(history, session);
    for (unsigned i = 0; i < session->gpu_count; i++, at++) {
        struct line *line = lines_at(&history->lines, at, session, i);
        if (!line)
            return false;
        struct sample sample = sample_session(line, session, history->pass.milliseconds);
        bytes = saturating_add(bytes, sample.used_bytes);
        keep_sample(line, &sample, history->pass.milliseconds, history->pass.tick);
    }
    ended_see_bytes(session, bytes);
    ended_keep_totals(session, false);
    return true;
}

/* Sample the next sessions, in the order of the lines. Returns whether there are more. */
static bool sample_part(struct history *history)
{
    struct pass *pass = &history->pass;
    for (unsigned samples = 0; samples < SAMPLES_AT_ONCE;) {
        struct session *session = session_behind(history->daemon, pass->session_id, pass->session);
        if (!session || !sample_session_gpus(history, session))
            return false;
        pass->session = session->number;
        strcpy(pass->session_id, session->id);
        samples += 1 + session->gpu_count + session->process_count;
    }
    return true;
}

/* Write what sessions that ended within the tick used in it. */
static void write_ended(struct history *history, uint64_t milliseconds, struct history_tick *tick)
{
    for (size_t i = 0; i < history->lines.count; i++) {
        struct line *line = &history->lines.all[i];
        if (sample_is_nothing(&line->pending))
            continue;
        line->pending.series = line->id;
        write_sample(tick, &line->pending);
        for (int level = SAMPLES_TENS; level < SAMPLES_LEVELS; level++)
            sample_sum_add(&line->sums[level], &line->pending, milliseconds);
        line->pending = (struct sample){0};
    }
}

static void end_level(struct history *history, enum samples_level level)
{
    struct history_tick *tick = make_tick(history, level);
    for (size_t i = 0; i < history->lines.count; i++) {
        struct sample sample = sample_sum_take(&history->lines.all[i].sums[level], history->lines.all[i].id);
        write_sample(tick, &sample);
    }
    keep_tick(history, tick);
}

/* The second that ends about now: a timer may be a little early or late. */
static int64_t nearest_second(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec + (now.tv_nsec >= 500000000);
}

static void end_pass(struct history *history)
{
    struct pass *pass = &history->pass;
    int64_t now = history->last_at;
    GS_CHECK(pass->is_under_way && history_is_valid(history));
    write_ended(history, pass->milliseconds, pass->tick);
    keep_tick(history, pass->tick);
    for (int level = SAMPLES_TENS; level < SAMPLES_LEVELS; level++) {
        uint32_t step = samples_levels[level].step_seconds;
        if (now / step != pass->before / step)
            end_level(history, (enum samples_level)level);
    }
    lines_drop_ended(&history->lines);
    *pass = (struct pass){.is_under_way = false};
    if (now - history->flushed_at >= HISTORY_FLUSH_SECONDS || now < history->flushed_at)
        flush(history);
}

static void on_next_part(void *context)
{
    struct history *history = context;
    if (!history->pass.is_under_way) /* finish_pass() has finished it */
        return;
    if (sample_part(history))
        deferred_wake(history->next_part);
    else
        end_pass(history);
}

static void finish_pass(struct history *history)
{
    if (!history->pass.is_under_way)
        return;
    while (sample_part(history))
        ;
    end_pass(history);
}

/* End a tick of a second, and start to sample for it; longer ticks end with it where the time says so. */
static void begin_pass(struct history *history)
{
    int64_t now = nearest_second(), before = history->last_at;
    uint64_t now_ms = monotonic_ns() / 1000000, milliseconds = now_ms - history->last_ms;
    if (now == before || history->pass.is_under_way)
        return;
    if (milliseconds > TICK_MS_MAX)
        milliseconds = TICK_MS_MAX;
    history->last_at = history->lines.at = now;
    history->last_ms = now_ms;
    for (int level = 0; level < SAMPLES_LEVELS; level++)
        history->levels[level].milliseconds += milliseconds;
    history->pass = (struct pass){.is_under_way = true,
                                  .before = before,
                                  .milliseconds = milliseconds,
                                  .tick = make_tick(history, SAMPLES_SECONDS)};
    GS_CHECK(history_is_valid(history));
    if (sample_gpus(history))
        deferred_wake(history->next_part);
    else
        end_pass(history);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct history *history = userdata;
    begin_pass(history);
    /* Fire when the next second of the wall clock begins, so that ticks end where minutes do. The timer is relative, so
     * it does not wait longer if that clock is set back. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    sd_event_source_set_time_relative(source, SECOND_USEC - (uint64_t)now.tv_nsec / 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* What a session used since its last sample counts too. */
static void end_session(struct history *history, struct session *session)
{
    size_t at = lines_find(&history->lines, session->number);
    for (unsigned i = 0; i < session->gpu_count; i++, at++) {
        struct line *line = lines_at(&history->lines, at, session, i);
        if (!line)
            return;
        line->pending = sample_session(line, session, 0);
    }
}

static void on_change(void *context, const struct change *change)
{
    if (change->kind == CHANGE_SESSION_ENDED)
        end_session(context, change->session);
}

/* --- Questions ------------------------------------------------------------------------------------- */

int history_ask(struct daemon *daemon, enum history_question question, struct history_ask *ask,
                int64_t since_seconds, history_done done, void *argument, struct error *error)
{
    struct history *history = daemon->history;
    if (!history)
        return error_set(error, ENOENT, "ERR_NOT_FOUND",
                         "the daemon keeps no history; set 'history-days' in gpuslice.conf");
    struct history_job *job = make_job(history);
    if (!job)
        return error_set_errno(error, ENOMEM, "cannot read the history");
    ask->to = history->last_at;
    ask->from = ask->to - since_seconds;
    job->done = done;
    job->argument = argument;
    job->query = question == HISTORY_USAGE ? history_query_usage : history_query_plot;
    job->ask = *ask;
    job->job.is_question = true;
    past_submit(daemon, &job->job);
    return 0;
}

/* --- Start and end --------------------------------------------------------------------------------- */

int history_start(struct daemon *daemon, struct error *error)
{
    if (!past_is_kept(daemon))
        return 0;
    struct history *history = calloc(1, sizeof(*history));
    if (!history)
        return error_set_errno(error, ENOMEM, "cannot keep a history");
    history->daemon = daemon;
    history->lines.daemon = daemon;
    history->ticks_end = &history->ticks;
    history->last_at = history->lines.at = history->flushed_at = nearest_second();
    history->last_ms = monotonic_ns() / 1000000;
    int result = sd_event_add_time_relative(daemon->loop, &history->timer, CLOCK_MONOTONIC, SECOND_USEC,
                                            ACCURACY_USEC, on_timer, history);
    if (result >= 0)
        result = deferred_new(daemon->loop, on_next_part, history, &history->next_part);
    if (result < 0) {
        sd_event_source_disable_unref(history->timer);
        free(history);
        return error_set_errno(error, -result, "cannot keep a history");
    }
    history->observer = (struct observer){.take = on_change, .context = history};
    change_observe(daemon, &history->observer);
    daemon->history = history;
    return 0;
}

void history_stop(struct daemon *daemon)
{
    struct history *history = daemon->history;
    if (!history)
        return;
    change_observe_no_more(daemon, &history->observer);
    finish_pass(history);
    begin_pass(history);
    finish_pass(history);
    for (struct session *session = daemon->sessions; session; session = session->next)
        ended_keep_totals(session, true);
    flush(history);
    sd_event_source_disable_unref(history->timer);
    deferred_free(history->next_part);
    daemon->history = NULL;
    free_series(history->lines.series);
    history_ticks_free(history->ticks);
    free(history->lines.all);
    free(history);
}
