/* listener.h - a listening socket in the loop: who connects is handed on. */
#pragma once

#include "base/error.h"

struct daemon;
struct listener;

/* Serve the listening socket `fd` (taken over on success): `enter` is given each connection, which is its own
 * from then on, non-blocking. Where there is no descriptor for one more, those that wait go on waiting for a
 * while. `name` is for the log, and lives as long. */
int listener_open(struct daemon *daemon, int fd, const char *name, void (*enter)(void *context, int fd),
                  void *context, struct listener **listener, struct error *error);
/* Go on with another listening socket, taken over on success. */
int listener_replace(struct listener *listener, int fd);
/* NULL is none. */
void listener_close(struct listener *listener);
