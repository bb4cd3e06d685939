/* activation.h - sockets that the service manager made before it started us (sd_listen_fds(3)), so that
 * clients can connect while no daemon runs: they wait, and the next one answers them. */
#pragma once

#include "base/error.h"
#include "base/paths.h"

/* The names that the units give their sockets (FileDescriptorName=). */
#define ACTIVATION_CONTROL "control"
#define ACTIVATION_ATTACH "attach"

/* Take the listening sockets that were passed to this process; -1 for one that was not. They must be where
 * the clients of `paths` look for them. Once a process: the environment that tells of them is dropped. Fails
 * with -EINVAL, naming the socket, for one that is none of ours. */
int activation_take(const struct paths *paths, int *control_fd, int *attach_fd, struct error *error);
