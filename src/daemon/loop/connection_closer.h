/* connection_closer.h - closes clients' connections without making the loop wait.
 *
 * Bytes that nobody has read may carry descriptors that are slow to close (base/sockets.h). Where the kernel does not
 * refuse them, the daemon never receives any, and a helper thread closes connections.
 *
 * When a close takes longer than 250 ms, that thread is left behind with it, and another takes over. One user can hold up
 * four threads at most: that user's other connections stay open until one of the four comes back. */
#pragma once

#include <stdint.h>

#include "base/error.h"

#define CLOSER_LONG_NS UINT64_C(250000000)
#define CLOSER_HELD_UP_MAX 4u

struct daemon;

/* Close a client's connection. Never waits. */
void connection_closer_close(struct daemon *daemon, int fd);

int connection_closer_start(struct daemon *daemon, struct error *error);
void connection_closer_stop(struct daemon *daemon); /* what is still open then closes as the process exits */
