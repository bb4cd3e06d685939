#include "daemon/history/past_questions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/history/past.h"

/* A question, and its answer while it is written. */
struct question {
    struct past_job job;
    struct history_events_ask events_ask;
    struct history_ended_ask ended_ask;
    past_events_done events_done;
    past_ended_done ended_done;
    void *argument;
    FILE *out;
    char *text;
    size_t length;
    unsigned count;
};

static struct question *begin(struct daemon *daemon, void *argument, struct error *error)
{
    struct question *question = past_is_kept(daemon) ? calloc(1, sizeof(*question)) : NULL;
    if (!past_is_kept(daemon))
        error_set(error, ENOENT, "ERR_NOT_FOUND",
                  "the daemon keeps no history; set 'history-days' in gpuslice.conf");
    else if (!question)
        error_set_errno(error, ENOMEM, "cannot read the history");
    if (!question)
        return NULL;
    question->job.is_question = true;
    question->argument = argument;
    return question;
}

static bool open_answer(struct question *question)
{
    question->out = open_memstream(&question->text, &question->length);
    if (!question->out)
        error_set_errno(&question->job.error, ENOMEM, "cannot read the history");
    return question->out;
}

static void close_answer(struct question *question)
{
    if (fclose(question->out) != 0 && question->job.error.status == 0)
        error_set_errno(&question->job.error, ENOMEM, "cannot read the history");
}

static void free_question(struct question *question)
{
    free(question->text);
    free(question);
}

/* --- Events ---------------------------------------------------------------------------------------- */

static void write_event(const struct history_record *record, void *context)
{
    struct question *question = context;
    fprintf(question->out, "id: %" PRIu64 "-%" PRIu64 "\ndata: %s\n\n", record->epoch, record->number,
            record->text);
    question->events_ask.epoch = record->epoch;
    question->events_ask.number = record->number;
    question->count++;
}

static void read_events(struct history_file *file, struct past_job *job)
{
    struct question *question = (struct question *)job;
    const struct history_events_ask ask = question->events_ask;
    if (!open_answer(question))
        return;
    history_records_events(file, &ask, write_event, question, &job->error);
    close_answer(question);
}

static void answer_events(struct past_job *job)
{
    struct question *question = (struct question *)job;
    const struct past_events events = {.text = question->text ? question->text : "",
                                       .epoch = question->events_ask.epoch,
                                       .number = question->events_ask.number,
                                       .may_be_more = question->count == question->events_ask.most};
    question->events_done(question->argument, &events, &job->error);
    free_question(question);
}

int past_ask_events(struct daemon *daemon, const struct history_events_ask *ask, past_events_done done,
                    void *argument, struct error *error)
{
    struct question *question = begin(daemon, argument, error);
    if (!question)
        return past_is_kept(daemon) ? -ENOMEM : -ENOENT;
    question->job.run = read_events;
    question->job.done = answer_events;
    question->events_ask = *ask;
    question->events_done = done;
    past_submit(daemon, &question->job);
    return 0;
}

/* --- Sessions that have ended ---------------------------------------------------------------------- */

static void write_ended(const char *text, void *context)
{
    struct question *question = context;
    fprintf(question->out, "%s%s", question->count++ ? "," : "", text);
}

static void read_ended(struct history_file *file, struct past_job *job)
{
    struct question *question = (struct question *)job;
    if (!open_answer(question))
        return;
    fputs("{\"sessions\":[", question->out);
    history_records_ended(file, &question->ended_ask, write_ended, question, &job->error);
    fputs("]}", question->out);
    close_answer(question);
}

static void answer_ended(struct past_job *job)
{
    struct question *question = (struct question *)job;
    question->ended_done(question->argument, question->text, &job->error);
    free_question(question);
}

int past_ask_ended(struct daemon *daemon, const struct history_ended_ask *ask, past_ended_done done,
                   void *argument, struct error *error)
{
    struct question *question = begin(daemon, argument, error);
    if (!question)
        return past_is_kept(daemon) ? -ENOMEM : -ENOENT;
    question->job.run = read_ended;
    question->job.done = answer_ended;
    question->ended_ask = *ask;
    question->ended_done = done;
    past_submit(daemon, &question->job);
    return 0;
}
