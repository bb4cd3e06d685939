#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <syslog.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/slice_device.h"
#include "client/container.h"
#include "client/oci.h"
#include "client/session_fields.h"

#define TMPFS_MAGIC_NUMBER 0x01021994 /* linux/magic.h */
#define CONTAINER_NAME_CHARACTERS 12  /* of its ID, as many as podman and docker show */

/* --- The container -------------------------------------------------------------------------------- */

/* The folder that will be the container's root. */
static int open_root(const struct oci_state *state, int *fd, struct error *error)
{
    char path[PATH_MAX + 16], root[PATH_MAX];
    snprintf(path, sizeof(path), "%s/config.json", state->bundle);
    json_t *config = json_load_file(path, 0, NULL);
    int result = oci_root(state, config, root, error);
    json_decref(config);
    if (result < 0)
        return result;
    *fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *fd < 0 ? error_set_errno(error, errno, "cannot open the container's root %.500s", root) : 0;
}

/* The socket's folder below the container's root. Symbolic links in the path cannot lead out of the root. */
static int open_target(int root, struct error *error)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    int fd = (int)syscall(SYS_openat2, root, CONTAINER_SOCKET_FOLDER, &how, sizeof(how));
    return fd < 0 ? error_set_errno(error, errno, "cannot open " CONTAINER_SOCKET_FOLDER " in the container")
                  : fd;
}

/* A remount must keep the flags of the file system below: in a user's own container the kernel refuses to drop
 * them. */
static unsigned long denied_flags(const char *folder)
{
    struct statvfs status;
    unsigned long flags = MS_NOSUID | MS_NODEV;
    if (statvfs(folder, &status) == 0 && status.f_flag & ST_NOEXEC)
        flags |= MS_NOEXEC;
    return flags;
}

static int mount_folder(int root, const char *folder, struct error *error)
{
    char place[64];
    struct statfs status;
    cleanup_close int below = open_target(root, error);
    if (below < 0)
        return below;
    if (fstatfs(below, &status) < 0 || status.f_type != TMPFS_MAGIC_NUMBER)
        return error_set(
            error, EINVAL, NULL,
            CONTAINER_SOCKET_FOLDER
            " in the container is not what the CDI device mounts there; mount nothing else there");
    if (faccessat(below, "attach.sock", F_OK, 0) == 0)
        return error_set(error, EEXIST, NULL,
                         "the container has a session already; give a container one slice");
    snprintf(place, sizeof(place), "/proc/self/fd/%d", below);
    if (mount(folder, place, NULL, MS_BIND, NULL) < 0)
        return error_set_errno(error, errno, "cannot mount %.200s in the container", folder);
    cleanup_close int above = open_target(root, error);
    if (above < 0)
        return above;
    snprintf(place, sizeof(place), "/proc/self/fd/%d", above);
    if (mount(NULL, place, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | denied_flags(folder), NULL) < 0)
        return error_set_errno(error, errno, "cannot mount %.200s read-only in the container", folder);
    return 0;
}

/* --- Its session ---------------------------------------------------------------------------------- */

static int make_session(struct client *client, const struct oci_state *state, json_t **session,
                        struct error *error)
{
    const char *text = getenv(SLICE_DEVICE_VARIABLE);
    char container[CONTAINER_NAME_CHARACTERS + 1];
    json_t *body = text ? json_loads(text, 0, NULL) : NULL;
    if (!json_is_object(body)) {
        json_decref(body);
        return error_set(
            error, EINVAL, NULL,
            SLICE_DEVICE_VARIABLE
            " does not say what the slice is; write the device again with 'gpuslice cdi --slice'");
    }
    snprintf(container, sizeof(container), "%.*s", (int)sizeof(container) - 1, state->id);
    json_object_set_new(body, "container", json_string(container));
    int result = client_request(client, "POST", "/v1/sessions", body, session, error);
    json_decref(body);
    return result;
}

int slice_hook_run(struct client *client, FILE *from, struct error *error)
{
    char folder[PATH_MAX];
    cleanup_close int root = -1;
    struct oci_state state;
    json_t *session = NULL;
    int result = oci_read_state(from, &state, error);
    if (result == 0)
        result = open_root(&state, &root, error);
    if (result == 0)
        result = make_session(client, &state, &session, error);
    if (result == 0) {
        snprintf(folder, sizeof(folder), "%s", session_text(session, "own_socket"));
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = '\0';
        result = mount_folder(root, folder, error);
        if (result < 0) /* on success it ends with the container */
            client_request_session(client, "DELETE", session_text(session, "session_id"), "", NULL, NULL,
                                   NULL);
    }
    json_decref(session);
    if (result < 0) /* crun does not show what hooks print */
        syslog(LOG_ERR, "a container with a slice does not start: %s", error->message);
    return result;
}
