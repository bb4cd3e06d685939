/* shared_descriptor.h - descriptors that a program gets for memory and may send to other processes.
 *
 * Each is a socket whose queue holds one message: what the memory is, the memory itself and the lock that
 * says that it is held. Whoever has the descriptor looks at the message without taking it, as often as it
 * likes; the kernel keeps what is in it until the last copy of the descriptor is closed, whether its maker
 * lives or not. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

#define PASSING_MAGIC UINT64_C(0x6770752d73686172)

enum passing_kind { PASSING_MEMORY, PASSING_POOL, PASSING_MULTICAST };

struct passing {
    uint64_t magic; /* PASSING_MAGIC */
    uint32_t kind;
    uint32_t gpu;
    bool is_device; /* else the host's: no share */
    uint32_t share_index;
    uint64_t share_generation;
    uint64_t bytes;
    uint64_t pool; /* which of its maker's */
    CUmemAllocationProp properties;
    CUmemPoolProps pool_properties;
};

/* A descriptor with these: the memory, and the token if it is not -1. -1 if the kernel refuses. */
int passing_make(const struct passing *what, int memory, int token);

/* What a descriptor brings; false if it is none of these. The caller closes `*memory` and `*token` (-1:
 * none). */
bool passing_read(int fd, struct passing *what, int *memory, int *token);
