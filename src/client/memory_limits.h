/* memory_limits.h - what --memory says: one size for every GPU of the session, or one for each. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "client/gpu_names.h"

struct memory_limits {
    uint64_t every_bytes;              /* 0: not given */
    uint32_t every_part;               /* of each card, in ten-thousandths, instead; 0: not given */
    struct gpu_names gpus;             /* set apart */
    uint64_t gpu_bytes[GPU_NAMES_MAX]; /* of gpus.names[i] */
    uint32_t gpu_parts[GPU_NAMES_MAX]; /* the same, instead */
};

/* Whether it says anything. */
bool memory_limits_given(const struct memory_limits *limits);

/* Read "4GiB", "50%" or "0=4GiB,GPU-8f2d=25%". Each size is above 0 and below 2^63, each part above 0 and up to 100 %. Sets
 * `limits` only on success. */
int memory_limits_parse(struct memory_limits *limits, const char *text, struct error *error);
