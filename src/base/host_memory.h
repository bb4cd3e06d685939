/* host_memory.h - bounds on the host memory that holds GPU memory while it is off the card. */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* The smallest chunk of host memory (daemon/residency/arena.h). A bound below it would leave room for none. */
#define HOST_MEMORY_LEAST_BYTES (UINT64_C(64) << 20)

/* 0 if `bytes`, as a bound, has room for at least one chunk; else -ERANGE. */
int host_memory_check_bound(uint64_t bytes, struct error *error);
