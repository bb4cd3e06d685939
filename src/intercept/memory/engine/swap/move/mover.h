/* mover.h - what the agent calls to move the swap engine's memory when the daemon says so. */
#pragma once

extern const struct agent_mover swap_mover;

/* From now on the agent moves the memory, and the daemon, if the process has one, gives the arena its chunks. */
void mover_register(void);
