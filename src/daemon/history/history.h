/* history.h - how much sessions and GPUs used over time: one sample of each per second, kept in a file of its own for
 * `history-days` and within a bound of bytes (samples.h, history_file.h).
 *
 * The loop takes samples and adds them up; a helper thread writes and reads the file. If the daemon is killed, what it has
 * not written yet is lost: HISTORY_FLUSH_SECONDS at most. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "daemon/history/history_query.h"

#define HISTORY_FLUSH_SECONDS 10

struct daemon;

/* Start to follow the daemon. If the file cannot be used, or the settings say so, no history is kept; that is not an
 * error. */
int history_start(struct daemon *daemon, struct error *error);
/* Write what is left, answer those who wait, and end. */
void history_stop(struct daemon *daemon);

/* Called in the loop's thread. `answer` is JSON, which the helper thread writes, because it may be long; if `error` has
 * a status other than 0, it says why there is no answer. */
typedef void (*history_done)(void *argument, const char *answer, const struct error *error);

enum history_question { HISTORY_PLOT, HISTORY_USAGE };

/* Ask about the last `since_seconds`, up to the last sample. `ask` says what is asked for; its times are filled in
 * here. */
int history_ask(struct daemon *daemon, enum history_question question, struct history_ask *ask,
                int64_t since_seconds, history_done done, void *argument, struct error *error);
