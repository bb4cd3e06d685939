/* launch.h - for graphs: the checks before a kernel launch. */
#pragma once

#include "simgpu/driver/sim.h"

/* Whether the function can be launched with this shape. */
CUresult launch_check(CUfunction function, const unsigned grid[3], const unsigned block[3],
                      unsigned shared_bytes);

/* A buffer of parameters, as `extra` of cuLaunchKernel holds it. */
CUresult launch_extra_read(void **extra, const char **buffer, size_t *bytes);
