/* mover.h - the swap engine as the agent moves it, in a session whose daemon says when. */
#pragma once

/* From now on the daemon gives the arena its memory. */
void mover_register(void);
