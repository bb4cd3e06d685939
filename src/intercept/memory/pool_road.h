/* pool_road.h - the road of stream-ordered memory: a pool is charged for what it grows by (pool_charge.h). */
#pragma once

#include "intercept/memory/allocation.h"

/* Whether it is made as linear memory in place of a pool's, as the engine has no pools; `*context`: in this one, NULL: in the
 * current one. */
bool pool_road_is_linear(const struct allocation *wanted, CUcontext *context);

CUresult pool_road_allocate(const struct alloc_row *row, const struct allocation *wanted);
