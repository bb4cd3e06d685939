/* container.h - what a container is given so that its programs run in a session: environment, mounts and devices.
 *
 * parts    the three lists, as a CDI specification has them under `containerEdits` (CDI 0.5), so that one form serves CDI,
 *          the options of podman and docker, and Kubernetes' device plugins
 *
 * The session's own socket is mounted as a folder (it goes on through a restart of the daemon) at /run/gpuslice, where
 * programs that lost their environment look too. The interceptor is named in /etc/ld.so.preload, so that an LD_PRELOAD of
 * the image's or of the user's stays in force beside it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/paths.h"

/* Which driver the container gets. */
enum container_driver {
    CONTAINER_DRIVER_HOST, /* the host's libraries, by the linker's cache, and the devices of the session's GPUs */
    CONTAINER_DRIVER_ABSENT, /* none: another device brings it, like nvidia.com/gpu */
};

struct container_host {
    const struct paths *paths; /* the daemon's */
    enum container_driver driver;
    const char *devices; /* where the host's /dev is seen */
};

/* `session` has an own_socket and its `environment`. Sets `*parts`, which the caller drops. */
int container_parts(const json_t *session, const struct container_host *host, json_t **parts,
                    struct error *error);

/* For any number of containers, each with a session of its own: what `session` (its `environment` and `gpus`) gives, but for its
 * socket, whose folder `hook` (as a CDI specification has one; not consumed) puts into the container as it is made. */
#define CONTAINER_SOCKET_FOLDER "/run/gpuslice"
int container_slice_parts(const json_t *session, const json_t *hook, const struct container_host *host,
                          json_t **parts, struct error *error);

/* The driver alone, for programs that look at these GPUs ({uuid} each) and are in no session. */
int container_driver_parts(const json_t *gpus, const struct container_host *host, json_t **parts,
                           struct error *error);

/* Of what `ldconfig -p` printed, the driver's libraries for programs of this machine's kind: an array of paths. */
json_t *container_driver_libraries(const char *listing);
