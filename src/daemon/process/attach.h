/* attach.h - the server of attach.sock: who may enter a session, and gets its ledger. */
#pragma once

#include "base/error.h"

struct attach;
struct connection;
struct daemon;
struct session;

/* Serve the listening socket `fd`, taken over. */
int attach_start(struct daemon *daemon, int fd, struct error *error);
void attach_stop(struct daemon *daemon);

/* Somebody connected: on attach.sock, or on the own socket (own_socket.h) of `session`, or NULL. */
void attach_enter(struct attach *attach, int fd, struct session *session);

/* The connection's process has gone: close it. */
void attach_drop(struct connection *connection);
