/* gpuslice run: a program inside a session. This process makes the session and becomes the program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/container_command.h"
#include "cli/gslice.h"
#include "cli/options.h"
#include "cli/outside.h"
#include "cli/preload.h"
#include "cli/session_cells.h"
#include "cli/starters.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/container.h"
#include "client/session_create.h"
#include "client/start.h"

static const struct cli_option options[] = {
    CLI_OPTION_NEW_NAME,
    CLI_OPTION_GPU,
    CLI_OPTION_MEMORY,
    CLI_OPTION_PROPERTIES(CLI_PROPERTIES_NEW),
    CLI_OPTION_WAIT,
    {"session", "SESSION", CLI_SESSION, offsetof(struct cli_arguments, session),
     "run in this session, which exists, rather than in a new one"},
    {"container", NULL, CLI_FLAG, offsetof(struct cli_arguments, container),
     "COMMAND is podman, docker, nerdctl or apptainer: give the container that it starts the session"},
    {"without-driver", NULL, CLI_FLAG, offsetof(struct cli_arguments, without_driver),
     "with --container: the container gets the driver in another way, like --device nvidia.com/gpu=all"},
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static int check_starter(const struct cli_arguments *arguments, struct error *error)
{
    if (arguments->container)
        return container_command_check(arguments->operands, arguments->session != NULL, error);
    if (arguments->without_driver)
        return error_set(error, EINVAL, NULL, "--without-driver is for containers; add --container");
    return starter_check(arguments->operands, error);
}

/* An option that is there and says how a new session is to be; NULL: none. */
static const char *find_wish(const struct session_wish *wish)
{
    const char *option = wish->name                           ? "name"
                         : wish->gpus.count                   ? "gpu"
                         : memory_limits_given(&wish->memory) ? "memory"
                         : wish->wait_usec                    ? "wait"
                                                              : NULL;
    for (size_t i = 0; i < PROPERTY_COUNT && !option; i++)
        if (property_is_given(&wish->properties, session_properties[i].id))
            option = session_properties[i].name;
    return option;
}

static int check(const struct cli_arguments *arguments, struct error *error)
{
    const struct session_wish *wish = &arguments->wish;
    const char *beside = find_wish(wish);
    if (arguments->session && beside)
        return error_set(
            error, EINVAL, NULL,
            "--session names a session that exists, and --%s is for a new one; give one of the two; "
            "'gpuslice set' changes a session that exists",
            beside);
    int result = session_wish_check(wish, error);
    return result < 0 ? result : check_starter(arguments, error);
}

static int set_environment(const json_t *environment, bool simulated, struct error *error)
{
    const char *name;
    json_t *value;
    int result = preload_set(simulated, error);
    if (result < 0)
        return result;
    json_object_foreach((json_t *)environment, name, value)
    {
        if (json_string_value(value))
            setenv(name, json_string_value(value), 1);
    }
    /* So that `gpuslice` inside the program speaks to the same daemon. */
    if (simulated)
        setenv("GPUSLICE_SIMULATED", "1", 1);
    return 0;
}

/* Ask once more where the daemon died under the question. */
static int ask_environment(struct client *client, const char *session, json_t **environment,
                           struct error *error)
{
    int result = client_request_session(client, "GET", session, "/environment", NULL, environment, error);
    if (result == -ENOTCONN || !start_may_help(result))
        return result;
    result = start_reach(client, error);
    return result < 0
               ? result
               : client_request_session(client, "GET", session, "/environment", NULL, environment, error);
}

/* The environment of the session to run in, new or existing. */
static int find_environment(struct client *client, const struct cli_arguments *arguments,
                            json_t **environment, struct error *error)
{
    if (arguments->session) {
        int result = start_check_driver(arguments->simulated, error);
        return result < 0 ? result : ask_environment(client, arguments->session, environment, error);
    }
    json_t *session = NULL;
    int result = session_create(client, &arguments->wish, true, &cells_progress, &session, error);
    if (result < 0)
        return result;
    *environment = json_incref(json_object_get(session, "environment"));
    json_decref(session);
    return 0;
}

/* The session to run in, with its environment and a socket of its own. */
static int find_session(struct client *client, const struct cli_arguments *arguments, json_t **session,
                        struct error *error)
{
    if (!arguments->session) {
        struct session_wish wish = arguments->wish;
        wish.own_socket = true;
        return session_create(client, &wish, true, &cells_progress, session, error);
    }
    json_t *environment = NULL;
    int result = start_check_driver(arguments->simulated, error);
    if (result == 0)
        result = client_request_session(client, "POST", arguments->session, "/socket", NULL, session, error);
    if (result == 0)
        result = client_request_session(client, "GET", arguments->session, "/environment", NULL, &environment,
                                        error);
    if (result == 0)
        json_object_set_new(*session, "environment", environment);
    return result;
}

/* The container program's command, with the options that give the container the session. */
static int compose_container(struct client *client, const struct cli_arguments *arguments, char ***command,
                             struct error *error)
{
    json_t *session = NULL, *parts = NULL;
    const struct container_host host = {.paths = &client->paths,
                                        .driver = arguments->without_driver ? CONTAINER_DRIVER_ABSENT
                                                                            : CONTAINER_DRIVER_HOST,
                                        .devices = "/dev"};
    int result = find_session(client, arguments, &session, error);
    if (result == 0)
        result = container_parts(session, &host, &parts, error);
    if (result == 0)
        result = container_command_compose(arguments->operands, parts, command, error);
    json_decref(parts);
    json_decref(session);
    return result;
}

/* nvidia-smi needs an internal table of NVIDIA's own driver library, which the simulation does not have. */
static int check_command(const struct cli_arguments *arguments, char **command, struct error *error)
{
    const char *slash = strrchr(command[0], '/');
    if (!arguments->simulated || strcmp(slash ? slash + 1 : command[0], "nvidia-smi") != 0)
        return 0;
    return error_set(
        error, ENOTSUP, NULL,
        "nvidia-smi cannot run on a simulated GPU: it needs parts of NVIDIA's own driver that no API "
        "describes; 'gpuslice gpus' and 'gpuslice top' show the same, and nvtop runs");
}

static enum cli_status become_command(char **command)
{
    struct error error;
    execvp(command[0], command);
    int status = errno;
    error_set(&error, status, NULL, "cannot run '%.200s': %s; expected a program in PATH or a path to one",
              command[0], strerror(status));
    cli_report(&error);
    return status == ENOENT || status == ENOTDIR ? CLI_NOT_FOUND : CLI_CANNOT_EXECUTE;
}

static enum cli_status run_program(const struct cli_arguments *given)
{
    const struct cli_arguments *arguments = given;
    struct cli_arguments meant;
    struct client client;
    struct error error;
    json_t *environment = NULL;
    if (gslice_is_run(given->operands, given->operand_count)) {
        if (gslice_read_run(given, &meant, &error) < 0)
            return cli_report(&error);
        if (check(&meant, &error) < 0)
            return cli_report_usage(&verb_run, &error);
        arguments = &meant;
    }
    char **command = arguments->operands;
    int result = check_command(arguments, command, &error);
    if (result < 0 || (result = client_open(&client, arguments->simulated, &error)) < 0)
        return cli_report(&error);
    if (arguments->container)
        result = compose_container(&client, arguments, &command, &error);
    else
        result = find_environment(&client, arguments, &environment, &error);
    client_close(&client);
    if (result == 0 && !arguments->container)
        result = set_environment(environment, arguments->simulated, &error);
    json_decref(environment);
    if (result < 0)
        return cli_report(&error);
    outside_watch(arguments->simulated);
    return become_command(command);
}

const struct cli_verb verb_run = {
    .name = "run",
    .operands = "[--] COMMAND [ARGUMENT]...",
    .operand_kind = CLI_COMMAND,
    .operands_min = 1,
    .operands_max = (unsigned)-1,
    .summary = "run a program inside a session",
    .text = "Makes a session and becomes COMMAND, with COMMAND's own pid, signals and exit status. "
            "The session ends when COMMAND and all other processes in it have ended. If a program that was "
            "started meanwhile uses a GPU outside of every session by then, 'gpuslice run' says so. Starts a "
            "daemon if none is running.",
    .examples = "  gpuslice run --memory 4GiB --compute 25% -- python train.py\n"
                "  gpuslice run --gpu 0 --gpu 1 --memory 0=4GiB,1=2GiB -- ./simulate\n"
                "  gpuslice run --memory 4GiB --container -- podman run IMAGE python train.py",
    .options = options,
    .check = check,
    .act = run_program,
};
