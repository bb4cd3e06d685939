/* resident_threads.h - for how many threads a context keeps stack and local memory. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

/* All that can be resident on the device at once; 0: not known. */
uint64_t resident_threads(CUdevice device);
