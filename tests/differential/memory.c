/* memory.c - rows: linear, pitched, managed, host, stream-ordered and virtual memory. */
#include <string.h>

#include "differ.h"

#define MIB (UINT64_C(1) << 20)
#define STEP (2 * MIB) /* of pools and of physical memory */

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return bytes > UINT64_MAX - step ? UINT64_MAX : (bytes + step - 1) / step * step;
}

static void made(struct actor *actor, CUresult result, enum kind kind, uint64_t value, uint64_t bytes)
{
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, kind, value, bytes)->number);
    else
        put_kept(actor, value);
}

/* --- Linear ---------------------------------------------------------------------------------------- */

static void mem_alloc(struct actor *actor)
{
    CUdeviceptr address = UNTOUCHED;
    CUdeviceptr *out = one_in(actor, 12) ? NULL : &address;
    size_t bytes = actor->ask = some_bytes(actor);
    put(actor, "%s %zu", out ? "&" : "NULL", bytes);
    CUresult result = CALL(actor, cuMemAlloc_v2)(out, bytes);
    made(actor, result, MEMORY, address, bytes);
    struct thing *thing = result == CUDA_SUCCESS ? find_living(MEMORY, address) : NULL;
    if (thing)
        thing->rounding_bytes = round_up(bytes, 512) - bytes;
}

static void mem_alloc_managed(struct actor *actor)
{
    static const unsigned flags_of[] = {1, 2, 1, 2, 0, 3, 4, 77};
    CUdeviceptr address = UNTOUCHED;
    CUdeviceptr *out = one_in(actor, 12) ? NULL : &address;
    size_t bytes = actor->ask = some_bytes(actor);
    unsigned flags = flags_of[chance(actor, 8)];
    put(actor, "%s %zu %u", out ? "&" : "NULL", bytes, flags);
    CUresult result = CALL(actor, cuMemAllocManaged)(out, bytes, flags);
    made(actor, result, MEMORY, address, bytes);
}

static void mem_alloc_pitch(struct actor *actor)
{
    static const unsigned element_of[] = {4, 8, 16, 4, 8, 16, 0, 5};
    CUdeviceptr address = UNTOUCHED;
    size_t pitch = UNTOUCHED;
    CUdeviceptr *out = one_in(actor, 15) ? NULL : &address;
    size_t *pitch_out = one_in(actor, 15) ? NULL : &pitch;
    size_t width = one_in(actor, 8) ? some_bytes(actor) : chance(actor, 5000);
    size_t height = one_in(actor, 10) ? some_bytes(actor) : chance(actor, 600);
    unsigned element = element_of[chance(actor, 8)];
    if (__builtin_mul_overflow(round_up(width, 512), height, &actor->ask) ? false : is_in_between(actor->ask))
        height = 1;
    if (__builtin_mul_overflow(round_up(width, 512), height, &actor->ask))
        actor->ask = UINT64_MAX;
    put(actor, "%s %s %zu %zu %u", out ? "&" : "NULL", pitch_out ? "&" : "NULL", width, height, element);
    CUresult result = CALL(actor, cuMemAllocPitch_v2)(out, pitch_out, width, height, element);
    made(actor, result, MEMORY, address, result == CUDA_SUCCESS ? pitch * height : 0);
    if (result == CUDA_SUCCESS)
        put(actor, " pitch %zu", pitch);
    else if (result != CUDA_ERROR_OUT_OF_MEMORY)
        put_kept(actor, pitch);
}

/* After a free. What it refuses so may be unknown to the driver: the parent's, in a child, or of a graph that has gone. */
static bool is_gone(CUresult result)
{
    return result == CUDA_SUCCESS || (memory_moves && result == CUDA_ERROR_INVALID_VALUE);
}

static void mem_free(struct actor *actor)
{
    CUdeviceptr address = pick(actor, MEMORY);
    CUresult result = CALL(actor, cuMemFree_v2)(address);
    put_result(actor, result);
    if (is_gone(result))
        end_thing(MEMORY, address);
}

static void mem_host_alloc(struct actor *actor)
{
    void *address = (void *)UNTOUCHED;
    size_t bytes = chance(actor, 100000);
    unsigned flags = (unsigned)chance(actor, 10);
    put(actor, "%zu %u", bytes, flags);
    CUresult result = CALL(actor, cuMemHostAlloc)(&address, bytes, flags);
    made(actor, result, HOST, (uint64_t)(uintptr_t)address, bytes);
}

static void mem_free_host(struct actor *actor)
{
    uint64_t address = pick(actor, HOST);
    CUresult result = CALL(actor, cuMemFreeHost)((void *)(uintptr_t)address);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(HOST, address);
}

static void memset_some(struct actor *actor)
{
    struct thing *thing = random_living(actor, MEMORY);
    CUdeviceptr address = thing ? thing->value : 0x1234;
    size_t bytes = thing && thing->bytes < MIB ? thing->bytes : 16;
    if (one_in(actor, 8))
        bytes = SIZE_MAX / 2;
    put(actor, "%d %zu", thing ? (int)thing->number : -1, bytes);
    put_result(actor, CALL(actor, cuMemsetD8_v2)(address, 7, bytes));
}

/* --- What is known --------------------------------------------------------------------------------- */

/* What is free is different in a session; that it is right is checked after every call. */
static void mem_get_info(struct actor *actor)
{
    size_t free_bytes = UNTOUCHED, total_bytes = UNTOUCHED;
    size_t *free_out = one_in(actor, 8) ? NULL : &free_bytes,
           *total_out = one_in(actor, 8) ? NULL : &total_bytes;
    put(actor, "%s %s", free_out ? "&" : "NULL", total_out ? "&" : "NULL");
    CUresult result = CALL(actor, cuMemGetInfo_v2)(free_out, total_out);
    put_result(actor, result);
    if (result != CUDA_SUCCESS) {
        put_kept(actor, free_bytes);
        put_kept(actor, total_bytes);
    } else if (free_out && total_out) {
        put(actor, free_bytes <= total_bytes ? " sane" : " more free than there is");
    }
}

static void device_total_mem(struct actor *actor)
{
    size_t bytes = UNTOUCHED;
    size_t *out = one_in(actor, 8) ? NULL : &bytes;
    put(actor, "%s ", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuDeviceTotalMem_v2)(out, some_device(actor));
    put_result(actor, result);
    if (result != CUDA_SUCCESS)
        put_kept(actor, bytes);
}

static void device_total_mem_narrow(struct actor *actor)
{
    unsigned bytes = 7;
    CUresult result = CALL(actor, cuDeviceTotalMem)(&bytes, some_device(actor));
    put_result(actor, result);
    if (result != CUDA_SUCCESS)
        put(actor, " %u", bytes);
}

static uint64_t some_address(struct actor *actor)
{
    static const enum kind kinds[] = {MEMORY, MEMORY, MEMORY, MAPPING, HOST};
    uint64_t address = pick(actor, kinds[chance(actor, 5)]);
    uint64_t offset = one_in(actor, 2) ? 0 : chance(actor, 600);
    const struct thing *thing = memory_moves ? find_living(MEMORY, address) : NULL;
    if (thing && offset >= thing->bytes)
        offset = 0; /* what is behind its end may be another's */
    put(actor, "+%llu ", (unsigned long long)offset);
    return address ? address + offset : 0;
}

static void get_address_range(struct actor *actor)
{
    CUdeviceptr base = UNTOUCHED;
    size_t bytes = UNTOUCHED;
    CUdeviceptr *base_out = one_in(actor, 8) ? NULL : &base;
    size_t *bytes_out = one_in(actor, 8) ? NULL : &bytes;
    CUresult result = CALL(actor, cuMemGetAddressRange_v2)(base_out, bytes_out, some_address(actor));
    put_result(actor, result);
    if (result == CUDA_SUCCESS && base_out)
        put_address(actor, base);
    if (result == CUDA_SUCCESS && bytes_out)
        put(actor, " %zu", bytes);
}

static void pointer_get_attribute(struct actor *actor)
{
    uint64_t value = 0;
    CUpointer_attribute attribute = (CUpointer_attribute)chance(actor, 24);
    put(actor, "%d ", attribute);
    CUresult result = CALL(actor, cuPointerGetAttribute)(&value, attribute, some_address(actor));
    put_result(actor, result);
    if (result != CUDA_SUCCESS)
        return;
    struct thing *context;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        context = find_living(CONTEXT, value);
        put(actor, " context %d", context ? (int)context->number : -1);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        put_address(actor, value);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        put(actor, " %s", find_living(POOL, value) ? "a pool" : "another");
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        break;
    default:
        put(actor, " %llu", (unsigned long long)value);
    }
}

/* --- In the order of a stream ---------------------------------------------------------------------- */

/* A request for memory of this pool: where that is, and whether the pool has a largest size, so that it may
 * refuse by itself. */
static void ask_pool(struct actor *actor, uint64_t pool)
{
    const struct thing *thing = find_living(POOL, pool);
    actor->own_limit = thing && thing->bytes;
    if (thing)
        actor->gpu = thing->gpu;
}

static void ask_current_pool(struct actor *actor, CUstream stream)
{
    const struct thing *made = find_living(STREAM, (uint64_t)(uintptr_t)stream);
    CUmemoryPool pool = NULL;
    actor->gpu = made ? made->gpu : current_gpu();
    if (cuDeviceGetMemPool(&pool, (CUdevice)actor->gpu) == CUDA_SUCCESS)
        ask_pool(actor, (uint64_t)(uintptr_t)pool);
}

static void alloc_async(struct actor *actor)
{
    CUdeviceptr address = UNTOUCHED;
    CUdeviceptr *out = one_in(actor, 12) ? NULL : &address;
    size_t bytes = some_bytes(actor);
    actor->ask = round_up(bytes, STEP);
    put(actor, "%s %zu ", out ? "&" : "NULL", bytes);
    CUstream stream = some_stream(actor);
    ask_current_pool(actor, stream);
    CUresult result = CALL(actor, cuMemAllocAsync)(out, bytes, stream);
    made(actor, result, MEMORY, address, bytes);
}

static void alloc_from_pool(struct actor *actor)
{
    CUdeviceptr address = UNTOUCHED;
    CUdeviceptr *out = one_in(actor, 12) ? NULL : &address;
    size_t bytes = some_bytes(actor);
    actor->ask = round_up(bytes, STEP);
    put(actor, "%s %zu ", out ? "&" : "NULL", bytes);
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pick(actor, POOL);
    ask_pool(actor, (uint64_t)(uintptr_t)pool);
    CUresult result = CALL(actor, cuMemAllocFromPoolAsync)(out, bytes, pool, some_stream(actor));
    made(actor, result, MEMORY, address, bytes);
}

static void free_async(struct actor *actor)
{
    CUdeviceptr address = pick(actor, MEMORY);
    CUresult result = CALL(actor, cuMemFreeAsync)(address, some_stream(actor));
    put_result(actor, result);
    if (is_gone(result))
        end_thing(MEMORY, address);
}

static void pool_create(struct actor *actor)
{
    CUmemoryPool pool = (CUmemoryPool)UNTOUCHED;
    CUmemPoolProps properties = {
        .allocType = one_in(actor, 10) ? CU_MEM_ALLOCATION_TYPE_INVALID : CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = one_in(actor, 12) ? CU_MEM_HANDLE_TYPE_WIN32 : CU_MEM_HANDLE_TYPE_NONE,
        .location = {one_in(actor, 8) ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                     some_place(actor)},
        .maxSize = one_in(actor, 6) ? 8 * MIB : 0,
    };
    CUmemoryPool *out = one_in(actor, 12) ? NULL : &pool;
    const CUmemPoolProps *how = one_in(actor, 12) ? NULL : &properties;
    put(actor, "%s %s %d %d %d,%d %zu", out ? "&" : "NULL", how ? "&" : "NULL", properties.allocType,
        properties.handleTypes, properties.location.type, properties.location.id, properties.maxSize);
    if (count_living(POOL) > 12) {
        put(actor, " (enough of them)");
        return;
    }
    CUresult result = CALL(actor, cuMemPoolCreate)(out, how);
    made(actor, result, POOL, (uint64_t)(uintptr_t)pool, properties.maxSize);
    if (result == CUDA_SUCCESS)
        find_living(POOL, (uint64_t)(uintptr_t)pool)->gpu = actor->gpu;
}

static void pool_destroy(struct actor *actor)
{
    uint64_t pool = pick(actor, POOL);
    CUresult result = CALL(actor, cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)pool);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(POOL, pool);
}

static void pool_trim(struct actor *actor)
{
    size_t keep = some_bytes(actor);
    put(actor, "%zu ", keep);
    put_result(actor, CALL(actor, cuMemPoolTrimTo)((CUmemoryPool)(uintptr_t)pick(actor, POOL), keep));
}

static void pool_set_attribute(struct actor *actor)
{
    uint64_t value = one_in(actor, 3) ? 0 : some_bytes(actor);
    CUmemPool_attribute attribute =
        one_in(actor, 4) ? (CUmemPool_attribute)chance(actor, 10) : CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    put(actor, "%d %llu ", attribute, (unsigned long long)value);
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pick(actor, POOL);
    put_result(actor, CALL(actor, cuMemPoolSetAttribute)(pool, attribute, &value));
}

static void pool_get_attribute(struct actor *actor)
{
    uint64_t value = 0;
    CUmemPool_attribute attribute = (CUmemPool_attribute)chance(actor, 10);
    put(actor, "%d ", attribute);
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pick(actor, POOL);
    CUresult result = CALL(actor, cuMemPoolGetAttribute)(pool, attribute, &value);
    put_result(actor, result);
    /* What is reserved beyond what is used may be given back at any time: so it is when something is refused.
     */
    bool is_of_the_moment = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
                            (memory_moves && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    if (result == CUDA_SUCCESS && !is_of_the_moment)
        put(actor, " %llu", (unsigned long long)value);
}

/* Of the device that is asked for: some_place(). */
static void got_pool(struct actor *actor, CUresult result, CUmemoryPool pool)
{
    put_result(actor, result);
    uint64_t value = (uint64_t)(uintptr_t)pool;
    if (result != CUDA_SUCCESS) {
        put_kept(actor, value);
        return;
    }
    struct thing *known = find_living(POOL, value);
    if (!known) {
        known = add_thing(actor, POOL, value, 0);
        known->gpu = actor->gpu;
    }
    put(actor, " pool %u", known->number);
}

static void device_get_pool(struct actor *actor)
{
    CUmemoryPool pool = (CUmemoryPool)UNTOUCHED;
    CUmemoryPool *out = one_in(actor, 12) ? NULL : &pool;
    put(actor, "%s ", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuDeviceGetMemPool)(out, some_place(actor));
    got_pool(actor, result, pool);
}

static void location_get_pool(struct actor *actor)
{
    CUmemoryPool pool = (CUmemoryPool)UNTOUCHED;
    CUmemoryPool *out = one_in(actor, 12) ? NULL : &pool;
    CUmemLocation location = {one_in(actor, 5) ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                              some_place(actor)};
    CUmemLocation *where = one_in(actor, 10) ? NULL : &location;
    CUmemAllocationType type =
        one_in(actor, 8) ? CU_MEM_ALLOCATION_TYPE_INVALID : CU_MEM_ALLOCATION_TYPE_PINNED;
    put(actor, "%s %s %d,%d %d", out ? "&" : "NULL", where ? "&" : "NULL", location.type, location.id, type);
    CUresult result = CALL(actor, cuMemGetMemPool)(out, where, type);
    got_pool(actor, result, pool);
}

static void device_set_pool(struct actor *actor)
{
    CUdevice device = some_device(actor);
    put_result(actor, CALL(actor, cuDeviceSetMemPool)(device, (CUmemoryPool)(uintptr_t)pick(actor, POOL)));
}

/* --- Virtual --------------------------------------------------------------------------------------- */

static void mem_create(struct actor *actor)
{
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    CUmemAllocationProp properties = {
        .type = one_in(actor, 12) ? CU_MEM_ALLOCATION_TYPE_INVALID : CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = one_in(actor, 15) ? CU_MEM_HANDLE_TYPE_WIN32 : CU_MEM_HANDLE_TYPE_NONE,
        .location = {one_in(actor, 8) ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
                     some_place(actor)},
    };
    CUmemGenericAllocationHandle *out = one_in(actor, 15) ? NULL : &handle;
    const CUmemAllocationProp *how = one_in(actor, 15) ? NULL : &properties;
    size_t bytes = one_in(actor, 4) ? some_bytes(actor) : (1 + chance(actor, 4)) * STEP;
    unsigned long long flags = one_in(actor, 15) ? 1 : 0;
    actor->ask = bytes;
    put(actor, "%s %zu %s %d %d %d,%d %llu", out ? "&" : "NULL", bytes, how ? "&" : "NULL", properties.type,
        properties.requestedHandleTypes, properties.location.type, properties.location.id, flags);
    CUresult result = CALL(actor, cuMemCreate)(out, bytes, how, flags);
    made(actor, result, HANDLE, handle, bytes);
}

/* A handle that was retained has several releases. */
static void mem_release(struct actor *actor)
{
    uint64_t handle = pick(actor, HANDLE);
    CUresult result = CALL(actor, cuMemRelease)(handle);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(HANDLE, handle);
}

static void mem_retain(struct actor *actor)
{
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    CUmemGenericAllocationHandle *out = one_in(actor, 12) ? NULL : &handle;
    put(actor, "%s ", out ? "&" : "NULL");
    uint64_t address = pick(actor, one_in(actor, 5) ? MEMORY : MAPPING);
    uint64_t offset = one_in(actor, 2) ? 0 : chance(actor, STEP);
    put(actor, "+%llu", (unsigned long long)offset);
    CUresult result =
        CALL(actor, cuMemRetainAllocationHandle)(out, address ? (void *)(uintptr_t)(address + offset) : NULL);
    made(actor, result, HANDLE, handle, 0);
}

static void address_reserve(struct actor *actor)
{
    CUdeviceptr address = UNTOUCHED;
    size_t bytes = one_in(actor, 8) ? some_bytes(actor) : (1 + chance(actor, 8)) * STEP;
    if (bytes > UINT64_C(1) << 32)
        bytes = STEP + 1; /* addresses are not device memory, and how many there are is not ours to test */
    put(actor, "%zu", bytes);
    CUresult result = CALL(actor, cuMemAddressReserve)(&address, bytes, 0, 0, 0);
    made(actor, result, ADDRESSES, address, bytes);
}

static void address_free(struct actor *actor)
{
    uint64_t address = pick(actor, ADDRESSES);
    struct thing *thing = find_living(ADDRESSES, address);
    CUresult result = CALL(actor, cuMemAddressFree)(address, thing ? thing->bytes : STEP);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(ADDRESSES, address);
}

static void mem_map(struct actor *actor)
{
    struct thing *room = random_living(actor, ADDRESSES);
    uint64_t handle = pick(actor, HANDLE);
    struct thing *memory = find_living(HANDLE, handle);
    uint64_t steps = room ? room->bytes / STEP : 1, at = chance(actor, steps ? steps : 1) * STEP;
    size_t bytes = memory && memory->bytes && !one_in(actor, 4) ? memory->bytes : STEP;
    size_t offset = one_in(actor, 10) ? 1 : 0;
    unsigned long long flags = one_in(actor, 12) ? 1 : 0;
    uint64_t address = room ? room->value + at : 0x1000;
    put(actor, "at %d+%llu %zu %zu %llu", room ? (int)room->number : -1, (unsigned long long)at, bytes,
        offset, flags);
    CUresult result = CALL(actor, cuMemMap)(address, bytes, offset, handle, flags);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, MAPPING, address, bytes)->number);
}

static void mem_unmap(struct actor *actor)
{
    uint64_t address = pick(actor, MAPPING);
    struct thing *thing = find_living(MAPPING, address);
    size_t bytes = thing ? thing->bytes : STEP;
    if (one_in(actor, 6))
        bytes = one_in(actor, 2) ? bytes + STEP : bytes / 2;
    put(actor, "%zu", bytes);
    CUresult result = CALL(actor, cuMemUnmap)(address, bytes);
    put_result(actor, result);
    for (uint64_t at = address; result == CUDA_SUCCESS && at < address + bytes; at += STEP)
        end_thing(MAPPING, at);
}

static void mem_set_access(struct actor *actor)
{
    uint64_t address = pick(actor, MAPPING);
    struct thing *thing = find_living(MAPPING, address);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, some_device(actor)},
                              one_in(actor, 4) ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                               : CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    put(actor, "%d %d", access.location.id, access.flags);
    put_result(actor, CALL(actor, cuMemSetAccess)(address, thing ? thing->bytes : STEP, &access, 1));
}

#define ROW(symbol, weight, call)                                                                            \
    {                                                                                                        \
#symbol, (void *)(uintptr_t)symbol, weight, call                                                     \
    }
const struct row memory_rows[] = {
    ROW(cuMemAlloc_v2, 12, mem_alloc),
    ROW(cuMemAllocManaged, 5, mem_alloc_managed),
    ROW(cuMemAllocPitch_v2, 6, mem_alloc_pitch),
    ROW(cuMemFree_v2, 18, mem_free),
    ROW(cuMemHostAlloc, 1, mem_host_alloc),
    ROW(cuMemFreeHost, 1, mem_free_host),
    ROW(cuMemsetD8_v2, 2, memset_some),
    ROW(cuMemGetInfo_v2, 4, mem_get_info),
    ROW(cuDeviceTotalMem_v2, 2, device_total_mem),
    ROW(cuDeviceTotalMem, 1, device_total_mem_narrow),
    ROW(cuMemGetAddressRange_v2, 4, get_address_range),
    ROW(cuPointerGetAttribute, 4, pointer_get_attribute),
    ROW(cuMemAllocAsync, 5, alloc_async),
    ROW(cuMemAllocAsync_ptsz, 5, alloc_async),
    ROW(cuMemAllocFromPoolAsync, 5, alloc_from_pool),
    ROW(cuMemAllocFromPoolAsync_ptsz, 5, alloc_from_pool),
    ROW(cuMemFreeAsync, 8, free_async),
    ROW(cuMemFreeAsync_ptsz, 8, free_async),
    ROW(cuMemPoolCreate, 3, pool_create),
    ROW(cuMemPoolDestroy, 2, pool_destroy),
    ROW(cuMemPoolTrimTo, 3, pool_trim),
    ROW(cuMemPoolSetAttribute, 2, pool_set_attribute),
    ROW(cuMemPoolGetAttribute, 2, pool_get_attribute),
    ROW(cuDeviceGetDefaultMemPool, 2, device_get_pool),
    ROW(cuDeviceGetMemPool, 2, device_get_pool),
    ROW(cuDeviceSetMemPool, 1, device_set_pool),
    ROW(cuMemGetDefaultMemPool, 1, location_get_pool),
    ROW(cuMemGetMemPool, 1, location_get_pool),
    ROW(cuMemCreate, 6, mem_create),
    ROW(cuMemRelease, 6, mem_release),
    ROW(cuMemRetainAllocationHandle, 3, mem_retain),
    ROW(cuMemAddressReserve, 3, address_reserve),
    ROW(cuMemAddressFree, 2, address_free),
    ROW(cuMemMap, 6, mem_map),
    ROW(cuMemUnmap, 6, mem_unmap),
    ROW(cuMemSetAccess, 1, mem_set_access),
    {NULL, NULL, 0, NULL},
};
