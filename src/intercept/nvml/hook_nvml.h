/* hook_nvml.h - which of the session's GPUs an NVML handle means. */
#pragma once

#include <stdint.h>

#include "cuda/nvml.h"
#include "intercept/session/session.h"

/* Where this process's memory on an NVML device is charged; `*gpu` is the ledger's index when PLACE_ON_GPU.
 * By the device's UUID, so however the handle was found. */
enum gpu_place hook_nvml_place(nvmlDevice_t device, uint32_t *gpu);
