/* runtime.h - the daemon's place in its runtime folder: one lock, two sockets. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/paths.h"

struct runtime {
    const struct paths *paths;
    int lock_fd, state_fd;
    int control_fd, attach_fd;          /* listening */
    bool control_passed, attach_passed; /* by the service manager, which goes on listening after us */
    ino_t control_inode, attach_inode;  /* of sockets of our own, as their paths had them */
};

/* Take the folder and the state folder for this daemon. Fails, naming the pid, when another has one of them.
 * With `wait` a daemon that is just about to exit is waited for. */
int runtime_lock(struct runtime *runtime, const struct paths *paths, bool wait, struct error *error);

/* Whether a daemon answers on the folder's control socket. */
bool runtime_is_served(const struct paths *paths);

/* Take the sockets that the service manager passed (activation.h), and make those it did not, in place of
 * stale ones. Under the lock. */
int runtime_listen(struct runtime *runtime, struct error *error);

/* Whether the sockets of our own are where clients look for them. A user's runtime folder is removed as he logs
 * out, also while a job of his goes on. */
bool runtime_is_found(const struct runtime *runtime);
/* Make folder, lock and sockets anew; the new sockets are in `runtime` then, and the old ones the caller's to
 * close. Fails with -EBUSY where another daemon has come, and with -ENOENT where the folder above it is missing. */
int runtime_make_anew(struct runtime *runtime, struct error *error);

/* Make a listening socket in place of a stale one. `group` (gid_t)-1: the daemon's. */
int runtime_make_socket(const char *path, int type, mode_t mode, gid_t group, int *fd, struct error *error);

/* Stop being found, on sockets of our own. False, with nothing changed, when a client has connected that
 * nobody has answered yet. */
bool runtime_retire(struct runtime *runtime);

/* Remove the sockets that are our own. */
void runtime_remove_sockets(const struct runtime *runtime);

/* Let another daemon come, as the last thing: a process with a thread that the kernel keeps may not end for long. */
void runtime_unlock(const struct runtime *runtime);
