/* memory_limits.h - the value of --memory: one size for every GPU of the session, or one for each. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "client/gpu_names.h"

struct memory_limits {
    uint64_t every_bytes; /* 0: not given */
    /* of each card, in ten-thousandths, in place of every_bytes; 0: not given */
    uint32_t every_part;
    struct gpu_names gpus;             /* the GPUs with a limit of their own */
    uint64_t gpu_bytes[GPU_NAMES_MAX]; /* limit of gpus.names[i]; 0: given as a part */
    uint32_t gpu_parts[GPU_NAMES_MAX]; /* the same as a part, in ten-thousandths; 0: given in bytes */
};

/* Whether --memory was given. */
bool memory_limits_given(const struct memory_limits *limits);

/* Read "4GiB", "50%" or "0=4GiB,GPU-8f2d=25%". Each size is above 0 and below 2^63, each part above 0 and up to 100 %. Sets
 * `limits` only on success. */
int memory_limits_parse(struct memory_limits *limits, const char *text, struct error *error);
