/* activation.h - sockets that the service manager made before it started us (sd_listen_fds(3)). Clients can connect
 * while no daemon runs: they wait, and the next daemon answers them. */
#pragma once

#include "base/error.h"
#include "base/paths.h"

/* The names that the units give their sockets (FileDescriptorName=). */
#define ACTIVATION_CONTROL "control"
#define ACTIVATION_ATTACH "attach"

/* Take the listening sockets that were passed to this process; a socket that was not passed is -1. Each must be
 * where the clients of `paths` look for it. Call once: it removes LISTEN_FDS and the like from the environment.
 * Fails with -EINVAL, naming the socket, when a passed socket is not one of ours. */
int activation_take(const struct paths *paths, int *control_fd, int *attach_fd, struct error *error);
