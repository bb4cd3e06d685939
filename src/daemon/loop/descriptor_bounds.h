/* descriptor_bounds.h - what each user holds of the daemon's descriptors, so that nobody can hold all of them.
 *
 * Counted by the uid of a socket's peer, or of a session's owner. The daemon's own user and root may hold any
 * number of descriptors, each other user a quarter of those that the daemon may open (RLIMIT_NOFILE);
 * connections of which nothing is known yet are few for everybody. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct daemon;

enum user_holding {
    USER_REQUEST,    /* a connection to control.sock */
    USER_SILENT,     /* one to attach.sock on which no HELLO or AGENT has come */
    USER_PROCESS,    /* an attached process */
    USER_LEDGER,     /* an open ledger */
    USER_RUNNER,     /* a session that ends with the process that made it */
    USER_OWN_SOCKET, /* a session's own socket */
    USER_QUEUED,     /* a session that waits in the queue, and the process that asked for it */
    USER_USES
};

/* Connections of one use that one user may have, and all users but the daemon's own and root together. */
#define USER_CONNECTIONS_MAX 256
#define USER_ALL_CONNECTIONS_MAX 2048
/* Sessions of one user in the queue, which is walked from its head whenever something changes. */
#define USER_QUEUED_MAX 1000

/* Whether `uid` may hold one more: 0, or ERR_TOO_MANY. */
int user_check(const struct daemon *daemon, uid_t uid, enum user_holding use, struct error *error);

/* The user, but the daemon's own and root, who has most of them; `uid` where all those have fewer than it. */
uid_t user_with_most(const struct daemon *daemon, uid_t uid, enum user_holding use);

/* There is one more, or one less. */
void user_add(struct daemon *daemon, uid_t uid, enum user_holding use);
void user_remove(struct daemon *daemon, uid_t uid, enum user_holding use);
