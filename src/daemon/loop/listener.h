/* listener.h - a listening socket in the loop, which passes each new connection on. */
#pragma once

#include "base/error.h"

struct daemon;
struct listener;

/* Serve the listening socket `fd` (taken over on success). `enter` gets the connections, non-blocking, one in a
 * round of the loop, and owns them; it may close the listener. When no descriptor is free for a new connection, it
 * stays in the kernel's backlog, and the loop tries again a little later. `name` is for the log, and must live as long
 * as the listener. */
int listener_open(struct daemon *daemon, int fd, const char *name, void (*enter)(void *context, int fd),
                  void *context, struct listener **listener, struct error *error);
/* Go on with another listening socket, taken over on success. */
int listener_replace(struct listener *listener, int fd);
/* NULL does nothing. */
void listener_close(struct listener *listener);
