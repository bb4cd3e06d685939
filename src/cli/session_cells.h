/* session_cells.h - what several verbs print about sessions and GPUs, and how they ask for it. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "cli/table.h"
#include "client/session_create.h"

/* GET `path`. Fails if no daemon is running. */
int cells_get(const char *path, const struct cli_arguments *arguments, json_t **answer, struct error *error);

/* Prints what goes on to stderr, a line each. */
extern const struct session_progress cells_progress;

/* Print any answer in the form of --json. */
void cells_print_json(const json_t *answer);

/* A GPU's index; "gone" when the card, and with it its index, no longer exists. */
void cells_gpu(struct table_cell *cell, const json_t *gpu);

/* The owner of a session by name, or by number if it has no name. */
void cells_owner(struct table_cell *cell, const json_t *session);

/* What the session does, in one word, with its place in the queue and how long it will probably wait. */
void cells_status(struct table_cell *cell, const json_t *session);

/* A GPU's name, without "NVIDIA". */
void cells_gpu_name(struct table_cell *cell, const json_t *gpu);

/* The part of a GPU's time that a session got in the last ten seconds; `gpu` is from a session or from the
 * scheduler. "~" before what NVML shows, where there are no shares; "-" if the session has no work. */
void cells_achieved(struct table_cell *cell, const json_t *session, const json_t *gpu);

/* A session's recent speed as part of its speed alone, and the part that it was promised; "-" if it is not
 * measured. */
void cells_speed(struct table_cell *cell, const json_t *session);

/* ", about 12 s": how long the session will probably still wait, or its move still take; "" if that is unknown.
 * Returns `text`. */
#define CELLS_WAIT_TEXT 48
const char *cells_wait(const json_t *session, char text[static CELLS_WAIT_TEXT]);

/* ", by ana (gpuslice, pid 4711)": who asked for something, as `field` of `object` says; "" where nobody did, or nobody knows.
 * Returns `text`. */
#define CELLS_ASKER_TEXT 128
const char *cells_asker(const json_t *object, const char *field, char text[static CELLS_ASKER_TEXT]);

/* A user's name, or the number of one without a name. Returns `text`. */
#define CELLS_USER_TEXT 40
const char *cells_user(uid_t uid, char text[static CELLS_USER_TEXT]);

/* Print a line of a page about a session: what, and its value. */
void cells_print_fact(const char *what, const char *value, bool colour);
/* The lines with its ID, and its name where that is another; and with its share, its priority and its labels. */
void cells_print_names(const json_t *session, bool colour);
void cells_print_promise(const json_t *session, bool colour);

/* "0.3s", "2m 05s", "1h 03m". Returns `text`. */
#define CELLS_DURATION_TEXT 32
const char *cells_duration(double seconds, char text[static CELLS_DURATION_TEXT]);

/* Seconds of a GPU's time, in total. */
void cells_gpu_time(struct table_cell *cell, const json_t *gpu, const char *key);

/* Two cells: the bar, and "used / limit". */
void cells_usage(struct table_cell cells[static 2], uint64_t used, uint64_t limit);
