/* choose.h - chooses the engine of the process: the one that its session's policy names. */
#pragma once

#include "cuda/driver.h"

/* Call it with the process's first context, current or not, and before the first allocation. Later calls change
 * nothing. */
void engine_choose(CUcontext context);
