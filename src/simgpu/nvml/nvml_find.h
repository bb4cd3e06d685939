/* nvml_find.h - what NVML's handles mean; for the files that answer for them. */
#pragma once

#include <stdbool.h>

#include "simgpu/nvml/nvml.h"

/* NVML_SUCCESS between nvmlInit and nvmlShutdown. */
nvmlReturn_t nvml_ready(void);

/* Answer with a text that has to fit whole. */
nvmlReturn_t nvml_answer_text(const char *text, char *buffer, unsigned int length);

/* The time now, as NVML tells times. */
unsigned long long nvml_wall_clock_us(void);

/* Check that the library is ready and set the handle's GPU: a card or a MIG instance. */
nvmlReturn_t nvml_find(nvmlDevice_t device, unsigned *gpu);
/* The same for calls that do not know instances: NOT_SUPPORTED for an instance's handle. (measure) */
nvmlReturn_t nvml_find_card(nvmlDevice_t device, unsigned *gpu);

nvmlDevice_t nvml_handle(unsigned gpu);

/* FAKECUDA_DRIVER_VERSION, "535.54.03"; without it, that of the branch which came with the CUDA version: "580.0-simulated". */
#define NVML_VERSION_TEXT 32
const char *nvml_driver_version(char text[static NVML_VERSION_TEXT]);
bool nvml_driver_is_before(unsigned major, unsigned minor);

#define TRY_FIND(device, gpu)                                                                                \
    do {                                                                                                     \
        nvmlReturn_t find_ = nvml_find(device, gpu);                                                         \
        if (find_ != NVML_SUCCESS)                                                                           \
            return find_;                                                                                    \
    } while (0)

#define TRY_FIND_CARD(device, gpu)                                                                           \
    do {                                                                                                     \
        nvmlReturn_t find_ = nvml_find_card(device, gpu);                                                    \
        if (find_ != NVML_SUCCESS)                                                                           \
            return find_;                                                                                    \
    } while (0)
