/* round.h - what is done at the end of the loop's round.
 *
 * round   one callback of the loop, from its call to its return
 *
 * Functions hold pointers to sessions and processes throughout a round. So nothing is freed in the middle of one, and no
 * session ends because its last process has gone: both wait for the end of the round, and a function that checks an
 * object always finds it. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#include "base/error.h"

struct daemon;

/* Embedded in the object that the task is about, and zero at first. */
struct round_task {
    STAILQ_ENTRY(round_task) next;
    bool waits;
    void (*run)(void *argument);
    void *argument;
};

/* Call `run` when the round is over. Once, however often it is asked for within a round. Tasks run in the order
 * in which they were first asked for. */
void round_at_end(struct daemon *daemon, struct round_task *task, void (*run)(void *argument),
                  void *argument);

/* Run all tasks now, for callers outside the loop. */
void round_end(struct daemon *daemon);

int round_start(struct daemon *daemon, struct error *error);
void round_stop(struct daemon *daemon); /* runs the tasks that are left */
