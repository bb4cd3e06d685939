/* pool_calls.c - memory pools as objects: default and made ones, which is a device's current one, attributes, who
 * may use their memory. */
#include "simgpu/memory/pool.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/memory/shared_fabric.h"

/* A place that has a default pool and a current one. */
enum slot {
    SLOT_DEVICE,                              /* one for each GPU */
    SLOT_MANAGED = SLOT_DEVICE + DEVICE_GPUS, /* preferred at a GPU */
    SLOT_MANAGED_ANYWHERE = SLOT_MANAGED + DEVICE_GPUS,
    SLOT_MANAGED_HOST,
    SLOT_HOST,
    SLOT_HOST_NUMA, /* one NUMA node is all the machine shows */
    SLOTS,
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(CUmemoryPool) pools;
static CUmemoryPool default_pools[SLOTS], current_pools[SLOTS];

CUmemoryPool pool_first(void)
{
    return atomic_load_explicit(&pools, memory_order_acquire); /* with pool_make */
}

CUresult pool_check(CUmemoryPool pool)
{
    SIM_TRY(sim_ready());
    CUmemoryPool known = pool_first();
    while (known && known != pool)
        known = known->next;
    return known && atomic_load(&known->kind) == SIM_POOL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUmemoryPool pool_make(const CUmemPoolProps *properties, enum pool_place place, unsigned gpu)
{
    CUmemoryPool pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->properties = *properties;
    pool->place = place;
    pool->gpu = gpu;
    pool->fabric = -1;
    pool->reuse_event = pool->reuse_opportunistic = pool->reuse_internal = 1;
    pthread_mutex_init(&pool->lock, NULL);
    atomic_store(&pool->kind, SIM_POOL);
    pool->next = atomic_load(&pools);
    while (!atomic_compare_exchange_weak_explicit(&pools, &pool->next, pool, memory_order_release,
                                                  memory_order_relaxed))
        continue;
    return pool;
}

/* --- Places ---------------------------------------------------------------------------------------- */

/* The GPU that host and roaming memory counts with when the program synchronises. */
static unsigned any_gpu(void)
{
    CUcontext context;
    return context_current(&context) == CUDA_SUCCESS ? context->gpu : simulator.visible[0];
}

/* What place the location and the type mean: managed memory may be without a location (cuda.h 13.0). */
static CUresult place_of(const CUmemLocation *location, CUmemAllocationType type, enum pool_place *place,
                         unsigned *gpu, enum slot *slot)
{
    SIM_REQUIRE(type == CU_MEM_ALLOCATION_TYPE_PINNED || type == CU_MEM_ALLOCATION_TYPE_MANAGED);
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        SIM_TRY(device_check(location->id));
        *gpu = simulator.visible[location->id];
        *place = managed ? POOL_MANAGED : POOL_ON_DEVICE;
        *slot = (managed ? SLOT_MANAGED : SLOT_DEVICE) + *gpu;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_NONE:
        SIM_REQUIRE(managed);
        *slot = SLOT_MANAGED_ANYWHERE;
        *place = POOL_MANAGED;
        break;
    case CU_MEM_LOCATION_TYPE_HOST:
        *slot = managed ? SLOT_MANAGED_HOST : SLOT_HOST;
        *place = managed ? POOL_MANAGED : POOL_ON_HOST;
        break;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        SIM_REQUIRE(location->id == 0);
        *slot = managed ? SLOT_MANAGED_HOST : SLOT_HOST_NUMA;
        *place = managed ? POOL_MANAGED : POOL_ON_HOST;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *gpu = any_gpu();
    return CUDA_SUCCESS;
}

/* Under pools_lock. */
static CUmemoryPool default_of(enum slot slot, enum pool_place place, unsigned gpu,
                               const CUmemPoolProps *properties)
{
    if (!default_pools[slot]) {
        default_pools[slot] = pool_make(properties, place, gpu);
        if (default_pools[slot])
            default_pools[slot]->is_default = true;
    }
    return default_pools[slot];
}

static CUresult pool_of_location(CUmemoryPool *pool_out, const CUmemLocation *location,
                                 CUmemAllocationType type, bool current)
{
    enum pool_place place;
    unsigned gpu;
    enum slot slot;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pool_out && location);
    SIM_TRY(place_of(location, type, &place, &gpu, &slot));
    pthread_mutex_lock(&pools_lock);
    CUmemoryPool pool = current ? current_pools[slot] : NULL;
    if (!pool)
        pool = default_of(slot, place, gpu, &(CUmemPoolProps){.allocType = type, .location = *location});
    pthread_mutex_unlock(&pools_lock);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool_out = pool;
    return CUDA_SUCCESS;
}

static CUresult pool_of_device(CUmemoryPool *pool, CUdevice device, bool current)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pool);
    SIM_TRY(device_check(device));
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    return pool_of_location(pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED, current);
}

CUmemoryPool pool_current(unsigned gpu)
{
    CUmemoryPool pool = NULL;
    for (unsigned ordinal = 0; ordinal < simulator.device_count; ordinal++)
        if (simulator.visible[ordinal] == gpu)
            pool_of_device(&pool, (CUdevice)ordinal, true);
    return pool;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return pool_of_device(pool, device, false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return pool_of_device(pool, device, true);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return pool_of_location(pool, location, type, false);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return pool_of_location(pool, location, type, true);
}

/* A pool can be current where its own memory is. */
static CUresult set_current(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    enum pool_place place;
    unsigned gpu;
    enum slot slot;
    SIM_TRY(pool_check(pool));
    SIM_TRY(place_of(location, type, &place, &gpu, &slot));
    SIM_REQUIRE(!pool->is_imported && pool->place == place);
    SIM_REQUIRE(location->type != CU_MEM_LOCATION_TYPE_DEVICE || pool->gpu == gpu);
    SIM_REQUIRE(pool->properties.location.type == location->type);
    pthread_mutex_lock(&pools_lock);
    current_pools[slot] = pool;
    pthread_mutex_unlock(&pools_lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    return set_current(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(location);
    return set_current(location, type, pool);
}

/* --- Making and destroying ------------------------------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool_out, const CUmemPoolProps *properties)
{
    enum pool_place place;
    unsigned gpu;
    enum slot slot;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pool_out && properties);
    SIM_TRY(place_of(&properties->location, properties->allocType, &place, &gpu, &slot));
    SIM_TRY(shared_handle_types_check((unsigned)properties->handleTypes, place == POOL_ON_DEVICE));
    SIM_REQUIRE(properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE || place != POOL_MANAGED);
    CUmemoryPool pool = pool_make(properties, place, gpu);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool_out = pool;
    return CUDA_SUCCESS;
}

/* Returns at once: what is still allocated stays until it is freed. A device whose current pool this was gets
 * its default pool again (driver API reference). */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(!pool->is_default);
    unsigned kind = SIM_POOL;
    if (!atomic_compare_exchange_strong(&pool->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools_lock);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (current_pools[slot] == pool)
            current_pools[slot] = NULL;
    pthread_mutex_unlock(&pools_lock);
    pthread_mutex_lock(&pool->lock);
    pool->is_destroyed = true;
    pool_share_end(pool);
    pool_trim(pool, 0);
    pthread_mutex_unlock(&pool->lock);
    return CUDA_SUCCESS;
}

/* --- Who may use the memory ------------------------------------------------------------------------ */

static CUresult access_set(CUmemoryPool pool, const CUmemAccessDesc *access)
{
    SIM_REQUIRE(access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    SIM_REQUIRE(access->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    SIM_TRY(device_check(access->location.id));
    unsigned gpu = simulator.visible[access->location.id];
    if (pool->place == POOL_ON_DEVICE && gpu == pool->gpu)
        /* The device itself always may. */
        return access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (pool->place == POOL_ON_DEVICE) {
        CUdevice own = 0;
        while (simulator.visible[own] != pool->gpu)
            own++;
        int can = 0;
        SIM_TRY(cuDeviceCanAccessPeer(&can, access->location.id, own));
        if (!can)
            return CUDA_ERROR_INVALID_DEVICE;
    }
    for (unsigned bit = 0; bit < 2; bit++)
        if ((unsigned)access->flags >> bit & 1)
            pool->peer_access[bit] |= UINT64_C(1) << access->location.id;
        else
            pool->peer_access[bit] &= ~(UINT64_C(1) << access->location.id);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(access && count > 0);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = access_set(pool, &access[i]);
    pthread_mutex_unlock(&pool->lock);
    return result;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(flags && location);
    bool on_host = pool->place != POOL_ON_DEVICE;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *flags = on_host ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_DEVICE:
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_TRY(device_check(location->id));
    unsigned gpu = simulator.visible[location->id];
    pthread_mutex_lock(&pool->lock);
    uint64_t value = pool->peer_access[0] >> location->id & 1;
    value |= (pool->peer_access[1] >> location->id & 1) << 1;
    pthread_mutex_unlock(&pool->lock);
    bool own = pool->place == POOL_MANAGED || (pool->place == POOL_ON_DEVICE && gpu == pool->gpu);
    *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : (CUmemAccess_flags)value;
    return CUDA_SUCCESS;
}

/* --- Attributes ------------------------------------------------------------------------------------ */

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    SIM_TRY(pool_check(pool));
    pthread_mutex_lock(&pool->lock);
    if (keep_bytes < pool->reserved_bytes)
        pool_trim(pool, keep_bytes);
    pthread_mutex_unlock(&pool->lock);
    return CUDA_SUCCESS;
}

/* The number or the switch that an attribute is, or NULL. */
static uint64_t *attribute_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->release_threshold_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high_bytes;
    default:
        return NULL;
    }
}

static int *attribute_switch(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->reuse_event;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->reuse_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->reuse_internal;
    default:
        return NULL;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(value);
    pthread_mutex_lock(&pool->lock);
    const uint64_t *number = attribute_number(pool, attribute);
    const int *on = attribute_switch(pool, attribute);
    if (number)
        memcpy(value, number, sizeof(*number));
    else if (on)
        memcpy(value, on, sizeof(*on));
    pthread_mutex_unlock(&pool->lock);
    return number || on ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The marks of highest use can only be set to 0, which begins them anew. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(value);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pool->lock);
    int *on = attribute_switch(pool, attribute);
    uint64_t number = 0;
    if (!on)
        memcpy(&number, value, sizeof(number));
    if (on)
        memcpy(on, value, sizeof(*on));
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->release_threshold_bytes = number;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && number == 0)
        pool->reserved_high_bytes = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && number == 0)
        pool->used_high_bytes = pool->used_bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&pool->lock);
    return result;
}
