/* closer.h - the loop closes nothing that a stranger made slow to close.
 *
 * A client can send descriptors along with its bytes. When the last copy of one is closed, the kernel ends what it
 * stands for in the thread that closed it: a TCP socket may linger, a file of a FUSE file system may never end. So
 * clients' descriptors are refused where the kernel can do that (Linux 6.16), are never received, and connections,
 * whose unread bytes may have some along, are closed by a helper thread.
 *
 * Where a close takes longer than 250 ms, that thread is left behind with it, and another takes over. One user holds up
 * four at most: what else is to be closed for that user stays open until one of them comes back. */
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

/* Have the kernel refuse descriptors on every connection to this listening socket, where it can. */
void closer_refuse_descriptors(int listening_fd);

/* Close a client's connection. Never waits. */
void closer_close(struct daemon *daemon, int fd);

int closer_start(struct daemon *daemon, struct error *error);
void closer_stop(struct daemon *daemon); /* what is not closed by then is left to the end of the process */
