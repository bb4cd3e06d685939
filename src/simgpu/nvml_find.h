/* nvml_find.h - what NVML's handles mean; for the files that answer for them. */
#pragma once

#include "simgpu/nvml.h"

/* Check that the library is ready and set the handle's GPU. */
nvmlReturn_t nvml_find(nvmlDevice_t device, unsigned *gpu);

#define TRY_FIND(device, gpu)                                                                                \
    do {                                                                                                     \
        nvmlReturn_t find_ = nvml_find(device, gpu);                                                         \
        if (find_ != NVML_SUCCESS)                                                                           \
            return find_;                                                                                    \
    } while (0)
