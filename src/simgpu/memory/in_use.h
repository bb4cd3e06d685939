/* in_use.h - which memory the GPU's work in flight needs: where that memory goes too early, the work faults, as on a card.
 *
 * use   a range of device memory that one piece of work touches, until the work is over
 *
 * On a card such a fault ends the context's work for good: Xid 31 and CUDA_ERROR_ILLEGAL_ADDRESS from each later call. Here the
 * bytes have moved already when a call returns, so the error is all that a program sees of it. Nothing is kept where every free
 * and every unmapping waits for the work first. */
#pragma once

#include "simgpu/driver/sim.h"

/* What was put on the stream just now touches the range. */
void in_use_add(CUcontext context, CUstream stream, uint64_t address, uint64_t bytes);

/* Nothing is mapped at the range from now on: what still needs it faults. */
void in_use_gone(uint64_t address, uint64_t bytes);
