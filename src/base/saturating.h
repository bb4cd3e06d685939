/* saturating.h - sums that stop at the largest number instead of going round. */
#pragma once

#include <stdint.h>

static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
