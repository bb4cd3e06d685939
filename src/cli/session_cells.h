/* session_cells.h - what several verbs print about sessions and GPUs, and how they ask for it. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "cli/cli.h"
#include "cli/table.h"
#include "client/session_create.h"

/* GET `path`, of a daemon that must be running. */
int cells_get(const char *path, const struct cli_arguments *arguments, json_t **answer, struct error *error);

/* The same of a daemon that is started where none runs. */
int cells_get_started(const char *path, const struct cli_arguments *arguments, json_t **answer,
                      struct error *error);

/* Tells what goes on, a line on stderr each. */
extern const struct session_progress cells_progress;

/* Print any answer as --json does. */
void cells_print_json(const json_t *answer);

/* A GPU's index; "gone" where the card is not there any more, and with it its index. */
void cells_gpu(struct table_cell *cell, const json_t *gpu);

/* The owner of a session by name, or by number. */
void cells_owner(struct table_cell *cell, const json_t *session);

/* A GPU's name, without the maker's. */
void cells_gpu_name(struct table_cell *cell, const json_t *gpu);

/* The part of a GPU's time that a session got in the last ten seconds, of a scheduler's or a session's GPU.
 * "-" where nothing is measured: there are no shares, or it has no work. */
void cells_achieved(struct table_cell *cell, const json_t *session, const json_t *gpu);

/* A session's speed of late as part of its speed alone, and what was promised of it; "-" where nothing is measured. */
void cells_speed(struct table_cell *cell, const json_t *session);

/* ", about 12 s" for how long a session should still wait, or its move should still take; "" where that cannot be told. Returns `text`. */
#define CELLS_WAIT_TEXT 48
const char *cells_wait(const json_t *session, char text[static CELLS_WAIT_TEXT]);

/* Seconds of a GPU's time, in all. */
void cells_gpu_time(struct table_cell *cell, const json_t *gpu, const char *key);

/* Two cells: the bar, and "used / limit". */
void cells_usage(struct table_cell cells[static 2], uint64_t used, uint64_t limit);
