/* gpuslice version: this program's, and the running daemon's. */
#include <errno.h>
#include <stdio.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static void print(const struct client *client, const json_t *daemon, bool as_json)
{
    if (as_json) {
        json_t *both = json_pack("{s:s,s:O?}", "version", GPUSLICE_VERSION, "daemon", daemon);
        cells_print_json(both);
        json_decref(both);
        return;
    }
    printf("gpuslice  %s\n", GPUSLICE_VERSION);
    if (daemon)
        printf("gpusliced %s at %s\n", session_text(daemon, "version"), client->paths.control_socket);
    else
        puts("gpusliced is not running");
}

static enum cli_status run_version(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    json_t *daemon = NULL;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = client_request(&client, "GET", "/v1/version", NULL, &daemon, &error);
    client_close(&client);
    if (result < 0 && result != -ENOTCONN)
        return cli_report(&error);
    print(&client, daemon, arguments->json);
    json_decref(daemon);
    return cli_finish_output();
}

const struct cli_verb verb_version = {
    .name = "version",
    .summary = "print the versions of this program and of the running daemon",
    .options = options,
    .act = run_version,
};
