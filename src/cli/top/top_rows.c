#include "cli/top/top_rows.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "client/session_fields.h"

static double real(const json_t *object, const char *field)
{
    return json_number_value(json_object_get(object, field));
}

static void *must_grow(void *memory, size_t count, size_t bytes)
{
    void *grown = reallocarray(memory, count, bytes);
    if (!grown)
        abort(); /* a megabyte: the machine has no memory left */
    return grown;
}

/* --- Sessions -------------------------------------------------------------------------------------- */

/* Rows sorted by ID, to find one among thousands: the daemon's lists name each of them again. */
static int compare_ids(const void *a, const void *b)
{
    const struct top_row *const *left = a, *const *right = b;
    return strcmp((*left)->id, (*right)->id);
}

static struct top_row **index_rows(struct top_row *rows, unsigned count)
{
    struct top_row **index = must_grow(NULL, count + 1, sizeof(*index));
    for (unsigned i = 0; i < count; i++)
        index[i] = &rows[i];
    if (count)
        qsort(index, count, sizeof(*index), compare_ids);
    return index;
}

static struct top_row *find_row(struct top_row **index, unsigned count, const char *id)
{
    struct top_row wanted;
    const struct top_row *key = &wanted;
    snprintf(wanted.id, sizeof(wanted.id), "%s", id);
    struct top_row **found = count ? bsearch(&key, index, count, sizeof(*index), compare_ids) : NULL;
    return found ? *found : NULL;
}

static void label_gpu(const json_t *gpu, char *text, size_t bytes)
{
    const json_t *index = json_object_get(gpu, "index"), *mig = json_object_get(gpu, "mig_index");
    if (!json_is_integer(index))
        snprintf(text, bytes, "gone");
    else if (json_is_integer(mig))
        snprintf(text, bytes, "%d:%d", (int)json_integer_value(index), (int)json_integer_value(mig));
    else
        snprintf(text, bytes, "%d", (int)json_integer_value(index));
}

static void fill_gpus(struct top_row *row)
{
    const json_t *gpu;
    size_t i, length = 0;
    bool is_free = strcmp(session_text(row->session, "lease"), "free") == 0;
    row->gpus[0] = '\0';
    row->achieved = is_free ? -1 : 0;
    row->used = row->limit = 0;
    json_array_foreach(json_object_get(row->session, "gpus"), i, gpu)
    {
        char label[16];
        double achieved = real(gpu, "compute_achieved_ratio");
        label_gpu(gpu, label, sizeof(label));
        if (length < sizeof(row->gpus))
            length +=
                (size_t)snprintf(row->gpus + length, sizeof(row->gpus) - length, "%s%s", i ? "," : "", label);
        row->used += session_number(gpu, "used_bytes");
        row->limit += session_number(gpu, "limit_bytes");
        if (!is_free && achieved > row->achieved)
            row->achieved = achieved;
    }
}

/* Answers of newer daemons have the owner's name. */
static const char *owner_of(const json_t *session)
{
    const char *owner = session_text(session, "owner");
    if (*owner)
        return owner;
    const struct passwd *user = getpwuid((uid_t)session_number(session, "owner_uid"));
    return user ? user->pw_name : "?";
}

static void fill_row(struct top_row *row, const json_t *session)
{
    uint64_t now = monotonic_ns();
    double waited = real(session, "gate_wait_seconds");
    double seconds = row->answered_ns ? (double)(now - row->answered_ns) / 1e9 : 0;
    row->session = session;
    row->name = session_text(session, "name");
    row->owner = owner_of(session);
    row->status = session_text(session, "status");
    row->tone = session_tone(session);
    session_share(session, row->share);
    row->processes = (unsigned)json_array_size(json_object_get(session, "processes"));
    row->waiting = seconds > 0.1 && waited > row->waited ? (waited - row->waited) / seconds : 0;
    row->waited = waited;
    row->answered_ns = now;
    fill_gpus(row);
    top_past_add(&row->memory, row->limit ? (double)row->used / (double)row->limit : 0);
}

/* Part of a GPU's time, as far as it is known. */
static double compute_of(const struct top_row *row)
{
    return row->achieved < 0 ? row->busy : row->achieved;
}

/* The load that NVML shows for the processes of each session whose share is not measured: on the GPU where it is highest,
 * as for what is measured. */
static void fill_busy(struct top_rows *rows)
{
    struct top_row **index = index_rows(rows->rows, rows->count);
    double *here = must_grow(NULL, rows->count + 1, sizeof(*here)); /* by row, on one GPU */
    const json_t *gpu, *process;
    size_t i, j;
    for (unsigned row = 0; row < rows->count; row++)
        rows->rows[row].busy = 0;
    json_array_foreach(rows->gpus_answer, i, gpu)
    {
        memset(here, 0, rows->count * sizeof(*here));
        json_array_foreach(json_object_get(gpu, "processes"), j, process)
        {
            double busy = real(process, "busy_ratio");
            const struct top_row *row =
                busy > 0 ? find_row(index, rows->count, session_text(process, "session_id")) : NULL;
            if (row && row->achieved < 0)
                here[row - rows->rows] += busy;
        }
        for (unsigned row = 0; row < rows->count; row++)
            if (here[row] > rows->rows[row].busy)
                rows->rows[row].busy = here[row] < 1 ? here[row] : 1;
    }
    for (unsigned row = 0; row < rows->count; row++)
        top_past_add(&rows->rows[row].compute, compute_of(&rows->rows[row]));
    free(here);
    free(index);
}

static void take_sessions(struct top_rows *rows, json_t *sessions)
{
    struct top_row **index = index_rows(rows->rows, rows->count);
    unsigned count = (unsigned)json_array_size(sessions);
    struct top_row *fresh = must_grow(NULL, count + 1, sizeof(*fresh));
    const json_t *session;
    size_t i;
    memset(fresh, 0, (count + 1) * sizeof(*fresh));
    json_array_foreach(sessions, i, session)
    {
        const char *id = session_text(session, "session_id");
        const struct top_row *old = find_row(index, rows->count, id);
        if (old)
            fresh[i] = *old;
        snprintf(fresh[i].id, sizeof(fresh[i].id), "%s", id);
        fill_row(&fresh[i], session);
    }
    free(index);
    free(rows->rows);
    json_decref(rows->sessions);
    rows->rows = fresh;
    rows->count = count;
    rows->sessions = sessions;
}

/* --- GPUs ------------------------------------------------------------------------------------------ */

static void find_outsider(struct top_gpu *gpu, const json_t *answer)
{
    const json_t *process;
    uint64_t most = 0;
    size_t i;
    gpu->outsider[0] = '\0';
    json_array_foreach(json_object_get(answer, "processes"), i, process)
    {
        uint64_t used = session_number(process, "used_bytes");
        if (json_is_string(json_object_get(process, "session_id")) || used <= most)
            continue;
        most = used;
        snprintf(gpu->outsider, sizeof(gpu->outsider), "%s %llu %s", session_text(process, "command"),
                 (unsigned long long)session_number(process, "pid"), session_text(process, "user"));
    }
}

/* NVML's figure; -1: it has none. */
static double figure(const json_t *gpu, const char *field)
{
    const json_t *value = json_object_get(gpu, field);
    return json_is_number(value) ? json_number_value(value) : -1;
}

static void take_gpus(struct top_rows *rows, json_t *answer)
{
    unsigned count = (unsigned)json_array_size(answer);
    const json_t *one;
    size_t i;
    if (count > rows->gpu_count) {
        rows->gpus = must_grow(rows->gpus, count, sizeof(*rows->gpus));
        memset(rows->gpus + rows->gpu_count, 0, (count - rows->gpu_count) * sizeof(*rows->gpus));
    }
    rows->gpu_count = count;
    json_array_foreach(answer, i, one)
    {
        struct top_gpu *gpu = &rows->gpus[i];
        const char *name = session_text(one, "name");
        snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", session_text(one, "uuid"));
        label_gpu(one, gpu->label, sizeof(gpu->label));
        gpu->name = strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name;
        gpu->is_healthy = json_is_true(json_object_get(one, "healthy"));
        gpu->used = session_number(one, "used_bytes");
        gpu->total = session_number(one, "total_bytes");
        gpu->uncovered = session_number(one, "uncovered_bytes");
        gpu->busy = figure(one, "busy_ratio");
        gpu->celsius = figure(one, "temperature_celsius");
        gpu->watts = figure(one, "power_watts");
        find_outsider(gpu, one);
        top_past_add(&gpu->past, gpu->busy);
    }
    json_decref(rows->gpus_answer);
    rows->gpus_answer = answer;
}

/* --- Order ----------------------------------------------------------------------------------------- */

static bool contains_word(const struct top_row *row, const char *word)
{
    const json_t *process;
    size_t i;
    if (strcasestr(row->name, word) || strstr(row->id, word) || strcasestr(row->owner, word) ||
        strcasestr(row->status, word))
        return true;
    json_array_foreach(json_object_get(row->session, "processes"), i, process)
    {
        if (strcasestr(session_text(process, "command"), word))
            return true;
    }
    return false;
}

static enum top_order sorted_by;

static int compare_rows(const void *a, const void *b)
{
    const struct top_row *left = a, *right = b;
    if (left->is_shown != right->is_shown)
        return right->is_shown - left->is_shown;
    double difference = 0;
    if (sorted_by == TOP_BY_MEMORY)
        difference = (double)right->used - (double)left->used;
    else if (sorted_by == TOP_BY_COMPUTE)
        difference = compute_of(right) - compute_of(left);
    else if (sorted_by == TOP_BY_WAIT)
        difference = right->waiting - left->waiting;
    if (difference != 0)
        return difference > 0 ? 1 : -1;
    return strcmp(left->name, right->name);
}

void top_rows_sort(struct top_rows *rows)
{
    rows->shown_count = 0;
    for (unsigned i = 0; i < rows->count; i++) {
        struct top_row *row = &rows->rows[i];
        row->is_shown = !rows->filter[0] || contains_word(row, rows->filter);
        rows->shown_count += row->is_shown;
    }
    sorted_by = rows->order;
    if (rows->count)
        qsort(rows->rows, rows->count, sizeof(*rows->rows), compare_rows);
    rows->place = top_rows_selected(rows);
}

unsigned top_rows_selected(const struct top_rows *rows)
{
    unsigned last = rows->shown_count ? rows->shown_count - 1 : 0;
    for (unsigned i = 0; i < rows->shown_count; i++)
        if (strcmp(rows->rows[i].id, rows->selected) == 0)
            return i;
    return rows->place < last ? rows->place : last;
}

const struct top_row *top_rows_find(const struct top_rows *rows, const char *id)
{
    for (unsigned i = 0; i < rows->count; i++)
        if (strcmp(rows->rows[i].id, id) == 0)
            return &rows->rows[i];
    return NULL;
}

void top_rows_select(struct top_rows *rows, int place)
{
    int last = (int)rows->shown_count - 1;
    place = place > last ? last : place;
    place = place < 0 ? 0 : place;
    rows->place = (unsigned)place;
    if (last >= 0)
        strcpy(rows->selected, rows->rows[place].id);
}

const char *top_order_name(enum top_order order)
{
    static const char *const names[] = {[TOP_BY_MEMORY] = "memory",
                                        [TOP_BY_COMPUTE] = "compute",
                                        [TOP_BY_WAIT] = "waiting",
                                        [TOP_BY_NAME] = "name"};
    return names[order];
}

void top_row_lease(const struct top_row *row, char *text, size_t bytes)
{
    const json_t *progress = json_object_get(row->session, "compute_progress_ratio");
    int length = snprintf(text, bytes, "lease %s", session_text(row->session, "lease"));
    if (json_is_number(progress) && strcmp(session_text(row->session, "lease"), "guest") == 0)
        length += snprintf(text + length, bytes - (size_t)length, " at %.0f%% of its speed alone",
                           100 * json_number_value(progress));
    uint64_t evicted = session_number(row->session, "evicted_bytes");
    char away[UNITS_BYTES_TEXT], stays[SESSION_STAYS_TEXT];
    if (evicted)
        length += snprintf(text + length, bytes - (size_t)length, "   %s in host memory",
                           units_format_bytes(evicted, away));
    if (session_is_partly_away(row->session))
        length +=
            snprintf(text + length, bytes - (size_t)length, "   %s", session_stays(row->session, stays));
    length += snprintf(text + length, bytes - (size_t)length, "   threads waited %.1f s", row->waited);
    const json_t *waits = json_object_get(row->session, "gate_waits");
    char p50[SESSION_MS_TEXT], p99[SESSION_MS_TEXT];
    if (session_number(waits, "count") > 0)
        length +=
            snprintf(text + length, bytes - (size_t)length, ", p50 %s ms, p99 %s ms",
                     session_ms(waits, "p50_seconds", 3, p50), session_ms(waits, "p99_seconds", 3, p99));
    snprintf(text + length, bytes - (size_t)length, "   overruns %llu",
             (unsigned long long)session_number(row->session, "overruns"));
}

/* --- Taking ---------------------------------------------------------------------------------------- */

void top_rows_take(struct top_rows *rows, json_t *sessions, json_t *gpus)
{
    if (sessions)
        take_sessions(rows, sessions);
    if (gpus)
        take_gpus(rows, gpus);
    if (sessions)
        fill_busy(rows);
    rows->has_answer |= sessions != NULL;
    top_rows_sort(rows);
}

/* What comes in replaces the first sample, which is also the newest value of the history. */
static void fill_gpu_past(struct top_gpu *gpu, const json_t *line)
{
    const json_t *value;
    size_t i;
    gpu->past = (struct top_past){0};
    json_array_foreach(json_object_get(line, "gpu_ratio"), i, value)
    {
        if (json_is_number(value))
            top_past_add(&gpu->past, json_number_value(value));
    }
}

/* From the session's lines, one for each of its GPUs: as for fill_gpus(), memory is added up, and of the GPUs' time the
 * most counts. */
static void fill_row_past(struct top_row *row, const json_t *lines, size_t begin, size_t end)
{
    size_t points = json_array_size(json_object_get(json_array_get(lines, begin), "used_bytes"));
    row->memory = row->compute = (struct top_past){0};
    for (size_t point = 0; point < points; point++) {
        double used = 0, ratio = 0;
        bool is_known = false;
        for (size_t i = begin; i < end; i++) {
            const json_t *line = json_array_get(lines, i);
            const json_t *bytes = json_array_get(json_object_get(line, "used_bytes"), point);
            double here = json_number_value(json_array_get(json_object_get(line, "gpu_ratio"), point));
            is_known |= json_is_number(bytes);
            used += json_number_value(bytes);
            ratio = here > ratio ? here : ratio;
        }
        if (!is_known)
            continue;
        top_past_add(&row->memory, row->limit ? used / (double)row->limit : 0);
        top_past_add(&row->compute, ratio);
    }
}

static void take_lines(struct top_rows *rows, const json_t *lines)
{
    struct top_row **index = index_rows(rows->rows, rows->count);
    for (size_t begin = 0, end; begin < json_array_size(lines); begin = end) {
        const char *id = session_text(json_array_get(lines, begin), "session_id");
        for (end = begin + 1; end < json_array_size(lines); end++)
            if (strcmp(session_text(json_array_get(lines, end), "session_id"), id) != 0)
                break;
        struct top_row *row = find_row(index, rows->count, id);
        if (row)
            fill_row_past(row, lines, begin, end);
    }
    free(index);
}

void top_rows_take_history(struct top_rows *rows, const json_t *history)
{
    const json_t *line;
    size_t i;
    json_array_foreach(json_object_get(history, "gpus"), i, line)
    {
        for (unsigned gpu = 0; gpu < rows->gpu_count; gpu++)
            if (strcmp(rows->gpus[gpu].uuid, session_text(line, "gpu_uuid")) == 0)
                fill_gpu_past(&rows->gpus[gpu], line);
    }
    take_lines(rows, json_object_get(history, "sessions"));
}

void top_rows_free(struct top_rows *rows)
{
    free(rows->rows);
    free(rows->gpus);
    json_decref(rows->sessions);
    json_decref(rows->gpus_answer);
}
