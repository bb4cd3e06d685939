/* attach.h - the server of attach.sock: who may enter a session, and gets its ledger. */
#pragma once

#include "base/error.h"

struct connection;
struct daemon;

/* Serve the listening socket `fd`, taken over. */
int attach_start(struct daemon *daemon, int fd, struct error *error);
void attach_stop(struct daemon *daemon);

/* The connection's process has gone: close it. */
void attach_drop(struct connection *connection);
