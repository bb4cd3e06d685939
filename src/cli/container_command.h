/* container_command.h - commands that start a container. `gpuslice run` cannot become the program in the container:
 * the container runtime starts that one, with an environment of its own. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

/* 0 if container_command_compose() can give the container a session; else -EINVAL, with a message that says what to
 * do instead. `outlives`: the session goes on after the command has ended. */
int container_command_check(char *const *command, bool outlives, struct error *error);

/* The command, which was checked, with options that say `parts` (client/container.h). Everybody can read a command line, so secrets go
 * through our environment, which this sets. The caller frees the array, and leaves the words alone. */
int container_command_compose(char *const *command, const json_t *parts, char ***composed,
                              struct error *error);
