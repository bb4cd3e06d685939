/* attach.h - the server of attach.sock: programs enter sessions there, and get their ledgers. */
#pragma once

#include "base/error.h"

struct daemon;
struct process;

/* Serve the listening socket `fd`, taken over. `on_agent` is given the connection of a process's agent, which
 * is its own from then on. */
int attach_start(struct daemon *daemon, int fd, void (*on_agent)(struct process *process, int fd),
                 struct error *error);
/* Its socket was lost: go on with another, taken over on success. */
int attach_replace_socket(struct daemon *daemon, int fd);
void attach_stop(struct daemon *daemon); /* no process is left */
