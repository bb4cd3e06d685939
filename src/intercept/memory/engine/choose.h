/* choose.h - which engine the process has: what the policy of its session says. */
#pragma once

#include "cuda/driver.h"

/* With the process's first context, which is current or not, and before its first allocation. Later calls change nothing. */
void engine_choose(CUcontext context);
