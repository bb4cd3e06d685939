/* hook_nvml.h - which of the session's GPUs an NVML handle means. */
#pragma once

#include <stdint.h>

#include "cuda/nvml.h"
#include "intercept/session/session.h"

/* Where this process's memory on an NVML device is charged; `*gpu` is the ledger's index if that is PLACE_ON_GPU.
 * Goes by the device's UUID, so it does not matter how the handle was found. */
enum gpu_place hook_nvml_place(nvmlDevice_t device, uint32_t *gpu);
