/* round.h - what is done when the loop's round is over.
 *
 * round   one callback of the loop, from its call to its return
 *
 * In the middle of a round nothing is freed that its functions may still hold, and no session ends because its
 * last process has gone: both wait for the end, so that a check never finds its object gone. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#include "base/error.h"

struct daemon;

/* Embedded in what it is about, and zero at first. */
struct round_task {
    STAILQ_ENTRY(round_task) next;
    bool waits;
    void (*run)(void *argument);
    void *argument;
};

/* Call `run` when the round is over; once, however often it is asked for in one round. Tasks run in the order
 * in which they were first asked for. */
void round_at_end(struct daemon *daemon, struct round_task *task, void (*run)(void *argument),
                  void *argument);

/* Run all tasks now: where no loop runs. */
void round_end(struct daemon *daemon);

int round_start(struct daemon *daemon, struct error *error);
void round_stop(struct daemon *daemon); /* runs what is left */
