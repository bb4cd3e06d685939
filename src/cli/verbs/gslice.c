/* gpuslice allocate, status and run-existing: gslice's verbs, with output that its users' scripts can read. */
#include "cli/gslice.h"

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_create.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {CLI_OPTION_SIMULATED, CLI_OPTION_HELP, CLI_OPTIONS_END};

/* Print the session in gslice's shape. */
static int print_session(struct client *client, const char *id, struct error *error)
{
    char path[128];
    json_t *session = NULL;
    snprintf(path, sizeof(path), "/sessions/%s", id);
    int result = client_request(client, "GET", path, NULL, &session, error);
    if (result == 0)
        cells_print_json(session);
    json_decref(session);
    return result;
}

static int check_allocate(const struct cli_arguments *arguments, struct error *error)
{
    struct cli_arguments meant;
    return gslice_read_allocate(arguments, &meant, error);
}

static enum cli_status allocate(const struct cli_arguments *arguments)
{
    struct cli_arguments meant;
    struct client client;
    struct error error;
    json_t *session = NULL;
    gslice_read_allocate(arguments, &meant, NULL); /* check_allocate() has checked it */
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = session_create(&client, &meant.wish, false, &cells_progress, &session, &error);
    if (result == 0)
        result = print_session(&client, session_text(session, "session_id"), &error);
    client_close(&client);
    json_decref(session);
    return result < 0 ? cli_report(&error) : cli_finish_output();
}

const struct cli_verb verb_allocate = {
    .name = "allocate",
    .operands = "[BYTES [SECONDS]]",
    .operand_kind = CLI_NOTHING,
    .operands_max = 2,
    .summary = "make a session as gslice does, and print it as JSON",
    .text = "For the scripts of gslice's users. 'gpuslice create' says more.",
    .options = options,
    .check = check_allocate,
    .act = allocate,
};

static enum cli_status status(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = print_session(&client, arguments->operands[0], &error);
    client_close(&client);
    return result < 0 ? cli_report(&error) : cli_finish_output();
}

const struct cli_verb verb_status = {
    .name = "status",
    .operands = "SESSION",
    .operand_kind = CLI_SESSION,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "print a session as JSON, as gslice does",
    .text = "For the scripts of gslice's users. 'gpuslice show' says more.",
    .options = options,
    .act = status,
};

static enum cli_status run_existing(const struct cli_arguments *arguments)
{
    struct cli_arguments meant;
    struct error error;
    if (gslice_read_run_existing(arguments, &meant, &error) < 0)
        return cli_report(&error);
    if (verb_run.check(&meant, &error) < 0)
        return cli_report_usage(&verb_run, &error);
    return verb_run.act(&meant);
}

const struct cli_verb verb_run_existing = {
    .name = "run-existing",
    .operands = "SESSION PRELOAD FOLDER COMMAND...",
    .operand_kind = CLI_COMMAND,
    .operands_min = 4,
    .operands_max = (unsigned)-1,
    .summary = "run a program in a session, as gslice does",
    .text = "For the scripts of gslice's users. 'gpuslice run --session' does the same, and finds the "
            "libraries itself.",
    .options = options,
    .act = run_existing,
};
