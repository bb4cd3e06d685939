/* container_command.h - commands that start a container: `gpuslice run` cannot become the container's program, which is
 * started by others, with an environment of its own. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

/* The program of the command that starts a container (podman, docker, nerdctl, apptainer...), itself or behind sudo, env and their
 * like; NULL: none does, as where it lists images. */
const char *container_command_starts(char *const *command);

/* Whether options can be put into it that give the container a session: -EINVAL, with what to do instead.
 * `outlives`: the session goes on when the command has ended. */
int container_command_check(char *const *command, bool outlives, struct error *error);

/* The command with the options that say `parts` (client/container.h). What is secret goes by our environment, which is
 * set, as everybody can read a command line. The caller frees the array, and lets go of the words. */
int container_command_compose(char *const *command, const json_t *parts, char ***composed,
                              struct error *error);
