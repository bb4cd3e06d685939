#include "client/sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/start.h"

/* With less than this beside its context hardly any program starts. */
#define CONTEXT_ROOM_BYTES (UINT64_C(256) << 20)

/* How long one question about the place in the line may wait for its answer. */
#define LINE_ASK_SECONDS 10

/* --- Asking ---------------------------------------------------------------------------------------- */

int sessions_check_options(const struct cli_arguments *arguments, struct error *error)
{
    const struct gpu_names *apart = &arguments->memory.gpus;
    for (unsigned i = 0; arguments->gpus.count > 0 && i < apart->count; i++)
        if (!gpu_names_contain(&arguments->gpus, apart->names[i]))
            return error_set(
                error, EINVAL, NULL,
                "--memory sets GPU '%s' apart, which no --gpu names; expected the same words in both",
                apart->names[i]);
    if (arguments->ttl_usec % 1000000 || arguments->ttl_usec / 1000000 > INT32_MAX)
        return error_set(error, EINVAL, NULL,
                         "--ttl is no whole number of seconds; expected one, like 90s or 2h");
    return 0;
}

/* The limit that --memory sets apart for `name`; 0 for none. */
static uint64_t limit_apart(const struct memory_limits *memory, const char *name)
{
    struct gpu_names one = {.count = 1};
    strcpy(one.names[0], name);
    for (unsigned i = 0; i < memory->gpus.count; i++)
        if (gpu_names_contain(&one, memory->gpus.names[i]))
            return memory->gpu_bytes[i];
    return 0;
}

static json_t *gpus_body(const struct gpu_names *gpus, const struct memory_limits *memory)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < gpus->count; i++) {
        json_t *gpu = json_pack("{s:s}", "gpu", gpus->names[i]);
        uint64_t limit = limit_apart(memory, gpus->names[i]);
        if (limit)
            json_object_set_new(gpu, "memory_bytes", json_integer((json_int_t)limit));
        json_array_append_new(array, gpu);
    }
    return array;
}

int sessions_body(const struct cli_arguments *arguments, const char *visible_devices, json_t **body,
                  struct error *error)
{
    const struct memory_limits *memory = &arguments->memory;
    const struct gpu_names *gpus = arguments->gpus.count ? &arguments->gpus : &memory->gpus;
    struct gpu_names visible = {0};
    if (gpus->count == 0 && visible_devices) {
        int result = gpu_names_from_visible_devices(&visible, visible_devices, error);
        if (result < 0)
            return result;
        gpus = &visible;
    }
    *body = json_object();
    if (arguments->name)
        json_object_set_new(*body, "name", json_string(arguments->name));
    if (gpus->count)
        json_object_set_new(*body, "gpus", gpus_body(gpus, memory));
    if (memory->every_bytes)
        json_object_set_new(*body, "memory_bytes", json_integer((json_int_t)memory->every_bytes));
    char share[UNITS_SHARE_TEXT];
    if (arguments->compute.max)
        json_object_set_new(*body, "compute", json_string(units_format_share(arguments->compute, share)));
    if (arguments->ttl_usec)
        json_object_set_new(*body, "ttl_seconds", json_integer((json_int_t)(arguments->ttl_usec / 1000000)));
    if (arguments->priority)
        json_object_set_new(*body, "priority", json_string(arguments->priority));
    return 0;
}

/* On a real GPU a context alone can eat a small limit. Says so once, for the GPUs whose cost has been
 * measured. */
static void warn_of_small_limits(struct client *client, const json_t *session)
{
    json_t *gpus = NULL, *limited, *gpu;
    size_t i, j;
    if (client->paths.simulated || client_request(client, "GET", "/v1/gpus", NULL, &gpus, NULL) < 0)
        return;
    json_array_foreach(json_object_get(session, "gpus"), i, limited)
    {
        json_array_foreach(gpus, j, gpu)
        {
            uint64_t context = sessions_number(gpu, "context_bytes");
            uint64_t limit = sessions_number(limited, "limit_bytes");
            char limit_text[UNITS_BYTES_TEXT], context_text[UNITS_BYTES_TEXT], least[UNITS_BYTES_TEXT];
            if (context == 0 || limit >= context + CONTEXT_ROOM_BYTES ||
                strcmp(sessions_text(gpu, "uuid"), sessions_text(limited, "uuid")) != 0)
                continue;
            fprintf(stderr,
                    "gpuslice: warning: the limit of %s on GPU %llu leaves little beside a context of %s; "
                    "expected at "
                    "least %s; give more with 'gpuslice set %s --memory SIZE'\n",
                    units_format_bytes(limit, limit_text), (unsigned long long)sessions_number(gpu, "index"),
                    units_format_bytes(context, context_text),
                    units_format_bytes(context + CONTEXT_ROOM_BYTES, least),
                    sessions_text(session, "session_id"));
        }
    }
    json_decref(gpus);
}

static uint64_t now_usec(void)
{
    return monotonic_ns() / 1000;
}

/* Ask again about a queued session until it is active, for `patience_usec` at most; else it is released. */
static int wait_in_line(struct client *client, uint64_t patience_usec, json_t **session, struct error *error)
{
    uint64_t start = now_usec(), told = 0;
    char id[32], query[96];
    int result = 0;
    snprintf(id, sizeof(id), "%s", sessions_text(*session, "session_id"));
    while (result == 0 && strcmp(sessions_text(*session, "state"), "queued") == 0) {
        uint64_t place = sessions_number(*session, "queue_position"), waited = now_usec() - start;
        if (place != told)
            fprintf(stderr, "gpuslice: session %s waits for room, at place %llu in the line\n", id,
                    (unsigned long long)place);
        told = place;
        if (waited >= patience_usec) {
            client_request_session(client, "DELETE", id, "", NULL, NULL, NULL);
            return error_set(error, ETIMEDOUT, NULL,
                             "no room came within the time of --wait, at place %llu in the line; wait "
                             "longer, or ask for less",
                             (unsigned long long)place);
        }
        uint64_t left_seconds = (patience_usec - waited) / 1000000;
        snprintf(query, sizeof(query), "?queue_position=%llu&wait_seconds=%llu", (unsigned long long)place,
                 (unsigned long long)(left_seconds < LINE_ASK_SECONDS ? left_seconds : LINE_ASK_SECONDS));
        if (left_seconds == 0)
            usleep((useconds_t)(patience_usec - waited));
        json_decref(*session);
        *session = NULL;
        result = client_request_session(client, "GET", id, query, NULL, session, error);
    }
    json_t *environment = NULL;
    if (result == 0)
        result = client_request_session(client, "GET", id, "/environment", NULL, &environment, error);
    if (result == 0)
        json_object_set_new(*session, "environment", environment);
    return result;
}

int sessions_create(struct client *client, const struct cli_arguments *arguments, bool run, json_t **session,
                    struct error *error)
{
    json_t *body = NULL;
    int result = start_check_driver(client->paths.simulated, error);
    if (result < 0 || (result = sessions_body(arguments, getenv("CUDA_VISIBLE_DEVICES"), &body, error)) < 0 ||
        (result = start_daemon(client, error)) < 0) {
        json_decref(body);
        return result;
    }
    if (run)
        json_object_set_new(body, "run", json_true());
    if (arguments->wait_usec)
        json_object_set_new(body, "wait", json_true());
    result = client_request(client, "POST", "/v1/sessions", body, session, error);
    json_decref(body);
    if (result == 0 && strcmp(sessions_text(*session, "state"), "queued") == 0)
        result = wait_in_line(client, arguments->wait_usec, session, error);
    if (result == 0)
        warn_of_small_limits(client, *session);
    return result;
}

int sessions_get(const char *path, const struct cli_arguments *arguments, json_t **answer,
                 struct error *error)
{
    struct client client;
    int result = client_open(&client, arguments->simulated, error);
    if (result == 0)
        result = client_request(&client, "GET", path, NULL, answer, error);
    client_close(&client);
    return result;
}

/* --- Showing --------------------------------------------------------------------------------------- */

uint64_t sessions_number(const json_t *object, const char *field)
{
    json_int_t value = json_integer_value(json_object_get(object, field));
    return value > 0 ? (uint64_t)value : 0;
}

const char *sessions_text(const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));
    return text ? text : "";
}

void sessions_print_json(const json_t *answer)
{
    json_dumpf(answer, stdout, JSON_INDENT(2));
    putchar('\n');
}

void sessions_gpu_cell(struct table_cell *cell, const json_t *gpu)
{
    const json_t *index = json_object_get(gpu, "index"), *mig_index = json_object_get(gpu, "mig_index");
    if (json_is_integer(index) && json_is_integer(mig_index))
        table_cell_print(cell, TABLE_PLAIN, "%lld:%lld", (long long)json_integer_value(index),
                         (long long)json_integer_value(mig_index));
    else if (json_is_integer(index) && json_integer_value(index) >= 0)
        table_cell_print(cell, TABLE_PLAIN, "%lld", (long long)json_integer_value(index));
    else
        table_cell_print(cell, TABLE_RED, "gone");
}

void sessions_gpu_name_cell(struct table_cell *cell, const json_t *gpu)
{
    const char *name = sessions_text(gpu, "name");
    table_cell_print(cell, TABLE_PLAIN, "%s", strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name);
}

const char *sessions_share(const json_t *session, char text[static UNITS_SHARE_TEXT])
{
    double min = json_number_value(json_object_get(session, "compute_min_ratio"));
    double max = json_number_value(json_object_get(session, "compute_max_ratio"));
    return units_format_share(
        (struct share){(uint32_t)(min * SHARE_WHOLE + 0.5), (uint32_t)(max * SHARE_WHOLE + 0.5)}, text);
}

void sessions_usage_cells(struct table_cell cells[static 2], uint64_t used, uint64_t limit)
{
    char bar[TABLE_BAR_TEXT], usage[TABLE_USAGE_TEXT];
    table_cell_print(&cells[0], table_usage_colour(used, limit), "%s", table_bar(used, limit, bar));
    table_cell_print(&cells[1], TABLE_PLAIN, "%s", table_usage(used, limit, usage));
}

void sessions_achieved_cell(struct table_cell *cell, const json_t *session, const json_t *gpu)
{
    const char *lease = sessions_text(session, "lease");
    double ratio = json_number_value(json_object_get(gpu, "compute_achieved_ratio"));
    bool is_idle = strcmp(lease, "none") == 0 && !json_is_true(json_object_get(session, "waiting"));
    if (strcmp(lease, "free") == 0 || (is_idle && ratio == 0))
        table_cell_print(cell, TABLE_PLAIN, "-");
    else
        table_cell_print(cell, TABLE_PLAIN, "%.1f%%", 100 * ratio);
}

const char *sessions_time(const char *time, char text[static SESSIONS_TIME_TEXT])
{
    size_t length = strlen(time);
    if (length >= 20 && length < SESSIONS_TIME_TEXT - 4 && time[10] == 'T' && time[length - 1] == 'Z')
        snprintf(text, SESSIONS_TIME_TEXT, "%.10s %.*s UTC", time, (int)length - 12, time + 11);
    else
        snprintf(text, SESSIONS_TIME_TEXT, "%.30s", time);
    return text;
}
