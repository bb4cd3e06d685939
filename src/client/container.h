/* container.h - what a container needs so that its programs run in a session: environment, mounts and devices.
 *
 * parts    the three lists, as a CDI specification has them under `containerEdits` (CDI 0.5); one form serves CDI, the
 *          options of podman and docker, and Kubernetes' device plugins
 *
 * The session's own socket is mounted as a folder, which outlives a restart of the daemon, at /run/gpuslice, where
 * programs that lost their environment look too. The interceptor is named in /etc/ld.so.preload, so that an
 * LD_PRELOAD of the image or the user still works beside it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/paths.h"

/* Where the container gets its driver from. */
enum container_driver {
    /* the host's libraries, found in the linker's cache, and the devices of the session's GPUs */
    CONTAINER_DRIVER_HOST,
    /* not from us: another device brings it, like nvidia.com/gpu */
    CONTAINER_DRIVER_ABSENT,
};

struct container_host {
    const struct paths *paths; /* the daemon's */
    enum container_driver driver;
    const char *devices; /* where this process sees the host's /dev */
};

/* The parts for `session`, a document with an own_socket and its `environment`. Sets `*parts`, which the caller
 * drops. */
int container_parts(const json_t *session, const struct container_host *host, json_t **parts,
                    struct error *error);

/* The parts for any number of containers, each with a session of its own. They are what `session` (its
 * `environment` and `gpus`) gives, without its socket: `hook` (as a CDI specification has one; not consumed) puts
 * the socket's folder into each container as it is made. */
#define CONTAINER_SOCKET_FOLDER "/run/gpuslice"
int container_slice_parts(const json_t *session, const json_t *hook, const struct container_host *host,
                          json_t **parts, struct error *error);

/* The driver alone, for programs that look at these GPUs (an object with `uuid` each) outside any session. */
int container_driver_parts(const json_t *gpus, const struct container_host *host, json_t **parts,
                           struct error *error);

/* The driver's libraries for this machine's architecture in `listing`, the output of `ldconfig -p`: an array of
 * paths. */
json_t *container_driver_libraries(const char *listing);

/* Whether `path` (the linker's cache) is mounted alone, and has been replaced where it came from, as ldconfig does it:
 * the mount still shows the file of before, which has no name any more. */
#define CONTAINER_LINKER_CACHE "/etc/ld.so.cache"
bool container_mount_is_outdated(const char *path);
