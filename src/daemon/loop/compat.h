/* compat.h - what a script of gslice's users gives a daemon in its environment, and what becomes of it. */
#pragma once

struct daemon;

/* Note what the environment says, before the daemon changes it. Outside of sessions only: a program inside has
 * the variable too, with its session's socket. */
void compat_remember(struct daemon *daemon);

/* The attach socket is ready: where GPUSLICE_IPC_SOCK names a path, put a link to it there. Says in the log which
 * of gslice's variables have no effect here, and what does. */
void compat_begin(struct daemon *daemon);

/* Take the link away again. */
void compat_end(struct daemon *daemon);
