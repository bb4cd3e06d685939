/* least.h - the lesser of two numbers. */
#pragma once

#include <stdint.h>

static inline uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}
