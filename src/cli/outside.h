/* outside.h - programs that use a GPU outside of the session that `gpuslice run` made for them.
 *
 * A command may have another process start its programs: a server that runs already, another user's shell, a script that calls
 * docker. `run` has become the command by then. So a child of it stays behind, which waits for the command's end, looks, and
 * says on stderr what it has found. */
#pragma once

#include <stdbool.h>

/* Have the command that this process is about to become watched. The child is no child of the command's, holds none of its
 * descriptors but stderr, and ends with the command: at once, or within 10 s if stderr is a terminal or a file, as what the
 * command started may need time to come to the GPU. What cannot be watched goes on unwatched. */
void outside_watch(bool simulated);
