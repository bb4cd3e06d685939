/* peer.h - which process is at the other end of a Unix socket. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"

#define UID_OVERFLOW 65534 /* a uid that has no name here: it owns nothing */

struct peer {
    pid_t pid; /* 0: it is in a pid namespace that we cannot see */
    uid_t uid;
};

/* The process that connected. 0 or a negative errno. */
int peer_credentials(int socket, struct peer *peer);

/* Identify the process that connected for good: a pidfd (the caller's to close) and its start time. -ESRCH when
 * it has gone. */
int peer_identity(int socket, struct peer *peer, int *pidfd, uint64_t *start_ticks);

/* The same for the parent of the process that connected; that process must be alive and wait for the answer.
 * `peer->uid` stays the child's. */
int peer_parent(int socket, struct peer *peer, int *pidfd, uint64_t *start_ticks);

/* A pidfd of the process that had `pid` and `start_ticks`; -ESRCH when that process has gone. Any other error
 * says nothing about it. */
int peer_open(pid_t pid, uint64_t start_ticks);

/* What the rules of sessions.conf look at, of the process `pid` at the other end: its user, groups and
 * executable. */
void peer_program(int socket, pid_t pid, struct config_program *program);
