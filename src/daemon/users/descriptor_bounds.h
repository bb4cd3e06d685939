/* descriptor_bounds.h - how many of the daemon's descriptors each user holds, so that no user can hold all of them.
 *
 * A descriptor counts for the uid of a socket's peer, or of a session's owner. The daemon's own user and root may hold
 * any number of descriptors; every other user may hold a quarter of those that the daemon may open (RLIMIT_NOFILE).
 * Connections that have said nothing yet are few for everybody. User IDs that were lent to a user count together
 * (lent_uids.h). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct daemon;

enum user_holding {
    USER_REQUEST,    /* a connection to control.sock */
    USER_SILENT,     /* a connection to attach.sock that has not sent HELLO or AGENT yet */
    USER_PROCESS,    /* an attached process */
    USER_LEDGER,     /* an open ledger */
    USER_RUNNER,     /* a session that ends with the process that made it */
    USER_OWN_SOCKET, /* a session's own socket */
    USER_QUEUED,     /* a session that waits in the queue, and the process that asked for it */
    USER_CHUNK,      /* a chunk of host memory that a process has (residency/moves_chunks.c) */
    USER_USES
};

/* How many connections of one kind one user may have, root too; and how many all users together may have before
 * users other than root and the daemon's own are refused. */
#define USER_CONNECTIONS_MAX 256
#define USER_ALL_CONNECTIONS_MAX 2048
/* Sessions of one user in the queue. The daemon walks the whole queue whenever something changes. */
#define USER_QUEUED_MAX 1000

/* Whether `uid` may hold one more: 0, or -EBUSY with ERR_TOO_MANY. */
int user_check(struct daemon *daemon, uid_t uid, enum user_holding use, struct error *error);

/* The user who holds the most of `use`, root and the daemon's own user left out; the one that `uid` counts as where
 * none of the others holds more. */
uid_t user_with_most(struct daemon *daemon, uid_t uid, enum user_holding use);
bool user_is_counted_as(struct daemon *daemon, uid_t uid, uid_t counted);

/* Count one more, or one less. */
void user_add(struct daemon *daemon, uid_t uid, enum user_holding use);
void user_remove(struct daemon *daemon, uid_t uid, enum user_holding use);
