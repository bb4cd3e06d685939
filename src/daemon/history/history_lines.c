#include "daemon/history/history_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "daemon/gpu/card.h"
#include "daemon/gpu/nvml.h"
#include "daemon/history/past.h"
#include "daemon/loop/daemon.h"
#include "daemon/schedule/standing.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

/* One percent of a millisecond. */
#define NS_PER_MS_PERCENT UINT64_C(10000)

/* --- Lines ----------------------------------------------------------------------------------------- */

/* Whether a line belongs right behind another. */
static bool may_follow(const struct line *line, const struct line *before)
{
    return line->session == before->session ? line->gpu > before->gpu : line->session > before->session;
}

static bool line_is_valid(const struct lines *lines, size_t at)
{
    const struct line *line = &lines->all[at];
    return (at == 0 || may_follow(line, line - 1)) && (at + 1 == lines->count || may_follow(line + 1, line));
}

bool lines_are_valid(const struct lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        if (!line_is_valid(lines, i))
            return false;
    return lines->count <= lines->room;
}

#define HASH_OF_NOTHING 2166136261u

/* FNV-1a, with the terminating zero, so that one text ends before the next. */
static uint32_t hash_on(uint32_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    while (*text++);
    return hash;
}

/* Have the series written if it is new, has another name or label, or was not written for long: the file would forget it. That is
 * so too when the clock is set. */
static void keep_series(struct lines *lines, struct line *line, const struct session *session)
{
    uint32_t hash = session ? hash_on(hash_on(HASH_OF_NOTHING, session->name), session->properties.label) : 0;
    bool is_recent = lines->at >= line->put_at && lines->at - line->put_at < HISTORY_PUT_SECONDS;
    if (line->words_hash == hash && is_recent)
        return;
    struct history_series *series = calloc(1, sizeof(*series));
    if (!series)
        return;
    line->words_hash = hash;
    line->put_at = lines->at;
    series->id = line->id;
    series->at = lines->at;
    if (session) {
        strcpy(series->session_id, session->id);
        strcpy(series->name, session->name);
        strcpy(series->label, session->properties.label);
        series->owner = session->owner;
        if (line->gpu != LINE_IN_QUEUE)
            session_gpu_uuid(&session->gpus[line->gpu], series->gpu_uuid);
    } else {
        strcpy(series->gpu_uuid, lines->daemon->gpus[line->gpu].uuid_text);
    }
    series->next = lines->series;
    lines->series = series;
}

/* Make a new line at place `at`. NULL without memory. */
static struct line *insert_line(struct lines *lines, size_t at, const struct session *session, unsigned gpu)
{
    if (lines->count == lines->room) {
        size_t room = 2 * lines->room + 16;
        struct line *all = reallocarray(lines->all, room, sizeof(*all));
        if (!all)
            return NULL;
        lines->all = all;
        lines->room = room;
    }
    struct line *line = &lines->all[at];
    memmove(line + 1, line, (lines->count - at) * sizeof(*line));
    lines->count++;
    *line = (struct line){
        .session = session ? session->number : 0, .gpu = gpu, .id = past_next_series(lines->daemon)};
    GS_CHECK(line_is_valid(lines, at));
    return line;
}

struct line *lines_at(struct lines *lines, size_t at, const struct session *session, unsigned gpu)
{
    struct line *line = at < lines->count ? &lines->all[at] : NULL;
    uint64_t number = session ? session->number : 0;
    if (!line || line->session != number || line->gpu != gpu)
        line = insert_line(lines, at, session, gpu);
    if (line)
        keep_series(lines, line, session);
    return line;
}

size_t lines_find(const struct lines *lines, uint64_t session)
{
    size_t low = 0, high = lines->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (lines->all[middle].session < session)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void lines_drop_ended(struct lines *lines)
{
    size_t kept = 0;
    for (size_t i = 0; i < lines->count; i++) {
        struct line *line = &lines->all[i];
        bool is_over = !line->is_there;
        for (int level = SAMPLES_TENS; level < SAMPLES_LEVELS; level++)
            is_over &= line->sums[level].length == 0;
        line->is_there = false;
        if (!is_over)
            lines->all[kept++] = *line;
    }
    lines->count = kept;
    GS_CHECK(lines_are_valid(lines));
}

/* --- Samples --------------------------------------------------------------------------------------- */

static uint64_t rise(uint64_t now, uint64_t *before)
{
    uint64_t by = now > *before ? now - *before : 0;
    *before = now;
    return by;
}

struct sample line_sample_session(struct line *line, const struct session *session)
{
    struct sample sample = {.series = line->id, .processes = session->process_count};
    sample.used_bytes = sample.peak_bytes = session_used(session, line->gpu);
    sample.gpu_ns = rise(standing_used_ns(session, line->gpu), &line->gpu_ns);
    sample.nvml_ns = rise(session->gpus[line->gpu].nvml_ns, &line->nvml_ns);
    if (line->gpu == 0) { /* these two are about the whole session */
        sample.waited_ns = rise(standing_of(session).waited_ns, &line->waited_ns);
        sample.refused = rise(session_refused(session), &line->refused);
    }
    return sample;
}

struct sample line_sample_gpu(const struct line *line, const struct gpu *gpu, uint64_t milliseconds)
{
    struct sample sample = {.series = line->id, .processes = gpu->process_count};
    sample.used_bytes = sample.peak_bytes = gpu->used_bytes;
    sample.gpu_ns =
        gpu->busy_percent > 0 ? (uint64_t)gpu->busy_percent * milliseconds * NS_PER_MS_PERCENT : 0;
    return sample;
}
