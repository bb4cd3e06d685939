/* sockets.h - the sockets that programs of ours listen on: all are made here, under one rule.
 *
 * A client can send descriptors along with its bytes. When the last copy of a descriptor is closed, the kernel cleans up
 * in the thread that closed it, which can take for ever: a TCP socket may linger, a file of a FUSE file system may never
 * end. So the kernel refuses clients' descriptors where it can (Linux 6.16). On older kernels whoever serves a socket
 * closes its connections on a thread that nobody waits for. */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16; on machines whose numbers are x86's */
#endif

/* Listen at `path`, in place of a socket that was left there. `type` as in socket(2), with its flags. Nobody connects
 * before the mode, and the group unless it is -1, are set. 0 or a negative errno. */
int socket_listen(const char *path, int type, mode_t mode, gid_t group, int *fd);

/* Have the kernel refuse descriptors on every connection to a listening socket that others made, where it can. */
void socket_refuse_descriptors(int listening_fd);
