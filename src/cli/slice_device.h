/* slice_device.h - CDI devices that give each container that names one a session of its own, all of the same size.
 *
 * slice   what such a session has: GPUs, memory, share
 * hook    `gpuslice cdi --hook`, which the container runtime runs (OCI's createContainer) before the container's
 *         program. It makes the session, which ends with the container, and puts the folder of the session's socket into
 *         the container. It reads the slice from its environment, which the CDI specification sets */
#pragma once

#include <jansson.h>

#include "cli/cli.h"
#include "client/client.h"

/* The hook's variable: the body of the POST that makes the session. */
#define SLICE_DEVICE_VARIABLE "GPUSLICE_SLICE"

/* Write the slice that the arguments describe into their folder, or print it: one device with the GPUs that they
 * name, or else one device for each GPU. */
int slice_device_write(struct client *client, const struct cli_arguments *arguments, struct error *error);

/* Run the hook. `state` is the container's state, which the runtime writes to stdin. */
int slice_hook_run(struct client *client, FILE *state, struct error *error);
