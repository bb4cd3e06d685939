/* sessions.h - what the verbs about sessions share: making one from options, and showing one. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"
#include "cli/table.h"
#include "client/client.h"

/* Judge --memory against --gpu: a GPU set apart must be one that is named; and --ttl. */
int sessions_check_options(const struct cli_arguments *arguments, struct error *error);

/* The body that asks for what the options say: for POST, or with only what they name, for PATCH. Without
 * --gpu, the GPUs that --memory sets apart, or else, where `visible_devices` (a value of
 * CUDA_VISIBLE_DEVICES) is not NULL, its. */
int sessions_body(const struct cli_arguments *arguments, const char *visible_devices, json_t **body,
                  struct error *error);

/* Start a daemon if need be, and make a session from the options, waiting for room if --wait says so: then
 * stderr tells the place in the line. `run`: it belongs to this process. */
int sessions_create(struct client *client, const struct cli_arguments *arguments, bool run, json_t **session,
                    struct error *error);

/* GET `path`, of a daemon that must be running. */
int sessions_get(const char *path, const struct cli_arguments *arguments, json_t **answer,
                 struct error *error);

/* A field of a session, GPU or process; 0 or "" where the daemon sent something else. */
uint64_t sessions_number(const json_t *object, const char *field);
const char *sessions_text(const json_t *object, const char *field);

/* Print any answer as --json does. */
void sessions_print_json(const json_t *answer);

/* A GPU's index; "gone" where the card is not there any more, and with it its index. */
void sessions_gpu_cell(struct table_cell *cell, const json_t *gpu);

/* A GPU's name, without the maker's. */
void sessions_gpu_name_cell(struct table_cell *cell, const json_t *gpu);

/* The share of compute that a session was given, as --compute takes it. */
const char *sessions_share(const json_t *session, char text[static UNITS_SHARE_TEXT]);

/* The part of a GPU's time that a session got in the last ten seconds, of a scheduler's or a session's GPU.
 * "-" where nothing is measured: there are no shares, or it has no work. */
void sessions_achieved_cell(struct table_cell *cell, const json_t *session, const json_t *gpu);

/* Two cells: the bar, and "used / limit". */
void sessions_usage_cells(struct table_cell cells[static 2], uint64_t used, uint64_t limit);

/* "2026-01-31 12:00:00 UTC" from the API's "2026-01-31T12:00:00Z", with a fraction of the second if it has
 * one. */
#define SESSIONS_TIME_TEXT 32
const char *sessions_time(const char *time, char text[static SESSIONS_TIME_TEXT]);
