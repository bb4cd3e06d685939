/* vmm.h - handles of physical memory, for vmm.c and the files that share them with other processes. */
#pragma once

#include <pthread.h>

#include "simgpu/driver/sim.h"
#include "simgpu/memory/memory.h"

#define SIM_HANDLE 0x51c0de09u

struct handle {
    _Atomic unsigned kind; /* SIM_HANDLE while references or mappings are left; structs stay (sim.h) */
    CUmemAllocationProp properties;
    bool is_device;
    unsigned gpu;
    uint64_t bytes;
    int fd;                      /* the memory; of a multicast object its team */
    struct multicast *multicast; /* NULL: it is memory (multicast.c) */
    struct device_share *share;  /* once other processes can have it */
    int fabric;                  /* what its fabric handle names (shared_fabric.h); -1: nothing yet */
    unsigned references, mappings;
};

extern pthread_mutex_t vmm_lock; /* of all handles' counts, shares and mappings */

/* NULL for what is not a living handle. */
struct handle *handle_of(CUmemGenericAllocationHandle value);

/* Let the memory go if nothing refers to the handle. Under vmm_lock. */
void handle_settle(struct handle *handle);

/* Make the memory other processes' too; false when the GPU has too many shares. Under vmm_lock. */
bool handle_share(struct handle *handle);

/* A handle of memory that a descriptor brings (shared_descriptor.h). INVALID_VALUE if it is not one, or gone. */
CUresult handle_import(int fd, struct handle **handle);

/* A multicast object's handle for the team that lies in `fd`, which it keeps; NULL without memory. */
struct handle *multicast_join(int fd);
/* Nothing refers to the object any more: let go of what is bound to it. Under vmm_lock. */
void multicast_end(struct handle *object);
/* Take vmm_lock; first wait until a multicast object's devices have all been added, as a card's driver does
 * (driver API reference, cuMulticastAddDevice). At once for any other value. */
void multicast_lock_whole(CUmemGenericAllocationHandle value);
