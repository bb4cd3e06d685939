/* device_held.h - whether a process has a GPU's device open. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether process `pid` has one of the NVIDIA driver's devices open; `is_simulated`: the simulated driver's. A process with
 * more than some thousand descriptors is not looked through, and counts as having it. */
bool device_is_held(pid_t pid, bool is_simulated);
