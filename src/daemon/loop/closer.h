/* closer.h - closes clients' connections without making the loop wait.
 *
 * A client can send descriptors along with its bytes. When the last copy of a descriptor is closed, the kernel cleans up
 * in the thread that closed it: a TCP socket may linger, a file of a FUSE file system may never end. So the kernel
 * refuses clients' descriptors where it can (Linux 6.16), the daemon never receives any, and a helper thread closes
 * connections, whose unread bytes may carry some.
 *
 * When a close takes longer than 250 ms, that thread is left behind with it, and another takes over. One user can hold up
 * four threads at most: that user's other connections stay open until one of the four comes back. */
#pragma once

#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16; on machines whose numbers are x86's */
#endif

#define CLOSER_LONG_NS UINT64_C(250000000)
#define CLOSER_HELD_UP_MAX 4u

struct daemon;

/* Have the kernel refuse descriptors on every connection to this listening socket, where the kernel can do
 * that. */
void closer_refuse_descriptors(int listening_fd);

/* Close a client's connection. Never waits. */
void closer_close(struct daemon *daemon, int fd);

int closer_start(struct daemon *daemon, struct error *error);
void closer_stop(struct daemon *daemon); /* what is still open then closes as the process exits */
