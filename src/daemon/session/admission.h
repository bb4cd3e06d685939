/* admission.h - whether a limit fits on a card, in numbers. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* What is left of a card of `total_bytes` of which `reserved_bytes` are promised, and `others_bytes` held by
 * processes in no session. Never below 0. */
uint64_t admission_unreserved(uint64_t total_bytes, uint64_t reserved_bytes, uint64_t others_bytes);

/* Whether `wanted_bytes` may be promised on the GPU that people call `gpu` beside the `reserved_bytes`
 * promised to others and the `others_bytes` that processes in no session hold: 0, or -EBUSY with
 * ERR_ADMISSION and the numbers. */
int admission_check(const char *gpu, uint64_t total_bytes, uint64_t reserved_bytes, uint64_t others_bytes,
                    uint64_t wanted_bytes, struct error *error);

/* Whether a minimum share of `wanted` may be promised on a GPU of whose time `promised` is promised to others
 * (both in ten-thousandths): 0, or -EBUSY with ERR_ADMISSION and the numbers. */
int admission_check_share(const char *gpu, uint32_t promised, uint32_t wanted, struct error *error);

/* Index of the card with most unreserved memory, the first of equals. `count` is above 0. */
size_t admission_roomiest(const uint64_t *unreserved_bytes, size_t count);
