/* history_lines.h - the series that are under way: one line for each GPU, then one for each session on each of its GPUs,
 * as the daemon's list has them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/history/history_file.h"
#include "daemon/history/samples.h"

struct daemon;
struct gpu;
struct session;

/* One series under way. */
struct line {
    uint64_t session; /* its number; 0: a whole GPU */
    unsigned gpu;     /* index in the session's policy, or of the daemon's GPUs */
    uint32_t id;
    uint32_t name_hash;                     /* of the name that the file has */
    uint64_t gpu_ns, waited_ns, refused;    /* as they stood at the last sample */
    struct sample pending;                  /* of sessions that ended within this tick: added to it */
    struct sample_sum sums[SAMPLES_LEVELS]; /* the first is not used */
    bool is_there;
};

struct lines {
    const struct daemon *daemon;
    struct line *all;
    size_t count, room;
    uint32_t next_series;
    uint64_t oldest_new;           /* the number of the first session that was not there at the start */
    struct history_series *series; /* new, or with another name; newest first; for the caller to take */
};

/* The first line of this session or of a later one. */
size_t lines_find(const struct lines *lines, uint64_t session);
/* The line of the session's GPU, or with NULL of the daemon's: at `at`, or made there. NULL without memory. */
struct line *lines_at(struct lines *lines, size_t at, const struct session *session, unsigned gpu);
/* Lines of which `is_there` was not set since the last call go, once nothing of them is left to be written. */
void lines_drop_ended(struct lines *lines);

/* What the series did since its last sample, `milliseconds` ago. */
struct sample line_sample_session(struct line *line, const struct session *session, uint64_t milliseconds);
struct sample line_sample_gpu(const struct line *line, const struct gpu *gpu, uint64_t milliseconds);
