/* What container runtimes, the linker's cache and the daemon tell those that make containers: a state and a configuration of OCI, a
 * listing of libraries, and a session's document. Each is read whole or refused; what goes on into a CDI specification is a name
 * that CDI knows. */
#include "client/oci.h"
#include "client/cdi.h"
#include "client/container.h"
#include "fuzz.h"

static void try_state(char *text, size_t bytes)
{
    struct oci_state state;
    struct error error = {0};
    FILE *from = fmemopen(text, bytes + 1, "r");
    fuzz_require(from);
    if (oci_read_state(from, &state, &error) == 0)
        fuzz_require(state.id[0] && state.bundle[0] == '/');
    else
        fuzz_require(error.message[0]);
    fclose(from);
}

static void try_config(const json_t *config)
{
    const struct oci_state state = {.id = "c", .bundle = "/bundle"};
    struct error error = {0};
    char root[PATH_MAX];
    if (oci_root(&state, config, root, &error) == 0)
        fuzz_require(root[0] == '/' && memchr(root, '\0', sizeof(root)));
    else
        fuzz_require(error.message[0]);
}

static void try_session(const json_t *session)
{
    static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-";
    json_t *parts = json_object(), *specification = cdi_session(session, parts);
    const json_t *devices = json_object_get(specification, "devices");
    const char *second = json_string_value(json_object_get(json_array_get(devices, 1), "name"));
    fuzz_require(json_array_size(devices) <= 2);
    if (second)
        fuzz_require(second[0] != '-' && second[0] != '.' && second[strspn(second, characters)] == '\0');
    json_decref(specification);
    json_decref(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    json_t *json = json_loads(text, 0, NULL), *libraries = container_driver_libraries(text);
    fuzz_require(json_is_array(libraries));
    json_decref(libraries);
    try_state(text, bytes);
    try_config(json);
    if (json)
        try_session(json);
    json_decref(json);
    free(text);
    return 0;
}
