/* limits.h - memory limits as the environment gives them to a process on its own: GPUSLICE_MEMORY_LIMIT.
 *
 *   2GiB                                    every GPU
 *   {"0": "2GiB", "GPU-3f…": 1073741824}    by NVML index or UUID, in any case; other GPUs have none: limit 0
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ledger/ledger.h"

struct limit {
    bool by_uuid;
    uint8_t uuid[16];
    uint32_t index;
    uint64_t bytes;
};

struct limits {
    bool every_gpu; /* `every_gpu_bytes` holds for each, and there are no rows */
    uint64_t every_gpu_bytes;
    uint32_t count;
    struct limit rows[LEDGER_GPUS];
};

/* Read `text`. 0 or a negative errno. */
int limits_parse(const char *text, struct limits *limits, struct error *error);
