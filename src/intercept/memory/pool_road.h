/* pool_road.h - the road of stream-ordered memory: a pool is charged for what it grows by (pool_charge.h). */
#pragma once

#include "intercept/memory/allocation.h"

CUresult pool_road_allocate(const struct alloc_row *row, const struct allocation *wanted);
