/* gpuslice cdi: sessions as devices that container programs know by name. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/cdi.h"
#include "client/client.h"
#include "client/container.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    {"to", "FOLDER", CLI_FOLDER, offsetof(struct cli_arguments, folder),
     "write a file for each session there, rather than print; /etc/cdi and /run/cdi are where podman and "
     "docker look"},
    {"without-driver", NULL, CLI_FLAG, offsetof(struct cli_arguments, without_driver),
     "leave the driver's libraries and devices out: another device brings them, like nvidia.com/gpu"},
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
    snprintf(name, sizeof(name), "gpuslice-session-%s", id);
    return cdi_write(arguments->folder, name, specification, error);
}

static enum cli_status act(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    int result = client_open(&client, arguments->simulated, &error);
    for (unsigned i = 0; i < arguments->operand_count && result == 0; i++) {
        json_t *specification = NULL;
        char id[64];
        result = specify(&client, arguments, arguments->operands[i], &specification, id, &error);
        if (result == 0)
            result = write_one(arguments, id, specification, &error);
        json_decref(specification);
    }
    client_close(&client);
    return result < 0 ? cli_report(&error) : cli_finish_output();
}

const struct cli_verb verb_cdi = {
    .name = "cdi",
    .operands = "SESSION...",
    .operand_kind = CLI_SESSION,
    .operands_min = 1,
    .operands_max = (unsigned)-1,
    .summary = "write sessions as devices for podman, docker and containerd",
    .text = "A device is called by its session's name and ID, like gpuslice.io/session=train. A "
            "specification holds the session's token, and is "
            "of no use when that has ended.",
    .examples = "  gpuslice create --name train --memory 4GiB\n"
                "  gpuslice cdi --to /etc/cdi train\n"
                "  podman run --device gpuslice.io/session=train IMAGE",
    .options = options,
    .act = act,
};
