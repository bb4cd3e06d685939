/* slice_device.h - CDI devices that give each container that names one a session of its own, all of the same size.
 *
 * slice   what such a session is made of: GPUs, memory, share
 * hook    `gpuslice cdi --hook`, which the container's runtime runs (OCI's createContainer) before the container's program: it
 *         makes the session, which ends with the container, and puts the folder of its socket into the container. What a
 *         slice is, it reads in its environment, which the CDI specification sets */
#pragma once

#include <jansson.h>

#include "cli/cli.h"
#include "client/client.h"

/* The hook's variable: the body of a POST of the session. */
#define SLICE_DEVICE_VARIABLE "GPUSLICE_SLICE"

/* Write the slice that the arguments describe into their folder, or print it: one device of the GPUs that they name, or else
 * one for each GPU. */
int slice_device_write(struct client *client, const struct cli_arguments *arguments, struct error *error);

/* What the hook does; `state` is the container's, as the runtime tells it on stdin. */
int slice_hook_run(struct client *client, FILE *state, struct error *error);
