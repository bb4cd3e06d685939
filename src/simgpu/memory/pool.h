/* pool.h - memory pools: what pool_memory.c (taking and giving back) and pool_calls.c (the pools themselves) share.
 *
 * reserved   what a pool has of its device's memory, in steps of 2 MiB: this is what the device's account shows
 * used       what it has given out of that */
#pragma once

#include "simgpu/driver/sim.h"
#include "simgpu/memory/memory.h"

#define POOL_STEP_BYTES (UINT64_C(2) << 20)
#define POOL_GRAIN_BYTES UINT64_C(512) /* what `used` counts in, as addresses are aligned */

/* Where a pool's memory is. */
enum pool_place { POOL_ON_DEVICE, POOL_MANAGED, POOL_ON_HOST };

struct CUmemPoolHandle_st {
    _Atomic unsigned kind; /* SIM_POOL, SIM_DESTROYED when destroyed; structs stay (sim.h) */
    enum pool_place place;
    unsigned gpu; /* whose memory it is; where that is the host's, the GPU of the first request */
    CUmemPoolProps properties;
    bool is_default;
    bool is_imported;  /* stands for another process's pool: takes nothing itself */
    int exporter_heap; /* then, under the lock: where the exporter's memory lies; -1 once destroyed */
    uint64_t exporter_pool;
    int fabric; /* what its fabric handle names (shared_fabric.h), under the lock; -1: nothing yet */
    CUmemoryPool next;

    pthread_mutex_t lock; /* of all below */
    uint64_t reserved_bytes, reserved_high_bytes;
    uint64_t used_bytes, used_high_bytes;
    uint64_t release_threshold_bytes;
    int reuse_event, reuse_opportunistic, reuse_internal;
    bool is_destroyed;       /* gives back whatever is freed at once */
    uint64_t peer_access[2]; /* a bit for each of the process's devices: may read, may write */
};

static inline uint64_t pool_grains(uint64_t bytes)
{
    return (bytes + POOL_GRAIN_BYTES - 1) & ~(POOL_GRAIN_BYTES - 1);
}

static inline uint64_t pool_steps(uint64_t bytes)
{
    return (bytes + POOL_STEP_BYTES - 1) & ~(POOL_STEP_BYTES - 1);
}

/* All pools there ever were; each stays where it is. */
CUmemoryPool pool_first(void);

/* INVALID_VALUE unless the handle is a pool. */
CUresult pool_check(CUmemoryPool pool);

/* The pool that a device's cuMemAllocAsync takes from. NULL without memory for it. */
CUmemoryPool pool_current(unsigned gpu);

/* Make a pool of these `properties`; NULL without memory for it. */
CUmemoryPool pool_make(const CUmemPoolProps *properties, enum pool_place place, unsigned gpu);

/* Give back what is reserved beyond `keep_bytes` and not used. Under the pool's lock. */
void pool_trim(CUmemoryPool pool, uint64_t keep_bytes);

/* Memory that other processes import (pool_share.c). Under the pool's lock, before an allocation goes: stop
 * holding it. True if another process goes on with it: then its bytes are no longer the pool's, and its
 * addresses must not be used again. */
bool pool_share_leave(CUmemoryPool pool, const struct memory_allocation *allocation);
/* Free what was imported; false if no imported pointer is this one. */
bool pool_import_free(uint64_t pointer);
/* The pool is destroyed: nobody imports it any more, and no pointers into it. Under its lock. */
void pool_share_end(CUmemoryPool pool);
