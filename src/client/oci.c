#include "client/oci.h"

#include <errno.h>
#include <string.h>

#include "client/session_fields.h"

static bool copy_text(char *to, size_t bytes, const char *text)
{
    return *text && snprintf(to, bytes, "%s", text) < (int)bytes;
}

int oci_read_state(FILE *from, struct oci_state *state, struct error *error)
{
    json_t *json = json_loadf(from, 0, NULL);
    bool is_well = copy_text(state->id, sizeof(state->id), session_text(json, "id")) &&
                   copy_text(state->bundle, sizeof(state->bundle), session_text(json, "bundle")) &&
                   state->bundle[0] == '/';
    json_decref(json);
    return is_well ? 0
                   : error_set(error, EINVAL, NULL,
                               "stdin does not name a container; expected to be called by a container "
                               "runtime, for a device that 'gpuslice cdi --slice' wrote");
}

int oci_root(const struct oci_state *state, const json_t *config, char root[static PATH_MAX],
             struct error *error)
{
    const char *named = session_text(json_object_get(config, "root"), "path");
    bool is_absolute = *named == '/';
    int length =
        snprintf(root, PATH_MAX, "%s%s%s", is_absolute ? "" : state->bundle, is_absolute ? "" : "/", named);
    if (!*named)
        return error_set(error, EINVAL, NULL, "%.500s/config.json does not say where the container's root is",
                         state->bundle);
    if (length >= PATH_MAX)
        return error_set(error, ENAMETOOLONG, NULL,
                         "the path of the container's root has %d bytes; expected fewer than %d", length,
                         PATH_MAX);
    return 0;
}
