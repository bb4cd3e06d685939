/* pool_road.h - the road of stream-ordered memory. A pool is charged for what it grows by (pool_charge.h). */
#pragma once

#include "intercept/memory/allocation.h"

/* Whether linear memory is made in place of a pool's, since the engine has no pools. `*context` is the context to
 * make it in; NULL: the current one. */
bool pool_road_is_linear(const struct allocation *wanted, CUcontext *context);

CUresult pool_road_allocate(const struct alloc_row *row, const struct allocation *wanted);
