/* own_socket.h - a socket of one session's own, for containers.
 *
 * It is RUNTIME_DIR/s/ID/attach.sock, in a folder that exists as long as the session: a container is given the
 * folder, and finds the socket of a restarted daemon in it (a mounted socket itself would be the old one's). A
 * program that comes by it is in this session, and names it or none. In a container, users are other users, or
 * the same numbers for others: there the session's token admits a program that is not its owner's. The session's
 * owner is charged for all that comes by it. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* What a program may call the session of the socket that it comes by, where it does not know the ID. */
#define OWN_SOCKETS_SESSION "own"

struct daemon;
struct own_socket;
struct session;

/* Make and serve it; nothing if it exists. Not before attach.sock is served: a restored session's is opened
 * then. */
int own_socket_open(struct session *session, struct error *error);

/* Stop serving it, and with `remove` take its folder away. Nothing without one. */
void own_socket_close(struct session *session, bool remove);

/* attach.sock is served: open those that restored sessions had, and remove folders that no session has. `enter`
 * is given each connection from then on. */
int own_sockets_start(struct daemon *daemon,
                      void (*enter)(struct daemon *daemon, int fd, struct session *session),
                      struct error *error);

/* The runtime folder was lost and is made anew: make those sockets too. */
void own_sockets_make_anew(struct daemon *daemon);

/* Connections to it that have said nothing yet: one more (false: there are too many), or one less. */
bool own_socket_take_silent(struct session *session);
void own_socket_drop_silent(struct session *session);

/* Its path; NULL: the session has none. */
const char *own_socket_path(const struct session *session);
