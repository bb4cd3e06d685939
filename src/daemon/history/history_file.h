/* history_file.h - the history's own SQLite file: series and ticks (samples.h), as many as may be kept. What has happened is
 * in the same file: history_records.h.
 *
 * It is separate from the state file because nothing depends on it: it is written without waiting for the disk, and a
 * damaged one is put aside and a new one begun. Only the history's helper thread uses it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "config/session_properties.h"
#include "cuda/uuid.h"
#include "daemon/history/samples.h"
#include "daemon/session/identity.h"

struct history_file;

struct history_series {
    struct history_series *next;
    uint32_t id;
    char session_id[SESSION_ID_TEXT]; /* "": the whole GPU */
    char name[SESSION_NAME_TEXT];
    char label[PROPERTY_LABEL_TEXT];
    uid_t owner;
    char gpu_uuid[GPU_UUID_TEXT]; /* "": of a session while it is in the queue */
    int64_t at;                   /* when it was sampled, in seconds since 1970 */
};

/* A tick, as part of a list of ticks to be written. */
struct history_tick {
    struct history_tick *next;
    enum samples_level level;
    int64_t at;            /* its end, in seconds since 1970 */
    uint32_t milliseconds; /* its length */
    struct sample_bytes row;
};

void history_ticks_free(struct history_tick *ticks);

/* A series that is sampled is written again after so long. One that is not written again is removed with its last tick. */
#define HISTORY_PUT_SECONDS 3600

/* The most that is kept. */
struct history_bounds {
    uint64_t bytes;
    uint32_t days;
    uint32_t records; /* of each kind (history_records.h) */
};

/* Open or make the file. `*next_series` is a number that no series in the file has. */
int history_file_open(const char *path, struct history_file **file, uint32_t *next_series,
                      struct error *error);
void history_file_close(struct history_file *file);

/* Write series (new ones, with a new name or label, or once more) and ticks: all or none. */
int history_file_append(struct history_file *file, const struct history_series *series,
                        const struct history_tick *ticks, struct error *error);

/* Remove what is too old at `now`; then, until the file is within its bound of bytes, the oldest of what the user has who
 * has most in it. */
int history_file_prune(struct history_file *file, int64_t now, const struct history_bounds *bounds,
                       struct error *error);
/* How many bytes its series and ticks take. */
uint64_t history_file_bytes(struct history_file *file);

/* Call `take` for each series, sorted by session and GPU, and then oldest first. */
int history_file_list(struct history_file *file,
                      void (*take)(const struct history_series *series, void *context), void *context,
                      struct error *error);

/* Call `take` for the ticks that end after `from` and not after `to`, oldest first. Each moment is in one tick only, of
 * the finest level that is still kept for it. */
int history_file_read(struct history_file *file, int64_t from, int64_t to,
                      void (*take)(const struct history_tick *tick, void *context), void *context,
                      struct error *error);
/* The length of the longest tick that history_file_read() would find. */
uint32_t history_file_step(struct history_file *file, int64_t from, int64_t to);
