/* gpuslice release: end sessions. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/verbs.h"
#include "client/cdi.h"
#include "client/client.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    {"all", NULL, CLI_FLAG, offsetof(struct cli_arguments, all),
     "all your sessions, except those that sessions.conf declares"},
    {"kill", NULL, CLI_FLAG, offsetof(struct cli_arguments, kill),
     "first end the processes in the session, with SIGTERM, and after 10 seconds with SIGKILL"},
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static int check(const struct cli_arguments *arguments, struct error *error)
{
    if (arguments->all != (arguments->operand_count > 0))
        return 0;
    return error_set(error, EINVAL, NULL,
                     arguments->all ? "both --all and sessions are given; expected one of the two"
                                    : "no session is given; expected some, or --all");
}

static int release_one(struct client *client, const struct cli_arguments *arguments, const char *session,
                       enum cli_status *status)
{
    struct error error;
    int result = client_request_session(client, "DELETE", session, arguments->kill ? "?kill=true" : "", NULL,
                                        NULL, &error);
    if (result < 0)
        *status = cli_report(&error);
    return result;
}

/* For root, too, --all means its own sessions; it releases others' by name. */
static enum cli_status release_all(struct client *client, const struct cli_arguments *arguments)
{
    enum cli_status status = CLI_DONE;
    struct error error;
    json_t *sessions = NULL, *session;
    size_t i, others = 0;
    if (client_request(client, "GET", "/v1/sessions", NULL, &sessions, &error) < 0)
        return cli_report(&error);
    json_array_foreach(sessions, i, session)
    {
        bool is_ours = session_number(session, "owner_uid") == geteuid() &&
                       !json_is_true(json_object_get(session, "declared"));
        others += !is_ours;
        if (is_ours &&
            release_one(client, arguments, session_text(session, "session_id"), &status) == -ENOTCONN)
            break;
    }
    if (others)
        fprintf(stderr,
                "gpuslice: %zu session%s left alone: --all is about your own that sessions.conf does not "
                "declare; "
                "release others by name\n",
                others, others == 1 ? " is" : "s are");
    json_decref(sessions);
    return status;
}

/* Goes on with the other sessions after one that cannot be released. */
static enum cli_status run_release(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    enum cli_status status = CLI_DONE;
    int result = client_open(&client, arguments->simulated, &error);
    if (result < 0)
        return cli_report(&error);
    if (arguments->all)
        status = release_all(&client, arguments);
    for (unsigned i = 0; i < arguments->operand_count && result != -ENOTCONN; i++)
        result = release_one(&client, arguments, arguments->operands[i], &status);
    client_close(&client);
    cdi_sweep("/etc/cdi", NULL, NULL); /* devices of what has ended would only fail */
    cdi_sweep("/run/cdi", NULL, NULL);
    return status;
}

const struct cli_verb verb_release = {
    .name = "release",
    .aliases = {"rm", "delete"},
    .operands = "SESSION...",
    .operand_kind = CLI_SESSION,
    .operands_max = (unsigned)-1,
    .summary = "end sessions in which nothing runs, or any with --kill",
    .options = options,
    .check = check,
    .act = run_release,
};
