/* small_daemon.h - a daemon without sockets, NVML and helper processes, in a folder of its own in memory, for
 * targets that need one. Its cards are made up; its process is the fuzzer's. */
#pragma once

#include "daemon/loop/daemon.h"

/* Made at the first call; the folder goes with the process. */
struct daemon *small_daemon(void);

/* Handle all that waits. */
void small_daemon_run(struct daemon *daemon);

/* Remove a file or folder with what is in it, if it is there. */
void small_daemon_remove(const char *path);
