/* history.h - how much sessions and GPUs used as time went by: one sample of each a second, kept in a file of
 * its own for a month and within a bound of bytes (samples.h, history_file.h).
 *
 * The loop takes samples and adds them up; a helper thread writes and reads the file. What was not written
 * when the daemon is killed, HISTORY_FLUSH_SECONDS at most, is lost. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "daemon/history/history_query.h"

#define HISTORY_FLUSH_SECONDS 10

struct daemon;

/* Begin to follow the daemon. Where the file cannot be used, or the settings say so, nothing is kept, which is
 * no error. */
int history_start(struct daemon *daemon, struct error *error);
/* Write what there is, answer who waits, and end. */
void history_stop(struct daemon *daemon);

/* Told in the loop's thread: the answer as JSON, written by the helper thread, as it may be long; or in `error`, of which
 * the status is not 0, why there is none. */
typedef void (*history_done)(void *argument, const char *answer, const struct error *error);

enum history_question { HISTORY_PLOT, HISTORY_USAGE };

/* Ask about the last `since_seconds`, up to the last sample; `ask` says what but not when. */
int history_ask(struct daemon *daemon, enum history_question question, struct history_ask *ask,
                int64_t since_seconds, history_done done, void *argument, struct error *error);
