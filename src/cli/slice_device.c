#include "cli/slice_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cli/session_cells.h"
#include "client/cdi.h"
#include "client/container.h"
#include "client/session_fields.h"
#include "client/start.h"

#define TOKEN_BYTES 32

static json_t *make_token(struct error *error)
{
    unsigned char bytes[TOKEN_BYTES];
    char text[2 * TOKEN_BYTES + 1];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        error_set_errno(error, errno, "cannot make a token");
        return NULL;
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_string(text);
}

/* Create the session that `body` describes, keep its document, and end it. */
static int try_session(struct client *client, json_t *body, json_t **session, struct error *error)
{
    json_object_set_new(body, "run", json_true());
    int result = client_request(client, "POST", "/v1/sessions", body, session, error);
    json_object_del(body, "run");
    if (result == 0)
        result = client_request_session(client, "DELETE", session_text(*session, "session_id"), "", NULL,
                                        NULL, error);
    return result;
}

/* Refuse now what the daemon would never grant. That there is no room at this moment does not matter. */
static int check_slice(struct client *client, json_t *body, struct error *error)
{
    json_t *session = NULL;
    json_object_set_new(body, "wait", json_true());
    int result = try_session(client, body, &session, error);
    json_object_del(body, "wait");
    json_decref(session);
    return result;
}

/* The environment of a session that has nothing but the slice's GPUs. */
static int find_environment(struct client *client, const json_t *body, json_t **session, struct error *error)
{
    json_t *bare = json_pack("{s:[]}", "gpus"), *gpu;
    size_t i;
    json_array_foreach(json_object_get(body, "gpus"), i, gpu) json_array_append_new(
        json_object_get(bare, "gpus"), json_pack("{s:O}", "gpu", json_object_get(gpu, "gpu")));
    int result = try_session(client, bare, session, error);
    json_decref(bare);
    return result;
}

static json_t *make_hook(const struct client *client, const json_t *body, const char *program)
{
    char folder[PATH_MAX];
    json_t *environment = json_array();
    char *wish = json_dumps(body, JSON_COMPACT);
    json_array_append_new(environment, json_sprintf(SLICE_DEVICE_VARIABLE "=%s", wish ? wish : ""));
    free(wish);
    snprintf(folder, sizeof(folder), "%s", client->paths.runtime_dir);
    if (client->paths.simulated) {
        json_array_append_new(environment, json_string("GPUSLICE_SIMULATED=1"));
        *strrchr(folder, '/') = '\0'; /* the name "simulated", which the hook's gpuslice adds again */
    }
    json_array_append_new(environment, json_sprintf("GPUSLICE_RUNTIME_DIR=%s", folder));
    if (client_token())
        json_array_append_new(environment, json_sprintf("GPUSLICE_IPC_TOKEN=%s", client_token()));
    return json_pack("{s:s,s:s,s:[s,s,s],s:o}", "hookName", "createContainer", "path", program, "args",
                     "gpuslice", "cdi", "--hook", "env", environment);
}

/* `body` describes the slice; this adds all that a session of it needs. */
static int specify(struct client *client, const struct cli_arguments *arguments, json_t *body,
                   const char *device, json_t **specification, struct error *error)
{
    char program[PATH_MAX];
    json_t *session = NULL, *parts = NULL, *token = make_token(error), *environment;
    const struct container_host host = {.paths = &client->paths,
                                        .driver = arguments->without_driver ? CONTAINER_DRIVER_ABSENT
                                                                            : CONTAINER_DRIVER_HOST,
                                        .devices = "/dev"};
    int result = token ? paths_program("gpuslice", program, error) : error->status;
    if (result == 0)
        result = find_environment(client, body, &session, error);
    if (result == 0) {
        environment = json_object_get(session, "environment");
        json_object_set_new(environment, "GPUSLICE_SESSION", json_string("own"));
        json_object_set(environment, "GPUSLICE_IPC_TOKEN", token);
        json_object_set(body, "token", token);
        json_object_set_new(body, "own_socket", json_true());
        json_object_set_new(body, "run", json_string("parent"));
        json_t *hook = make_hook(client, body, program);
        result = container_slice_parts(session, hook, &host, &parts, error);
        json_decref(hook);
    }
    if (result == 0)
        *specification = cdi_specification("gpuslice.io/slice", &device, 1, parts);
    json_decref(parts);
    json_decref(session);
    json_decref(token);
    return result;
}

static int write_device(struct client *client, const struct cli_arguments *arguments,
                        const struct session_wish *wish, const char *device, struct error *error)
{
    char file[96];
    json_t *body = NULL, *specification = NULL;
    int result = session_wish_body(wish, NULL, &body, error);
    if (result == 0)
        result = check_slice(client, body, error);
    if (result == 0)
        result = specify(client, arguments, body, device, &specification, error);
    snprintf(file, sizeof(file), "gpuslice-slice-%.70s", device);
    if (result == 0 && arguments->folder)
        result = cdi_write(arguments->folder, file, specification, error);
    else if (result == 0)
        cells_print_json(specification);
    json_decref(specification);
    json_decref(body);
    return result;
}

/* "NAME-0", or "NAME-0.1" for a MIG instance; "NAME" if there is only one GPU. */
static void name_device(const char *slice, const json_t *gpu, bool is_only, char name[static 96])
{
    const json_t *mig_index = json_object_get(gpu, "mig_index");
    unsigned long long index = session_number(gpu, "index");
    if (is_only)
        snprintf(name, 96, "%.63s", slice);
    else if (json_is_integer(mig_index))
        snprintf(name, 96, "%.63s-%llu.%lld", slice, index, (long long)json_integer_value(mig_index));
    else
        snprintf(name, 96, "%.63s-%llu", slice, index);
}

int slice_device_write(struct client *client, const struct cli_arguments *arguments, struct error *error)
{
    struct session_wish wish = arguments->wish;
    json_t *gpus = NULL, *gpu;
    size_t i;
    int result = start_check_driver(client->paths.simulated, error);
    if (result == 0)
        result = start_daemon(client, error);
    if (result == 0 && (wish.gpus.count || wish.memory.gpus.count))
        return write_device(client, arguments, &wish, arguments->slice, error);
    if (result == 0)
        result = client_request(client, "GET", "/v1/gpus", NULL, &gpus, error);
    json_array_foreach(gpus, i, gpu)
    {
        char name[96];
        const char *uuid = session_text(gpu, "uuid");
        wish.gpus.count = 0;
        name_device(arguments->slice, gpu, json_array_size(gpus) == 1, name);
        if (result == 0)
            result = gpu_names_add(&wish.gpus, uuid, strlen(uuid), error);
        if (result == 0)
            result = write_device(client, arguments, &wish, name, error);
    }
    json_decref(gpus);
    return result;
}
