/* mover.h - the swap engine as the agent moves it, when the daemon says so. */
#pragma once

extern const struct agent_mover swap_mover;

/* From now on the daemon gives the arena its memory, if the process has one. */
void mover_register(void);
