#include "daemon/history/history_query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND 1e9
#define MS_PER_SECOND 1e3
#define HOUR_SECONDS 3600.0
/* How many values of each kind an answer for plots has of sessions at most: lines times points. */
#define VALUES_MAX (HISTORY_SESSIONS_MAX * HISTORY_POINTS_MAX)

/* What the samples of one group add up to, in a stretch of time. */
struct amount {
    double byte_seconds, seconds;
    uint64_t peak_bytes, gpu_ns, nvml_ns, waited_ns, refused, processes;
};

/* The series that make up one line of the answer: those of one session and GPU; for usage, those of one
 * session, user or GPU. */
struct group {
    struct history_series first; /* one of its series, for what all of them have in common */
    struct amount all;
    size_t number;       /* its place before sorting */
    int64_t tick;        /* the last tick that it had a sample in */
    uint64_t tick_bytes; /* the sum of its peaks in that tick */
    uint64_t tick_processes;
    /* For a line of a plot: */
    double session_byte_seconds; /* of all lines of its session */
    bool is_shown;
    struct amount *points; /* NULL: it is not shown */
};

struct query {
    const struct history_ask *ask;
    struct group *groups;
    size_t group_count;
    int32_t *group_of; /* by the series' number; -1: not asked for */
    size_t series_room;
    bool (*is_same)(const struct query *query, const struct history_series *a,
                    const struct history_series *b);
    bool is_out_of_memory;
    /* For a plot: */
    int64_t step;
    size_t point_count;
    double *covered; /* how many seconds the ticks cover, per point */
};

/* --- Which series ---------------------------------------------------------------------------------- */

static bool is_same_line(const struct query *query, const struct history_series *a,
                         const struct history_series *b)
{
    return strcmp(a->session_id, b->session_id) == 0 && strcmp(a->gpu_uuid, b->gpu_uuid) == 0;
}

static bool is_same_usage(const struct query *query, const struct history_series *a,
                          const struct history_series *b)
{
    if (query->ask->by == HISTORY_BY_USER)
        return a->owner == b->owner;
    if (query->ask->by == HISTORY_BY_GPU)
        return strcmp(a->gpu_uuid, b->gpu_uuid) == 0;
    return strcmp(a->session_id, b->session_id) == 0;
}

static bool may_see(const struct history_ask *ask, const struct history_series *series)
{
    if (ask->session_id[0])
        return strcmp(series->session_id, ask->session_id) == 0 &&
               (ask->uid == 0 || ask->uid == series->owner);
    return !series->session_id[0] || ask->uid == 0 || ask->uid == series->owner;
}

/* Series come sorted by session and GPU, so those of one session are neighbours; users and GPUs are few. */
static struct group *find_group(struct query *query, const struct history_series *series)
{
    bool are_neighbours = query->is_same == is_same_line || query->ask->by == HISTORY_BY_SESSION;
    size_t first = are_neighbours && query->group_count ? query->group_count - 1 : 0;
    for (size_t i = query->group_count; i-- > first;)
        if (query->is_same(query, &query->groups[i].first, series))
            return &query->groups[i];
    struct group *groups = reallocarray(query->groups, query->group_count + 1, sizeof(*groups));
    if (!groups)
        return NULL;
    query->groups = groups;
    groups[query->group_count] = (struct group){.first = *series, .number = query->group_count};
    return &groups[query->group_count++];
}

static void take_series(const struct history_series *series, void *context)
{
    struct query *query = context;
    bool needs_gpu = query->is_same == is_same_line || query->ask->by == HISTORY_BY_GPU;
    bool is_wanted =
        may_see(query->ask, series) &&
        (needs_gpu ? series->gpu_uuid[0] && (query->is_same == is_same_line || series->session_id[0])
                   : series->session_id[0]);
    if (series->id >= query->series_room) {
        size_t room = series->id + 1 + series->id / 2;
        int32_t *group_of = reallocarray(query->group_of, room, sizeof(*group_of));
        if (!group_of) {
            query->is_out_of_memory = true;
            return;
        }
        memset(group_of + query->series_room, 0xff, (room - query->series_room) * sizeof(*group_of));
        query->group_of = group_of;
        query->series_room = room;
    }
    struct group *group = is_wanted ? find_group(query, series) : NULL;
    if (!group) {
        query->is_out_of_memory |= is_wanted;
        return;
    }
    strcpy(group->first.name, series->name); /* the latest name and label */
    strcpy(group->first.label, series->label);
    query->group_of[series->id] = (int32_t)(group - query->groups);
}

/* --- Adding up ------------------------------------------------------------------------------------- */

static void add_sample(struct amount *amount, const struct sample *sample, double seconds)
{
    amount->byte_seconds += (double)sample->used_bytes * seconds;
    amount->gpu_ns += sample->gpu_ns;
    amount->nvml_ns += sample->nvml_ns;
    amount->waited_ns += sample->waited_ns;
    amount->refused += sample->refused;
}

static void add_peaks(struct group *group, struct amount *amount)
{
    if (group->tick_bytes > amount->peak_bytes)
        amount->peak_bytes = group->tick_bytes;
    if (group->tick_processes > amount->processes)
        amount->processes = group->tick_processes;
}

static struct group *group_of(const struct query *query, uint32_t series)
{
    return series < query->series_room && query->group_of[series] >= 0
               ? &query->groups[query->group_of[series]]
               : NULL;
}

static void take_tick(const struct history_tick *tick, void *context)
{
    struct query *query = context;
    struct sample sample;
    size_t at = 0;
    while (samples_read(tick->row.bytes, tick->row.length, &at, &sample)) {
        struct group *group = group_of(query, sample.series);
        if (!group)
            continue;
        if (group->tick != tick->at) {
            group->tick = tick->at;
            group->tick_bytes = group->tick_processes = 0;
            group->all.seconds += sample.processes ? tick->milliseconds / MS_PER_SECOND : 0;
        }
        group->tick_bytes += sample.peak_bytes;
        group->tick_processes += sample.processes;
        add_sample(&group->all, &sample, tick->milliseconds / MS_PER_SECOND);
        add_peaks(group, &group->all);
    }
}

/* If the loop was held up, a tick covers several points: each gets an equal part. */
static void take_tick_of_plot(const struct history_tick *tick, void *context)
{
    struct query *query = context;
    struct sample sample;
    int64_t last = (tick->at - 1 - query->ask->from) / query->step;
    double seconds = tick->milliseconds / MS_PER_SECOND;
    int64_t parts = (int64_t)(seconds / (double)query->step + 0.5);
    parts = parts < 1 ? 1 : parts > last + 1 ? last + 1 : parts;
    for (int64_t point = last; point > last - parts; point--) {
        size_t at = 0;
        if ((size_t)point >= query->point_count)
            continue;
        query->covered[point] += seconds / (double)parts;
        while (samples_read(tick->row.bytes, tick->row.length, &at, &sample)) {
            struct group *group = group_of(query, sample.series);
            if (!group || !group->points)
                continue;
            group->tick_bytes = sample.peak_bytes;
            group->tick_processes = sample.processes;
            sample.gpu_ns /= (uint64_t)parts;
            sample.nvml_ns /= (uint64_t)parts;
            sample.waited_ns /= (uint64_t)parts;
            sample.refused = point == last ? sample.refused : 0;
            add_sample(&group->points[point], &sample, seconds / (double)parts);
            add_peaks(group, &group->points[point]);
        }
    }
}

static int run_query(struct query *query, struct history_file *file, struct error *error)
{
    int result = history_file_list(file, take_series, query, error);
    if (result == 0 && query->is_out_of_memory)
        result = error_set_errno(error, ENOMEM, "cannot read the history");
    if (result == 0)
        result = history_file_read(file, query->ask->from, query->ask->to, take_tick, query, error);
    return result;
}

static void free_query(struct query *query)
{
    for (size_t i = 0; i < query->group_count; i++)
        free(query->groups[i].points);
    free(query->groups);
    free(query->group_of);
    free(query->covered);
}

static bool is_empty(const struct amount *amount)
{
    return amount->peak_bytes == 0 && amount->gpu_ns == 0 && amount->nvml_ns == 0 && amount->waited_ns == 0 &&
           amount->refused == 0 && amount->processes == 0;
}

static void sort_groups(struct query *query, int (*compare)(const void *a, const void *b))
{
    size_t *places = calloc(query->group_count + 1, sizeof(*places));
    query->is_out_of_memory |= !places;
    if (!places || !query->group_count)
        goto free_places;
    qsort(query->groups, query->group_count, sizeof(*query->groups), compare);
    for (size_t i = 0; i < query->group_count; i++)
        places[query->groups[i].number] = i;
    for (size_t i = 0; i < query->series_room; i++)
        if (query->group_of[i] >= 0)
            query->group_of[i] = (int32_t)places[query->group_of[i]];
free_places:
    free(places);
}

static json_t *bytes_json(double bytes)
{
    return json_integer(bytes >= (double)INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

static json_t *count_json(uint64_t count)
{
    return json_integer(count > INT64_MAX ? INT64_MAX : (json_int_t)count);
}

/* --- Plots ----------------------------------------------------------------------------------------- */

static json_t *line_json(const struct query *query, const struct group *group)
{
    const struct history_series *series = &group->first;
    json_t *used = json_array(), *peak = json_array(), *ratio = json_array(), *wait = json_array(),
           *refused = json_array();
    for (size_t i = 0; i < query->point_count; i++) {
        const struct amount *point = &group->points[i];
        double seconds = query->covered[i];
        bool is_known = seconds > 0;
        double ns = (double)point->gpu_ns + (double)point->nvml_ns;
        json_array_append_new(used, is_known ? bytes_json(point->byte_seconds / seconds) : json_null());
        json_array_append_new(peak, is_known ? count_json(point->peak_bytes) : json_null());
        json_array_append_new(ratio, is_known ? json_real(ns / NS_PER_SECOND / seconds) : json_null());
        json_array_append_new(wait, is_known ? json_real((double)point->waited_ns / NS_PER_SECOND / seconds)
                                             : json_null());
        json_array_append_new(refused, is_known ? count_json(point->refused) : json_null());
    }
    json_t *line =
        json_pack("{s:s,s:o,s:o,s:o,s:o,s:o}", "gpu_uuid", series->gpu_uuid, "used_bytes", used, "peak_bytes",
                  peak, "gpu_ratio", ratio, "waiting_threads", wait, "denied_allocations", refused);
    if (series->session_id[0]) {
        json_object_set_new(line, "session_id", json_string(series->session_id));
        json_object_set_new(line, "name", json_string(series->name));
        json_object_set_new(line, "owner_uid", json_integer((json_int_t)series->owner));
        json_object_set_new(line, "by_nvml", json_boolean(group->all.nvml_ns > 0));
    }
    return line;
}

/* Series come sorted by session, so the lines of each are neighbours until they are sorted. */
static void add_up_sessions(struct query *query)
{
    struct group *groups = query->groups;
    for (size_t begin = 0, end; begin < query->group_count; begin = end) {
        double sum = 0;
        for (end = begin; end < query->group_count &&
                          strcmp(groups[end].first.session_id, groups[begin].first.session_id) == 0;
             end++)
            sum += groups[end].all.byte_seconds;
        for (size_t i = begin; i < end; i++)
            groups[i].session_byte_seconds = sum;
    }
}

/* GPUs first, then sessions, those that used most first; the lines of a session stay together. */
static int compare_lines(const void *a, const void *b)
{
    const struct group *left = a, *right = b;
    bool is_left_gpu = !left->first.session_id[0], is_right_gpu = !right->first.session_id[0];
    if (is_left_gpu != is_right_gpu)
        return is_right_gpu - is_left_gpu;
    if (left->session_byte_seconds != right->session_byte_seconds)
        return left->session_byte_seconds < right->session_byte_seconds ? 1 : -1;
    int order = strcmp(left->first.session_id, right->first.session_id);
    return order ? order : strcmp(left->first.gpu_uuid, right->first.gpu_uuid);
}

/* Choose the lines of all GPUs, and of the sessions that used most. Returns how many are of sessions. */
static size_t choose_lines(struct query *query)
{
    const char *session = "";
    unsigned sessions = 0;
    size_t lines = 0;
    add_up_sessions(query);
    sort_groups(query, compare_lines);
    for (size_t i = 0; i < query->group_count; i++) {
        struct group *group = &query->groups[i];
        bool is_gpu = !group->first.session_id[0];
        if (!is_gpu && is_empty(&group->all))
            continue;
        sessions += strcmp(group->first.session_id, session) != 0;
        session = group->first.session_id;
        group->is_shown = is_gpu || sessions <= query->ask->sessions;
        lines += !is_gpu && group->is_shown;
    }
    return lines;
}

/* As many points as are asked for, or fewer where sessions have so many lines that the answer would be too long. */
static void choose_step(struct query *query, struct history_file *file, size_t lines)
{
    const struct history_ask *ask = query->ask;
    int64_t range = ask->to - ask->from, points = ask->points;
    uint32_t least = history_file_step(file, ask->from, ask->to);
    if (ask->points * lines > VALUES_MAX)
        points = (int64_t)((VALUES_MAX + lines - 1) / lines);
    query->step = (range + points - 1) / points;
    if (query->step < least)
        query->step = least;
    query->point_count = (size_t)((range + query->step - 1) / query->step);
}

static int make_points(struct query *query)
{
    for (size_t i = 0; i < query->group_count; i++) {
        struct group *group = &query->groups[i];
        if (group->is_shown && !(group->points = calloc(query->point_count, sizeof(*group->points))))
            return -ENOMEM;
    }
    query->covered = calloc(query->point_count, sizeof(*query->covered));
    return query->covered && !query->is_out_of_memory ? 0 : -ENOMEM;
}

int history_query_plot(struct history_file *file, const struct history_ask *ask, json_t **answer,
                       struct error *error)
{
    struct query query = {.ask = ask, .is_same = is_same_line};
    int result = run_query(&query, file, error);
    if (result == 0) {
        choose_step(&query, file, choose_lines(&query));
        if (make_points(&query) < 0)
            result = error_set_errno(error, ENOMEM, "cannot read the history");
    }
    if (result == 0)
        result = history_file_read(file, ask->from, ask->to, take_tick_of_plot, &query, error);
    if (result == 0) {
        json_t *gpus = json_array(), *sessions = json_array();
        for (size_t i = 0; i < query.group_count; i++)
            if (query.groups[i].is_shown)
                json_array_append_new(query.groups[i].first.session_id[0] ? sessions : gpus,
                                      line_json(&query, &query.groups[i]));
        *answer = json_pack("{s:I,s:I,s:I,s:I,s:o,s:o}", "from_seconds", (json_int_t)ask->from, "to_seconds",
                            (json_int_t)ask->to, "step_seconds", (json_int_t)query.step, "points",
                            (json_int_t)query.point_count, "gpus", gpus, "sessions", sessions);
    }
    free_query(&query);
    return result;
}

/* --- Usage ----------------------------------------------------------------------------------------- */

static int compare_use(const void *a, const void *b)
{
    const struct group *left = a, *right = b;
    return (left->all.byte_seconds < right->all.byte_seconds) -
           (left->all.byte_seconds > right->all.byte_seconds);
}

static json_t *usage_json(const struct query *query, const struct group *group)
{
    const struct amount *all = &group->all;
    json_t *row = json_pack("{s:f,s:f,s:f,s:o,s:f,s:o,s:f}", "gpu_seconds",
                            ((double)all->gpu_ns + (double)all->nvml_ns) / NS_PER_SECOND,
                            "gpu_seconds_by_nvml", (double)all->nvml_ns / NS_PER_SECOND, "byte_hours",
                            all->byte_seconds / HOUR_SECONDS, "peak_bytes", count_json(all->peak_bytes),
                            "gate_wait_seconds", (double)all->waited_ns / NS_PER_SECOND, "denied_allocations",
                            count_json(all->refused), "active_seconds", all->seconds);
    if (query->ask->by == HISTORY_BY_GPU) {
        json_object_set_new(row, "gpu_uuid", json_string(group->first.gpu_uuid));
        return row;
    }
    json_object_set_new(row, "owner_uid", json_integer((json_int_t)group->first.owner));
    if (query->ask->by == HISTORY_BY_SESSION) {
        json_object_set_new(row, "session_id", json_string(group->first.session_id));
        json_object_set_new(row, "name", json_string(group->first.name));
        json_object_set_new(row, "label",
                            *group->first.label ? json_string(group->first.label) : json_null());
    }
    return row;
}

int history_query_usage(struct history_file *file, const struct history_ask *ask, json_t **answer,
                        struct error *error)
{
    static const char *const names[] = {
        [HISTORY_BY_SESSION] = "session", [HISTORY_BY_USER] = "user", [HISTORY_BY_GPU] = "gpu"};
    struct query query = {.ask = ask, .is_same = is_same_usage};
    int result = run_query(&query, file, error);
    if (result == 0) {
        json_t *rows = json_array();
        sort_groups(&query, compare_use);
        for (size_t i = 0; i < query.group_count; i++)
            if (!is_empty(&query.groups[i].all))
                json_array_append_new(rows, usage_json(&query, &query.groups[i]));
        *answer = json_pack("{s:I,s:I,s:s,s:o}", "from_seconds", (json_int_t)ask->from, "to_seconds",
                            (json_int_t)ask->to, "by", names[ask->by], "rows", rows);
    }
    free_query(&query);
    return result;
}
