/* host_memory.h - bounds on the host memory that GPU memory takes which left the card. */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* It is given in chunks of at least so much (daemon/residency/arena.h), so a lower bound allows none. */
#define HOST_MEMORY_LEAST_BYTES (UINT64_C(64) << 20)

/* Whether a bound allows any. */
int host_memory_check_bound(uint64_t bytes, struct error *error);
