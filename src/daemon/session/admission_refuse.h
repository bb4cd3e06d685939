/* admission_refuse.h - the words of admission's refusals (ERR_ADMISSION), with the GPU's numbers.
 *
 * All return -EBUSY. Without `error` they write no message: the queue plans hundreds of sessions in a row. */
#pragma once

#include <stdint.h>

#include "base/error.h"

struct admission_gpu;

/* `wanted_bytes` do not fit into the `unreserved_bytes` of the GPU. */
int admission_refuse_bytes(const struct admission_gpu *gpu, uint64_t wanted_bytes, uint64_t unreserved_bytes,
                           struct error *error);

/* The context of one more session would take room that the largest of the others needs when it returns. */
int admission_refuse_context(const struct admission_gpu *gpu, struct error *error);

/* A minimum share of `wanted` ten-thousandths is more than the `left` ones that are promised to nobody. */
int admission_refuse_share(const struct admission_gpu *gpu, uint32_t wanted, uint32_t left,
                           struct error *error);

/* Other sessions wait for room on the GPU, and come first. */
int admission_refuse_behind(const struct admission_gpu *gpu, struct error *error);
