/* work.h - work of a known length: kernels of a number of steps (gs_steps_u32), which take the GPU's own time. A
 * kernel that watches a clock does not, as the clock goes on while another process has the GPU. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

/* Wait until the GPU's clock has settled, and measure how many steps take a microsecond, for this process and the parts that it starts from then on. Nobody
 * else may use the GPU meanwhile. For a check to call before it starts its parts. */
void work_calibrate(void);
/* The same from an existing context. Returns the length in milliseconds of the kernels that it compared: the longer they
 * are, the less the error of events counts. */
float work_calibrate_here(void);

/* Launch a kernel of about so many microseconds. */
void work_launch(uint64_t microseconds, CUstream stream);
/* Launch a kernel of so many steps; time one by events, in milliseconds. */
void work_launch_steps(uint64_t steps, CUstream stream);
float work_time_steps(uint64_t steps);
double work_steps_per_us(void);

/* part "calibrate" */
void part_calibrate(const char *argument);
