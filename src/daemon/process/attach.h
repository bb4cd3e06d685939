/* attach.h - the server of attach.sock: programs enter sessions there, and get the sessions' ledgers. */
#pragma once

#include "base/error.h"

struct daemon;
struct process;

/* Serve the listening socket `fd`, taken over. When a process's agent connects, `on_agent` gets the connection and owns
 * it. */
int attach_start(struct daemon *daemon, int fd, void (*on_agent)(struct process *process, int fd),
                 struct error *error);
/* The socket was lost: go on with another, taken over on success. */
int attach_replace_socket(struct daemon *daemon, int fd);
void attach_stop(struct daemon *daemon); /* when no process is left */
