/* unmovable.h - how much of this process's memory stays on the card, whatever its engine is. */
#pragma once

#include <stdint.h>

/* What is charged and cannot move: contexts, arrays, managed and imported memory, pools, graphs. */
uint64_t unmovable_bytes(void);
