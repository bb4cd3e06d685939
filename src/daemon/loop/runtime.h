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
    bool control_passed, attach_passed; /* the service manager made it, and goes on listening after us */
    ino_t control_inode, attach_inode;  /* of the sockets that we made ourselves */
};

/* Take the runtime folder and the state folder for this daemon. Fails with -EBUSY, naming the pid, when another
 * daemon has the runtime folder; or when one has the state folder. With `wait`, give a daemon that is about to
 * exit up to 5 s; what a dead one left gets that in any case. */
int runtime_lock(struct runtime *runtime, const struct paths *paths, bool wait, struct error *error);

/* Whether a daemon answers on the folder's control socket. */
bool runtime_is_served(const struct paths *paths);

/* Take the sockets that the service manager passed (activation.h), and make the others in place of stale ones.
 * Call with the lock held. */
int runtime_listen(struct runtime *runtime, struct error *error);

/* Whether the sockets that we made are where clients look for them. The system removes a user's runtime folder
 * when the user logs out, even while a job of that user goes on. */
bool runtime_is_found(const struct runtime *runtime);
/* Make folder, lock and sockets again. The new sockets are then in `runtime`; closing the old ones is up to the
 * caller. Fails with -EBUSY where another daemon has come, and with -ENOENT where the parent folder is missing. */
int runtime_make_anew(struct runtime *runtime, struct error *error);

/* Make a listening socket in place of a stale one. `group` (gid_t)-1: the daemon's group. */
int runtime_make_socket(const char *path, int type, mode_t mode, gid_t group, int *fd, struct error *error);

/* Stop being found, where we made the sockets. False, with nothing changed, when a client has connected and
 * nobody has answered it yet. */
bool runtime_retire(struct runtime *runtime);

/* Remove the sockets that we made. */
void runtime_remove_sockets(const struct runtime *runtime);

/* Let another daemon start. Call this last: a process with a thread that is stuck in the kernel may take long
 * to end. */
void runtime_unlock(const struct runtime *runtime);
