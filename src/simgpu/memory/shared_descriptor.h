/* shared_descriptor.h - descriptors that a program gets for memory and may send to other processes.
 *
 * Each is a socket whose queue holds one message: what the memory is, the memory itself and the lock that
 * says that it is held. A process with the descriptor looks at the message without taking it, as often as it
 * likes; the kernel keeps what is in it until the last copy of the descriptor is closed, whether its maker
 * lives or not. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

#define SHARED_DESCRIPTOR_MAGIC UINT64_C(0x6770752d73686172)

enum shared_descriptor_kind { SHARED_DESCRIPTOR_MEMORY, SHARED_DESCRIPTOR_POOL, SHARED_DESCRIPTOR_MULTICAST };

struct shared_descriptor {
    uint64_t magic; /* SHARED_DESCRIPTOR_MAGIC */
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

/* Make a descriptor of `what`, the memory, and the token if it is not -1. -1 if the kernel refuses. */
int shared_descriptor_make(const struct shared_descriptor *what, int memory, int token);

/* What a descriptor brings; false if it is not one of these. The caller closes `*memory` and `*token` (-1:
 * none). */
bool shared_descriptor_read(int fd, struct shared_descriptor *what, int *memory, int *token);
