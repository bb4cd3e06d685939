/* own_socket.h - a socket that belongs to one session, for containers.
 *
 * The socket is RUNTIME_DIR/s/ID/attach.sock, in a folder that exists as long as the session. A container is given the
 * folder, and finds the socket of a restarted daemon in it (if the socket itself were mounted, it would be the old
 * daemon's). A program that connects to it belongs to this session, whether or not it names the session. In a container,
 * users may be other users, or have the same numbers for other users: there the session's token admits a program that is
 * not its owner's. Whatever connects to the socket counts as the session owner's. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* What a program may call the session when it connects to the session's own socket and does not know the ID. */
#define OWN_SOCKETS_SESSION "own"

struct daemon;
struct own_socket;
struct session;

/* Make and serve the socket; nothing if it exists. Does nothing before attach.sock is served: own_sockets_start() opens
 * those of restored sessions. */
int own_socket_open(struct session *session, struct error *error);

/* Stop serving it; with `remove`, remove its folder too. Nothing if the session has none. */
void own_socket_close(struct session *session, bool remove);

/* Call when attach.sock is served: open the sockets that restored sessions had, and remove folders that belong to no
 * session. `enter` gets each new connection from then on, and may end the session, and `session_id` with it. */
int own_sockets_start(struct daemon *daemon,
                      void (*enter)(struct daemon *daemon, int fd, const char *session_id),
                      struct error *error);

/* The runtime folder was lost and has been made again: make these sockets again too. */
void own_sockets_make_anew(struct daemon *daemon);

/* Count the connections to it that have said nothing yet: one more (false: there are too many), or one less. */
bool own_socket_take_silent(struct session *session);
void own_socket_drop_silent(struct session *session);

/* Its path; NULL: the session has no socket of its own. */
const char *own_socket_path(const struct session *session);
