/* gpuslice release: end sessions. */
#include <errno.h>

#include "cli/options.h"
#include "cli/verbs.h"
#include "client/client.h"

static const struct cli_option options[] = {
    {"kill", NULL, CLI_FLAG, offsetof(struct cli_arguments, kill),
     "first end the processes in it, with SIGTERM, and after 10 seconds with SIGKILL"},
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

/* A session that cannot be released does not keep the others from it. */
static enum cli_status act(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    enum cli_status status = CLI_DONE;
    int result = client_open(&client, arguments->simulated, &error);
    if (result < 0)
        return cli_report(&error);
    for (unsigned i = 0; i < arguments->operand_count && result != -ENOTCONN; i++) {
        result = client_request_session(&client, "DELETE", arguments->operands[i],
                                        arguments->kill ? "?kill=true" : "", NULL, NULL, &error);
        if (result < 0)
            status = cli_report(&error);
    }
    client_close(&client);
    return status;
}

const struct cli_verb verb_release = {
    .name = "release",
    .operands = "SESSION...",
    .operand_kind = CLI_SESSION,
    .operands_min = 1,
    .operands_max = (unsigned)-1,
    .summary = "end sessions: those in which nothing runs, or with --kill any",
    .options = options,
    .act = act,
};
