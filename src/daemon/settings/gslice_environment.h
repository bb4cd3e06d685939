/* gslice_environment.h - what scripts of gslice's users set in the daemon's environment, and what the daemon does with it. */
#pragma once

struct daemon;

/* Note what the environment says, before the daemon changes it. Call outside of sessions only: a program inside
 * a session has the same variable, with its session's socket. */
void gslice_environment_remember(struct daemon *daemon);

/* Call when the attach socket is ready. Where GPUSLICE_IPC_SOCK names a path, make a link to the socket there.
 * Log which of gslice's variables have no effect here, and what to use instead. */
void gslice_environment_make_link(struct daemon *daemon);

/* Remove the link again. */
void gslice_environment_remove_link(struct daemon *daemon);
