/* charge_elsewhere.h - managed memory that a program sends to another GPU of its session than the one on which it was
 * charged. How much of it is where changes with every kernel, so it counts in full on each GPU that it was sent to. */
#pragma once

#include "intercept/memory/charge.h"

/* The allocation around `address` is about to come to this GPU. False, with a line on stderr, if it does not fit there. */
bool charge_elsewhere(CUdeviceptr address, uint32_t gpu);

/* The driver has taken back what was allocated at `base`. */
void charge_elsewhere_freed(CUdeviceptr base);
