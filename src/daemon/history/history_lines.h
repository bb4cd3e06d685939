/* history_lines.h - the series that are being sampled: one line for each GPU, then one for each session on each of its GPUs,
 * in the order of the daemon's list. A session in the queue has one of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/history/history_file.h"
#include "daemon/history/samples.h"
#include "ledger/ledger.h"

struct daemon;
struct gpu;
struct session;

/* In place of a GPU: the session is in the queue. */
#define LINE_IN_QUEUE LEDGER_GPUS

/* One series that is being sampled. */
struct line {
    uint64_t session; /* the session's number; 0: a whole GPU */
    unsigned gpu;     /* LINE_IN_QUEUE, or index in the session's policy, or of the daemon's GPUs */
    uint32_t id;
    uint32_t words_hash;                          /* of the name and label that the file has */
    int64_t put_at;                               /* when the series was put into the file last; 0: never */
    uint64_t gpu_ns, nvml_ns, waited_ns, refused; /* the counters at the last sample */
    /* What a session that ended within this tick used since its last sample. */
    struct sample pending;
    struct sample_sum sums[SAMPLES_LEVELS]; /* per level; the first is not used */
    bool is_there;
};

struct lines {
    struct daemon *daemon;
    int64_t at; /* of the sample under way, in seconds since 1970 */
    struct line *all;
    size_t count, room;
    struct history_series *series; /* to be put into the file; newest first; the caller takes them */
};

/* Whether the lines are in their order, and each has a number of its own in the file. */
bool lines_are_valid(const struct lines *lines);

/* The index of the first line of this session or of a later one. */
size_t lines_find(const struct lines *lines, uint64_t session);
/* The line of the session's GPU, or with `session` NULL of the daemon's: the one at `at`, or a new one there. NULL
 * without memory. */
struct line *lines_at(struct lines *lines, size_t at, const struct session *session, unsigned gpu);
/* Drop each line whose `is_there` was not set since the last call, unless some of its samples are still to be written. */
void lines_drop_ended(struct lines *lines);

/* What the series did since its last sample; of a GPU, `milliseconds` ago. */
struct sample line_sample_session(struct line *line, const struct session *session);
struct sample line_sample_gpu(const struct line *line, const struct gpu *gpu, uint64_t milliseconds);
