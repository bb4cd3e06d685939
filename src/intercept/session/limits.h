/* limits.h - limits as the environment gives them to a process on its own: GPUSLICE_MEMORY_LIMIT and
 * GPUSLICE_COMPUTE_LIMIT.
 *
 *   2GiB                                    for every GPU
 *   {"0": "2GiB", "GPU-3f…": 1073741824}    by NVML index, or by UUID in upper or lower case; other GPUs have the limit 0
 *
 *   {"0": "2GiB", "*": "1GiB"}              "*" is each GPU that no other row names
 *
 *   25%                                     every GPU; of a range such as 20%..60%, the upper end counts
 *   {"0": "25%", "GPU-3f…": 60}             the same; a bare number is a percentage; other GPUs have no cap */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ledger/ledger.h"

struct limit {
    bool by_uuid;
    uint8_t uuid[16];
    uint32_t index;
    uint64_t amount; /* bytes; or ten-thousandths of the time */
};

struct limits {
    bool every_gpu; /* `every_gpu_amount` holds for each GPU that no row names */
    uint64_t every_gpu_amount;
    uint32_t count;
    struct limit rows[LEDGER_GPUS];
};

/* Read `text` as limits of memory, and as shares of time. Return 0 or a negative errno. */
int limits_parse(const char *text, struct limits *limits, struct error *error);
int limits_parse_shares(const char *text, struct limits *limits, struct error *error);

/* Find the limit of the GPU with this NVML index (-1: unknown) and UUID; false when it has none. */
bool limits_find(const struct limits *limits, const uint8_t uuid[static 16], int index, uint64_t *amount);
