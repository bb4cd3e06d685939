/* gpuslice config: each setting and where it comes from, and whether the files are valid. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_fields.h"
#include "config/config.h"

static const struct cli_option options[] = {
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static int check(const struct cli_arguments *arguments, struct error *error)
{
    if (arguments->operand_count == 0 || strcmp(arguments->operands[0], "check") == 0)
        return 0;
    return error_set(error, EINVAL, NULL, "'%.80s' is not 'check'; expected gpuslice config [check [FILE]]",
                     arguments->operands[0]);
}

/* --- What the files say, without a daemon ------------------------------------------------------------ */

/* Whether the file at `path` is in the format of sessions.conf. */
static bool declares_sessions(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strcmp(name, CONFIG_SESSIONS_FILE) == 0 || strcmp(name, "resource-config.txt") == 0;
}

/* Add the content of the file at `path` to `answer`. -ENOENT if it does not exist. */
static int add_file(json_t *answer, const char *path, struct error *error)
{
    json_t *sessions = json_object_get(answer, "sessions");
    struct config_sessions declared;
    struct config config;
    int result;
    if (declares_sessions(path)) {
        if ((result = config_sessions_load_file(&declared, path, error)) < 0)
            return result;
        json_t *list = config_sessions_json(&declared);
        json_array_extend(sessions, list);
        json_decref(list);
        config_sessions_free(&declared);
    } else {
        if ((result = config_load_file(&config, path, error)) < 0)
            return result;
        json_object_set_new(answer, "values", config_json(&config));
        json_object_set_new(answer, "warnings", config_warnings_json(&config));
        config_free(&config);
    }
    return 0;
}

/* An answer like a daemon's, made from the files. Sets `*problem` to the first mistake. */
static json_t *read_files(char *const *paths, size_t count, struct error *problem)
{
    json_t *files = json_array();
    json_t *answer = json_pack("{s:b,s:o,s:[],s:[],s:[]}", "running", false, "files", files, "warnings",
                               "values", "sessions");
    for (size_t i = 0; i < count; i++) {
        struct error error;
        int result = add_file(answer, paths[i], &error);
        bool is_bad = result < 0 && result != -ENOENT;
        json_array_append_new(files,
                              config_file_json(paths[i], result != -ENOENT, is_bad ? error.message : NULL));
        if (result < 0 && !problem->status && (is_bad || count == 1))
            *problem = error;
    }
    return answer;
}

/* --- Printing -------------------------------------------------------------------------------------- */

enum { KEY, VALUE, FROM };

static void print_values(const json_t *values)
{
    static const struct table_column columns[] = {
        [KEY] = {"KEY"},
        [VALUE] = {"VALUE"},
        [FROM] = {"FROM"},
        {NULL},
    };
    struct table table = {.columns = columns};
    const json_t *value;
    size_t i;
    json_array_foreach((json_t *)values, i, value)
    {
        struct table_cell *row = table_add_row(&table);
        const char *source = session_text(value, "source");
        bool is_set = json_is_string(json_object_get(value, "value"));
        table_cell_print(&row[KEY], TABLE_PLAIN, "[%s] %s", session_text(value, "section"),
                         session_text(value, "key"));
        table_cell_print(&row[VALUE], TABLE_PLAIN, "%s", is_set ? session_text(value, "value") : "-");
        table_cell_print(&row[FROM], *source ? TABLE_PLAIN : TABLE_DIM, "%s%s", *source ? source : "default",
                         json_is_true(json_object_get(value, "waits_for_start"))
                             ? " (the file has another value, which counts after a restart)"
                             : "");
    }
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
}

static void print_owner(struct table_cell *cell, const json_t *session)
{
    const struct passwd *user = getpwuid((uid_t)session_number(session, "owner_uid"));
    if (user)
        table_cell_print(cell, TABLE_PLAIN, "%s", user->pw_name);
    else
        table_cell_print(cell, TABLE_PLAIN, "%llu", (unsigned long long)session_number(session, "owner_uid"));
}

static void print_sessions(const json_t *sessions)
{
    enum { NAME, OWNER, DECLARED, STATE };
    static const struct table_column columns[] = {
        [NAME] = {"SESSION"}, [OWNER] = {"OWNER"}, [DECLARED] = {"FROM"}, [STATE] = {"STATE"}, {NULL},
    };
    struct table table = {.columns = columns};
    const json_t *session;
    size_t i;
    if (json_array_size(sessions) == 0)
        return;
    json_array_foreach((json_t *)sessions, i, session)
    {
        struct table_cell *row = table_add_row(&table);
        const char *problem = session_text(session, "problem");
        table_cell_print(&row[NAME], TABLE_PLAIN, "%s", session_text(session, "name"));
        print_owner(&row[OWNER], session);
        table_cell_print(&row[DECLARED], TABLE_PLAIN, "%s", session_text(session, "source"));
        table_cell_print(&row[STATE], *problem ? TABLE_RED : TABLE_PLAIN, "%s",
                         *problem ? "not made" : session_text(session, "state"));
    }
    putchar('\n');
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    table_free(&table);
    json_array_foreach((json_t *)sessions, i, session)
    {
        if (*session_text(session, "problem"))
            printf("%s: %s\n", session_text(session, "source"), session_text(session, "problem"));
    }
}

static void print_warnings(const json_t *answer)
{
    const json_t *warning;
    size_t i;
    json_array_foreach(json_object_get(answer, "warnings"), i, warning)
        fprintf(stderr, "gpuslice: warning: %s\n", json_string_value(warning));
}

static void print_all(const json_t *answer)
{
    const json_t *file;
    size_t i;
    json_array_foreach(json_object_get(answer, "files"), i, file)
    {
        const char *problem = session_text(file, "problem");
        printf("%s%s\n", session_text(file, "path"),
               *problem                                       ? ": has a mistake and is not in force"
               : json_is_true(json_object_get(file, "found")) ? ""
                                                              : ": does not exist");
        if (*problem)
            printf("  %s\n", problem);
    }
    if (!json_is_true(json_object_get(answer, "running")))
        puts("no daemon is running; these are the settings in the files");
    if (json_array_size(json_object_get(answer, "values"))) {
        putchar('\n');
        print_values(json_object_get(answer, "values"));
    }
    print_sessions(json_object_get(answer, "sessions"));
}

/* --- The verb -------------------------------------------------------------------------------------- */

static enum cli_status run_config(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error, problem = {0};
    char config_file[PATH_MAX + 32], sessions_file[PATH_MAX + 32];
    char *both[] = {config_file, sessions_file};
    json_t *answer = NULL;
    bool is_check = arguments->operand_count > 0, is_one = arguments->operand_count > 1;
    int result = client_open(&client, arguments->simulated, &error);
    snprintf(config_file, sizeof(config_file), "%s/" CONFIG_FILE, client.paths.config_dir);
    snprintf(sessions_file, sizeof(sessions_file), "%s/" CONFIG_SESSIONS_FILE, client.paths.config_dir);
    if (result == 0 && !is_check)
        result = client_request(&client, "GET", "/v1/config", NULL, &answer, &error);
    client_close(&client);
    if (result < 0 && result != -ENOTCONN)
        return cli_report(&error);
    if (!answer)
        answer = read_files(is_one ? arguments->operands + 1 : both, is_one ? 1 : 2, &problem);
    if (arguments->json)
        cells_print_json(answer);
    else if (!is_check)
        print_all(answer);
    if (!arguments->json)
        print_warnings(answer);
    json_decref(answer);
    if (is_check && problem.status)
        return cli_report(&problem);
    return cli_finish_output();
}

const struct cli_verb verb_config = {
    .name = "config",
    .operands = "[check [FILE]]",
    .operand_kind = CLI_CONFIG,
    .operands_max = 2,
    .summary = "show each setting and where it comes from, or check the files",
    .text = "Without a daemon, shows what the files say. 'check' reads gpuslice.conf and sessions.conf, or "
            "FILE, and ends with status 1 at the first mistake, which it names with its line; a user or a "
            "group that does "
            "not exist is warned of. The daemon "
            "follows changes of the files at once, except for the keys that gpuslice.conf(5) names.",
    .examples = "  gpuslice config\n"
                "  gpuslice config check /etc/gpuslice/gpuslice.conf",
    .options = options,
    .check = check,
    .act = run_config,
};
