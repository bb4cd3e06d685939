/* gpuslice create: a session that lives until it is released. */
#include <stdio.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_create.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    CLI_OPTION_NEW_NAME, CLI_OPTION_GPU,  CLI_OPTION_MEMORY,    CLI_OPTION_PROPERTIES(CLI_PROPERTIES_NEW),
    CLI_OPTION_WAIT,     CLI_OPTION_JSON, CLI_OPTION_SIMULATED, CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static int check(const struct cli_arguments *arguments, struct error *error)
{
    return session_wish_check(&arguments->wish, error);
}

static enum cli_status run_create(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    json_t *session = NULL;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = session_create(&client, &arguments->wish, false, &cells_progress, &session, &error);
    client_close(&client);
    if (result < 0)
        return cli_report(&error);
    if (arguments->json)
        cells_print_json(session);
    else
        printf("%s\n", session_text(session, "session_id"));
    json_decref(session);
    return cli_finish_output();
}

const struct cli_verb verb_create = {
    .name = "create",
    .summary = "make a session for many programs and print its ID",
    .text = "The session lives until 'gpuslice release', or until its --ttl is over. Starts a daemon if none "
            "is running.",
    .examples = "  gpuslice create --name train --memory 4GiB --compute 25%..50%\n"
                "  gpuslice run --session train -- python train.py",
    .options = options,
    .check = check,
    .act = run_create,
};
