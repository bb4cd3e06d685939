/* gpuslice cdi: sessions and slices as devices that container programs know by name. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/slice_device.h"
#include "cli/verbs.h"
#include "client/cdi.h"
#include "client/client.h"
#include "client/container.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    {"to", "FOLDER", CLI_FOLDER, offsetof(struct cli_arguments, folder),
     "write a file for each session to this folder instead of printing; podman and docker look in /etc/cdi "
     "and /run/cdi"},
    {"without-driver", NULL, CLI_FLAG, offsetof(struct cli_arguments, without_driver),
     "leave the driver's libraries and devices out: another device brings them, like nvidia.com/gpu"},
    {"slice", "NAME", CLI_SESSION_NAME, offsetof(struct cli_arguments, slice),
     "write the device gpuslice.io/slice=NAME: each container that names it gets a session of its own, of "
     "this size, which ends with it; without --gpu, a machine with several GPUs gets one device for each, "
     "NAME-0, NAME-1 and so on"},
    CLI_OPTION_GPU,
    CLI_OPTION_MEMORY,
    CLI_OPTION_PROPERTIES(CLI_PROPERTIES_SLICE),
    {"hook", NULL, CLI_FLAG, offsetof(struct cli_arguments, hook),
     "called by container runtimes when they make a container with a slice; reads the container's state from "
     "stdin"},
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static int specify(struct client *client, const struct cli_arguments *arguments, const char *name,
                   json_t **specification, char id[static 64], struct error *error)
{
    json_t *session = NULL, *environment = NULL, *parts = NULL;
    const struct container_host host = {.paths = &client->paths,
                                        .driver = arguments->without_driver ? CONTAINER_DRIVER_ABSENT
                                                                            : CONTAINER_DRIVER_HOST,
                                        .devices = "/dev"};
    int result = client_request_session(client, "POST", name, "/socket", NULL, &session, error);
    if (result == 0)
        result = client_request_session(client, "GET", session_text(session, "session_id"), "/environment",
                                        NULL, &environment, error);
    if (result == 0) {
        json_object_set(session, "environment", environment);
        result = container_parts(session, &host, &parts, error);
    }
    if (result == 0) {
        *specification = cdi_session(session, parts);
        snprintf(id, 64, "%s", session_text(session, "session_id"));
    }
    json_decref(parts);
    json_decref(environment);
    json_decref(session);
    return result;
}

static int write_one(const struct cli_arguments *arguments, const char *id, const json_t *specification,
                     struct error *error)
{
    char name[96];
    if (!arguments->folder) {
        cells_print_json(specification);
        return 0;
    }
    snprintf(name, sizeof(name), CDI_SESSION_FILE "%s", id);
    int result = cdi_write(arguments->folder, name, specification, error);
    if (result == 0)
        cdi_sweep(arguments->folder, name, specification);
    return result;
}

static bool describes_slice(const struct session_wish *wish)
{
    return wish->gpus.count || memory_limits_given(&wish->memory) || wish->properties.given;
}

static int check(const struct cli_arguments *arguments, struct error *error)
{
    if (arguments->hook + (arguments->slice != NULL) + (arguments->operand_count > 0) != 1)
        return error_set(
            error, EINVAL, NULL,
            "'gpuslice cdi' writes sessions or a slice, not both; give sessions or --slice NAME");
    if (!arguments->slice && describes_slice(&arguments->wish))
        return error_set(
            error, EINVAL, NULL,
            "sizes and GPUs are for slices; add --slice NAME, or change a session with 'gpuslice set'");
    return session_wish_check(&arguments->wish, error);
}

static int write_sessions(struct client *client, const struct cli_arguments *arguments, struct error *error)
{
    int result = 0;
    for (unsigned i = 0; i < arguments->operand_count && result == 0; i++) {
        json_t *specification = NULL;
        char id[64];
        result = specify(client, arguments, arguments->operands[i], &specification, id, error);
        if (result == 0)
            result = write_one(arguments, id, specification, error);
        json_decref(specification);
    }
    return result;
}

static enum cli_status run_cdi(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    bool had_folder = !arguments->folder || access(arguments->folder, F_OK) == 0;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = arguments->hook    ? slice_hook_run(&client, stdin, &error)
                 : arguments->slice ? slice_device_write(&client, arguments, &error)
                                    : write_sessions(&client, arguments, &error);
    client_close(&client);
    if (result == 0 && !had_folder)
        fprintf(stderr, "gpuslice: made the folder %s; podman and docker look in /etc/cdi and /run/cdi\n",
                arguments->folder);
    return result < 0 ? cli_report(&error) : cli_finish_output();
}

const struct cli_verb verb_cdi = {
    .name = "cdi",
    .operands = "[SESSION...]",
    .operand_kind = CLI_SESSION,
    .operands_max = (unsigned)-1,
    .summary = "write sessions and slices as devices of containers",
    .text = "A device has its session's name and ID, like gpuslice.io/session=train. A specification holds "
            "the session's token, and works until the session ends. With --slice, a device is a size, like "
            "gpuslice.io/slice=quarter: any number of containers can name it, and each gets a session of its "
            "own.",
    .examples = "  gpuslice create --name train --memory 4GiB\n"
                "  gpuslice cdi --to /etc/cdi train\n"
                "  podman run --device gpuslice.io/session=train IMAGE\n"
                "  gpuslice cdi --to /etc/cdi --slice quarter --memory 25% --compute 25%\n"
                "  podman run --device gpuslice.io/slice=quarter IMAGE",
    .options = options,
    .check = check,
    .act = run_cdi,
};
