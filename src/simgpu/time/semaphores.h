/* semaphores.h - whether signals of external semaphores, and waits for them, may be given to a stream or a
 * graph. */
#pragma once

#include "simgpu/driver/sim.h"

CUresult semaphores_signal_check(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 *what);
CUresult semaphores_wait_check(const CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 *what);
