/* unmovable.h - how much of this process's memory stays on the card, whatever its engine is, and why. */
#pragma once

#include <stdint.h>

#include "wire/wire.h"

/* Add to `bytes` what is charged and cannot move: contexts, arrays, managed and imported memory, pools, graphs. */
void unmovable_add(uint64_t bytes[static WIRE_STAYS_COUNT]);
