/* peer.h - which process is at the other end of a Unix socket. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"

#define UID_OVERFLOW 65534 /* an uid that has no name here: it owns nothing */

struct peer {
    pid_t pid; /* 0: in a pid namespace we cannot see */
    uid_t uid;
};

/* Who connected. 0 or a negative errno. */
int peer_credentials(int socket, struct peer *peer);

/* The same process for good: a pidfd (the caller's to close) and its start time. -ESRCH when it has gone. */
int peer_identity(int socket, struct peer *peer, int *pidfd, uint64_t *start_ticks);

/* The same of the parent of who connected, which is alive and waits for the answer; `peer->uid` stays the child's. */
int peer_parent(int socket, struct peer *peer, int *pidfd, uint64_t *start_ticks);

/* A pidfd of the process that had `pid` and `start_ticks`, or -ESRCH when that one is gone. Another error
 * says nothing about it. */
int peer_open(pid_t pid, uint64_t start_ticks);

/* What rules are about, of the process `pid` at the other end. */
void peer_program(int socket, pid_t pid, struct config_program *program);
