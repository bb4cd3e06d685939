/* work.h - work of a known length: kernels of so many steps (gs_steps_u32), which take the GPU's own time. A kernel that looks
 * at a clock until time has passed does not: the clock goes on while another process has the GPU. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

/* Find out how many steps a microsecond is, while nobody else uses the GPU, for this process and the parts that it starts
 * from then on. In a check, before its parts. */
void work_calibrate(void);
/* The same from a context that is there. */
void work_calibrate_here(void);

/* A kernel of about so many microseconds. */
void work_launch(uint64_t microseconds, CUstream stream);
/* A kernel of so many steps; what it takes by events, in milliseconds. */
void work_launch_steps(uint64_t steps, CUstream stream);
float work_time_steps(uint64_t steps);
double work_steps_per_us(void);

/* part "calibrate" */
void part_calibrate(const char *argument);
