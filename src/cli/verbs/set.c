/* gpuslice set: change a session while programs run in it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"

static const struct cli_option options[] = {
    CLI_OPTION_NEW_NAME, CLI_OPTION_MEMORY_CHANGED, CLI_OPTION_PROPERTIES(CLI_PROPERTIES_CHANGE),
    CLI_OPTION_JSON,     CLI_OPTION_SIMULATED,      CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static int check(const struct cli_arguments *arguments, struct error *error)
{
    char known[256] = "--memory";
    size_t used = strlen(known);
    if (arguments->wish.name || memory_limits_given(&arguments->wish.memory) ||
        arguments->wish.properties.given)
        return session_wish_check(&arguments->wish, error);
    for (const struct cli_option *option = cli_next_option(&verb_set, NULL); option && used < sizeof(known);
         option = cli_next_option(&verb_set, option))
        if (option->kind == CLI_PROPERTY)
            used += (size_t)snprintf(known + used, sizeof(known) - used, ", --%s", option->name);
    return error_set(error, EINVAL, NULL, "what to change is missing; expected %s or --name", known);
}

static enum cli_status run_set(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    json_t *body = NULL, *session = NULL;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = session_wish_body(&arguments->wish, NULL, &body, &error);
    if (result == 0)
        result = client_request_session(&client, "PATCH", arguments->operands[0], "", body, &session, &error);
    client_close(&client);
    json_decref(body);
    if (result < 0)
        return cli_report(&error);
    if (arguments->json)
        cells_print_json(session);
    json_decref(session);
    return cli_finish_output();
}

const struct cli_verb verb_set = {
    .name = "set",
    .operands = "SESSION",
    .operand_kind = CLI_SESSION,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "change a session while programs run in it",
    .text =
        "A new limit holds from the next request for memory on. A limit below what is used ends no program:"
        " new memory is refused until enough has been freed. A new share holds from the next turn on, and"
        " --ttl counts from now.",
    .examples = "  gpuslice set train --memory 2GiB --compute 10%..100%",
    .options = options,
    .check = check,
    .act = run_set,
};
