#include "daemon/loop/round.h"

#include <errno.h>
#include <stdlib.h>
#include <systemd/sd-event.h>

#include "base/check.h"
#include "daemon/loop/daemon.h"

/* Before everything else that waits in the loop. */
#define PRIORITY (SD_EVENT_PRIORITY_IMPORTANT - 10)

struct round {
    STAILQ_HEAD(, round_task) tasks;
    sd_event_source *end;
};

void round_end(struct daemon *daemon)
{
    struct round *round = daemon->round;
    while (round && !STAILQ_EMPTY(&round->tasks)) {
        struct round_task *task = STAILQ_FIRST(&round->tasks);
        STAILQ_REMOVE_HEAD(&round->tasks, next);
        task->waits = false;
        task->run(task->argument);
    }
}

static int on_end(sd_event_source *source, void *userdata)
{
    round_end(userdata);
    return 0;
}

int round_start(struct daemon *daemon, struct error *error)
{
    struct round *round = calloc(1, sizeof(*round));
    int result = round ? sd_event_add_defer(daemon->loop, &round->end, on_end, daemon) : -ENOMEM;
    if (result >= 0)
        result = sd_event_source_set_enabled(round->end, SD_EVENT_OFF);
    if (result >= 0)
        result = sd_event_source_set_priority(round->end, PRIORITY);
    if (result < 0) {
        free(round);
        return error_set_errno(error, -result, "cannot watch the loop's rounds");
    }
    STAILQ_INIT(&round->tasks);
    daemon->round = round;
    return 0;
}

void round_at_end(struct daemon *daemon, struct round_task *task, void (*run)(void *argument), void *argument)
{
    if (task->waits)
        return;
    GS_CHECK(daemon->round);
    *task = (struct round_task){.waits = true, .run = run, .argument = argument};
    STAILQ_INSERT_TAIL(&daemon->round->tasks, task, next);
    sd_event_source_set_enabled(daemon->round->end, SD_EVENT_ONESHOT);
}

void round_stop(struct daemon *daemon)
{
    round_end(daemon);
    if (!daemon->round)
        return;
    sd_event_source_disable_unref(daemon->round->end);
    free(daemon->round);
    daemon->round = NULL;
}
