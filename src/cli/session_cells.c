#include "cli/session_cells.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "client/session_fields.h"

int cells_get(const char *path, const struct cli_arguments *arguments, json_t **answer, struct error *error)
{
    struct client client;
    int result = client_open(&client, arguments->simulated, error);
    if (result == 0)
        result = client_request(&client, "GET", path, NULL, answer, error);
    client_close(&client);
    return result;
}

static void print_sentence(void *context, const char *sentence)
{
    fprintf(stderr, "gpuslice: %s\n", sentence);
}

const struct session_progress cells_progress = {.tell = print_sentence};

void cells_print_json(const json_t *answer)
{
    json_dumpf(answer, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    putchar('\n');
}

void cells_gpu(struct table_cell *cell, const json_t *gpu)
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

void cells_owner(struct table_cell *cell, const json_t *session)
{
    const char *owner = session_text(session, "owner");
    /* A number in place of the owner means that the daemon did not know the name yet. */
    const struct passwd *user =
        *owner >= '0' && *owner <= '9' ? getpwuid((uid_t)session_number(session, "owner_uid")) : NULL;
    table_cell_print(cell, TABLE_PLAIN, "%s", user ? user->pw_name : owner);
}

void cells_status(struct table_cell *cell, const json_t *session)
{
    static const enum table_colour colours[] = {[SESSION_CALM] = TABLE_PLAIN,
                                                [SESSION_BUSY] = TABLE_PLAIN,
                                                [SESSION_WAITS] = TABLE_YELLOW,
                                                [SESSION_BAD] = TABLE_RED};
    char place[24] = "", wait[CELLS_WAIT_TEXT];
    if (session_number(session, "queue_position"))
        snprintf(place, sizeof(place), " (%llu)",
                 (unsigned long long)session_number(session, "queue_position"));
    table_cell_print(cell, colours[session_tone(session)], "%s%s%s", session_text(session, "status"), place,
                     cells_wait(session, wait));
}

void cells_gpu_name(struct table_cell *cell, const json_t *gpu)
{
    const char *name = session_text(gpu, "name");
    table_cell_print(cell, TABLE_PLAIN, "%s", strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name);
}

void cells_achieved(struct table_cell *cell, const json_t *session, const json_t *gpu)
{
    const char *lease = session_text(session, "lease");
    double ratio = json_number_value(json_object_get(gpu, "compute_achieved_ratio"));
    bool is_idle = strcmp(lease, "none") == 0 && !json_is_true(json_object_get(session, "waiting"));
    if (json_is_true(json_object_get(gpu, "achieved_by_nvml")) && ratio >= 0.0005)
        table_cell_print(cell, TABLE_PLAIN, "~%.1f%%", 100 * ratio);
    else if (strcmp(lease, "free") == 0 || (is_idle && ratio == 0))
        table_cell_print(cell, TABLE_PLAIN, "-");
    else
        table_cell_print(cell, TABLE_PLAIN, "%.1f%%", 100 * ratio);
}

void cells_speed(struct table_cell *cell, const json_t *session)
{
    const json_t *progress = json_object_get(session, "compute_progress_ratio");
    double promised = json_number_value(json_object_get(session, "compute_min_ratio"));
    if (!json_is_real(progress))
        table_cell_print(cell, TABLE_PLAIN, "-");
    else if (promised > 0)
        table_cell_print(cell, TABLE_PLAIN, "%.0f%% of %.4g%%", 100 * json_real_value(progress),
                         100 * promised);
    else
        table_cell_print(cell, TABLE_PLAIN, "%.0f%%", 100 * json_real_value(progress));
}

void cells_gpu_time(struct table_cell *cell, const json_t *gpu, const char *key)
{
    double seconds = json_number_value(json_object_get(gpu, key));
    if (seconds > 0)
        table_cell_print(cell, TABLE_PLAIN, "%.1f s", seconds);
    else
        table_cell_print(cell, TABLE_PLAIN, "-");
}

void cells_usage(struct table_cell cells[static 2], uint64_t used, uint64_t limit)
{
    char bar[TABLE_BAR_TEXT], usage[TABLE_USAGE_TEXT];
    table_cell_print(&cells[0], table_usage_colour(used, limit), "%s", table_bar(used, limit, bar));
    table_cell_print(&cells[1], TABLE_PLAIN, "%s", table_usage(used, limit, usage));
}

const char *cells_wait(const json_t *session, char text[static CELLS_WAIT_TEXT])
{
    const json_t *waits = json_object_get(session, "waits_for"), *move = json_object_get(session, "move");
    const json_t *left = json_object_get(json_is_string(waits) ? session : move,
                                         json_is_string(waits) ? "wait_seconds_left" : "seconds_left");
    double seconds = json_number_value(left);
    text[0] = '\0';
    if (json_is_number(left) && seconds < 100)
        snprintf(text, CELLS_WAIT_TEXT, ", about %.0f s", seconds < 1 ? 1 : seconds);
    else if (json_is_number(left) && seconds < 6000)
        snprintf(text, CELLS_WAIT_TEXT, ", about %.0f min", seconds / 60);
    else if (json_is_number(left))
        snprintf(text, CELLS_WAIT_TEXT, ", about %.0f h", seconds / 3600);
    return text;
}

const char *cells_user(uid_t uid, char text[static CELLS_USER_TEXT])
{
    const struct passwd *user = getpwuid(uid);
    if (user)
        snprintf(text, CELLS_USER_TEXT, "%s", user->pw_name);
    else
        snprintf(text, CELLS_USER_TEXT, "%u", (unsigned)uid);
    return text;
}

const char *cells_asker(const json_t *object, const char *field, char text[static CELLS_ASKER_TEXT])
{
    const json_t *asker = json_object_get(object, field);
    char user[CELLS_USER_TEXT];
    struct table_cell command;
    uint64_t pid = session_number(asker, "pid");
    *text = '\0';
    if (!json_is_object(asker))
        return text;
    cells_user((uid_t)session_number(asker, "uid"), user);
    table_cell_print(&command, TABLE_PLAIN, "%s", session_text(asker, "command"));
    if (pid)
        snprintf(text, CELLS_ASKER_TEXT, ", by %s (%.16s%spid %llu)", user, command.text,
                 *command.text ? ", " : "", (unsigned long long)pid);
    else
        snprintf(text, CELLS_ASKER_TEXT, ", by %s", user);
    return text;
}

void cells_print_fact(const char *what, const char *value, bool colour)
{
    printf("%s%-8s%s  ", table_colour_begin(TABLE_BOLD, colour), what, table_colour_end(TABLE_BOLD, colour));
    table_print_text(value, stdout);
    putchar('\n');
}

void cells_print_names(const json_t *session, bool colour)
{
    const char *id = session_text(session, "session_id"), *name = session_text(session, "name");
    cells_print_fact("Session", id, colour);
    if (strcmp(id, name) != 0)
        cells_print_fact("Name", name, colour);
}

void cells_print_promise(const json_t *session, bool colour)
{
    char share[UNITS_SHARE_TEXT];
    cells_print_fact("Compute", session_share(session, share), colour);
    cells_print_fact("Priority", session_text(session, "priority"), colour);
    if (*session_text(session, "label"))
        cells_print_fact("Labels", session_text(session, "label"), colour);
}

const char *cells_duration(double seconds, char text[static CELLS_DURATION_TEXT])
{
    if (seconds < 60)
        snprintf(text, CELLS_DURATION_TEXT, "%.1fs", seconds);
    else if (seconds < 3600)
        snprintf(text, CELLS_DURATION_TEXT, "%.0fm %02.0fs", (double)((long)seconds / 60),
                 (double)((long)seconds % 60));
    else
        snprintf(text, CELLS_DURATION_TEXT, "%.0fh %02.0fm", (double)((long)seconds / 3600),
                 (double)((long)seconds / 60 % 60));
    return text;
}
