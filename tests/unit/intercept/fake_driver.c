#include "fake_driver.h"

#include <pthread.h>
#include <string.h>

#include "intercept/resolve/real.h"

_Thread_local CUresult fake_next_result;
_Thread_local void (*fake_next_interruption)(void);
_Atomic unsigned fake_allocations;
CUstream fake_capturing;
size_t fake_card_total = (size_t)8 << 30, fake_card_free = (size_t)8 << 30;

#define BLOCKS 65536u

enum use { UNUSED, LINEAR, PHYSICAL, POOLED };

static struct block {
    enum use use;
    CUdevice device;
    CUcontext context;
    size_t bytes;
    unsigned handles;
    unsigned mappings;
} blocks[BLOCKS];

static struct mapping {
    CUdeviceptr address;
    size_t bytes;
    unsigned block;
} mappings[1024];

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static unsigned first_unused = 1;
static struct fake_context_state {
    bool alive;
    CUdevice device;
} contexts[64];
static unsigned primary_references[FAKE_GPUS];
static unsigned primary_number[FAKE_GPUS];
static size_t pool_reserved[FAKE_GPUS], pool_used[FAKE_GPUS];
static _Thread_local CUcontext current;

static CUresult outcome(void)
{
    CUresult result = fake_next_result;
    fake_next_result = CUDA_SUCCESS;
    return result;
}

static unsigned context_number(CUcontext context)
{
    return (unsigned)((uintptr_t)context >> 12);
}

static bool alive(CUcontext context)
{
    unsigned number = context_number(context);
    return number && number < 64 && contexts[number].alive;
}

/* The lowest free place, so that addresses and handles come back at once. */
static unsigned take_block(enum use use, CUdevice device, CUcontext context, size_t bytes)
{
    unsigned at = first_unused;
    while (at < BLOCKS && blocks[at].use != UNUSED)
        at++;
    if (at == BLOCKS)
        return 0;
    first_unused = at + 1;
    blocks[at] = (struct block){.use = use, .device = device, .context = context, .bytes = bytes};
    return at;
}

static void free_block(unsigned at)
{
    blocks[at].use = UNUSED;
    if (at < first_unused)
        first_unused = at;
}

static CUdeviceptr address_of(unsigned block)
{
    return (CUdeviceptr)block << 32;
}

static CUresult linear(CUdeviceptr *address, size_t bytes)
{
    void (*interrupt)(void) = fake_next_interruption;
    fake_next_interruption = NULL;
    if (interrupt)
        interrupt();
    CUresult result = outcome();
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!alive(current))
        return current ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&turn);
    unsigned block = take_block(LINEAR, contexts[context_number(current)].device, current, bytes);
    pthread_mutex_unlock(&turn);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_allocations++;
    *address = address_of(block);
    return CUDA_SUCCESS;
}

static CUresult managed(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    return flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ? linear(address, bytes)
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pitched(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + FAKE_PITCH - 1) / FAKE_PITCH * FAKE_PITCH;
    return linear(address, *pitch * height);
}

static CUresult free_linear(CUdeviceptr address)
{
    CUresult result = outcome();
    unsigned block = (unsigned)(address >> 32);
    if (!address || result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&turn);
    result = block < BLOCKS && !(address & UINT32_MAX) &&
                     (blocks[block].use == LINEAR || blocks[block].use == POOLED)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (blocks[block].use == POOLED)
            pool_used[blocks[block].device] -= blocks[block].bytes;
        free_block(block);
    }
    pthread_mutex_unlock(&turn);
    return result;
}

/* --- Contexts -------------------------------------------------------------------------------------- */

static CUresult create(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags;
    CUresult result = outcome();
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || device >= FAKE_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&turn);
    unsigned number = 1;
    while (contexts[number].alive)
        number++;
    contexts[number] = (struct fake_context_state){true, device};
    pthread_mutex_unlock(&turn);
    *context = current = (CUcontext)((uintptr_t)number << 12);
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext context)
{
    if (!alive(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&turn);
    for (unsigned at = 1; at < BLOCKS; at++)
        if (blocks[at].use == LINEAR && blocks[at].context == context)
            free_block(at);
    contexts[context_number(context)].alive = false;
    pthread_mutex_unlock(&turn);
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    CUcontext before = current;
    if (primary_references[device]++ == 0) {
        create(context, 0, device);
        primary_number[device] = context_number(*context);
    }
    current = before;
    *context = (CUcontext)((uintptr_t)primary_number[device] << 12);
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    if (!primary_references[device])
        return CUDA_ERROR_INVALID_CONTEXT;
    return --primary_references[device] ? CUDA_SUCCESS
                                        : destroy((CUcontext)((uintptr_t)primary_number[device] << 12));
}

static CUresult reset(CUdevice device)
{
    if (!primary_references[device])
        return CUDA_SUCCESS;
    primary_references[device] = 0;
    return destroy((CUcontext)((uintptr_t)primary_number[device] << 12));
}

static CUresult state(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = primary_references[device] != 0;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
    if (!alive(current))
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = contexts[context_number(current)].device;
    return CUDA_SUCCESS;
}

static CUresult uuid(CUuuid *name, CUdevice device)
{
    if (device < 0 || device >= FAKE_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    memset(name->bytes, device + 1, sizeof(name->bytes));
    return CUDA_SUCCESS;
}

/* --- Pools: one a device, growing in blocks -------------------------------------------------------- */

static CUresult get_pool(CUmemoryPool *pool, CUdevice device)
{
    *pool = (CUmemoryPool)((uintptr_t)device + 100);
    return CUDA_SUCCESS;
}

static CUdevice pool_device(CUmemoryPool pool)
{
    return (CUdevice)((uintptr_t)pool - 100);
}

static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    pthread_mutex_lock(&turn);
    *(cuuint64_t *)value = which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool_reserved[pool_device(pool)]
                                                                         : pool_used[pool_device(pool)];
    pthread_mutex_unlock(&turn);
    return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    CUresult result = outcome();
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!alive(current))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stream && stream == fake_capturing) {
        *address = 0x1234;
        return CUDA_SUCCESS;
    }
    CUdevice device = contexts[context_number(current)].device;
    pthread_mutex_lock(&turn);
    unsigned block = take_block(POOLED, device, current, bytes);
    pool_used[device] += bytes;
    while (pool_reserved[device] < pool_used[device])
        pool_reserved[device] += FAKE_POOL_BLOCK;
    pthread_mutex_unlock(&turn);
    *address = address_of(block);
    return CUDA_SUCCESS;
}

static CUresult free_async(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    return free_linear(address);
}

static CUresult trim(CUmemoryPool pool, size_t keep)
{
    CUdevice device = pool_device(pool);
    pthread_mutex_lock(&turn);
    while (pool_reserved[device] >= keep + FAKE_POOL_BLOCK &&
           pool_reserved[device] - FAKE_POOL_BLOCK >= pool_used[device])
        pool_reserved[device] -= FAKE_POOL_BLOCK;
    pthread_mutex_unlock(&turn);
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    for (CUdevice device = 0; device < FAKE_GPUS; device++)
        trim((CUmemoryPool)((uintptr_t)device + 100), 0);
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status =
        stream && stream == fake_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* --- Physical memory ------------------------------------------------------------------------------- */

static void physical_gone(unsigned block)
{
    if (blocks[block].handles == 0 && blocks[block].mappings == 0)
        free_block(block);
}

static CUresult create_physical(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *how, unsigned long long flags)
{
    (void)flags;
    CUresult result = outcome();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !bytes || !how ||
        (how->location.type == CU_MEM_LOCATION_TYPE_DEVICE && how->location.id >= FAKE_GPUS))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&turn);
    unsigned block = take_block(PHYSICAL, how->location.id, NULL, bytes);
    blocks[block].handles = 1;
    pthread_mutex_unlock(&turn);
    *handle = block;
    return CUDA_SUCCESS;
}

static CUresult release_physical(CUmemGenericAllocationHandle handle)
{
    CUresult result = outcome();
    pthread_mutex_lock(&turn);
    if (result == CUDA_SUCCESS &&
        (handle >= BLOCKS || blocks[handle].use != PHYSICAL || !blocks[handle].handles))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        blocks[handle].handles--;
        physical_gone((unsigned)handle);
    }
    pthread_mutex_unlock(&turn);
    return result;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    (void)offset, (void)flags;
    CUresult result = outcome();
    pthread_mutex_lock(&turn);
    unsigned at = 0;
    while (mappings[at].bytes)
        at++;
    if (result == CUDA_SUCCESS) {
        mappings[at] = (struct mapping){address, bytes, (unsigned)handle};
        blocks[handle].mappings++;
    }
    pthread_mutex_unlock(&turn);
    return result;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&turn);
    for (unsigned at = 0; at < 1024; at++) {
        struct mapping *mapping = &mappings[at];
        if (mapping->bytes && mapping->address >= address && mapping->address < address + bytes) {
            blocks[mapping->block].mappings--;
            physical_gone(mapping->block);
            mapping->bytes = 0;
        }
    }
    pthread_mutex_unlock(&turn);
    return CUDA_SUCCESS;
}

static CUresult retain_physical(CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&turn);
    for (unsigned at = 0; at < 1024; at++) {
        struct mapping *mapping = &mappings[at];
        if (mapping->bytes && (CUdeviceptr)(uintptr_t)address - mapping->address < mapping->bytes) {
            blocks[mapping->block].handles++;
            *handle = mapping->block;
            result = CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&turn);
    return result;
}

static CUresult info(size_t *free_bytes, size_t *total_bytes)
{
    if (free_bytes)
        *free_bytes = fake_card_free;
    if (total_bytes)
        *total_bytes = fake_card_total;
    return CUDA_SUCCESS;
}

static CUresult total(size_t *bytes, CUdevice device)
{
    (void)device;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = fake_card_total;
    return CUDA_SUCCESS;
}

unsigned long long fake_held(CUdevice device)
{
    unsigned long long bytes = 0;
    pthread_mutex_lock(&turn);
    for (unsigned at = 1; at < BLOCKS; at++)
        if ((blocks[at].use == LINEAR || blocks[at].use == PHYSICAL) && blocks[at].device == device)
            bytes += blocks[at].bytes;
    bytes += pool_reserved[device];
    pthread_mutex_unlock(&turn);
    return bytes;
}

#define INSTALL(symbol, function)                                                                            \
    real_functions[CUDA_ID_##symbol] = (void *)(__typeof__(&symbol))                                         \
    {                                                                                                        \
        function                                                                                             \
    }

void fake_driver_install(void)
{
    INSTALL(cuMemAlloc_v2, linear);
    INSTALL(cuMemAllocManaged, managed);
    INSTALL(cuMemAllocPitch_v2, pitched);
    INSTALL(cuMemFree_v2, free_linear);
    INSTALL(cuCtxCreate_v2, create);
    INSTALL(cuCtxDestroy_v2, destroy);
    INSTALL(cuDevicePrimaryCtxRetain, retain);
    INSTALL(cuDevicePrimaryCtxRelease_v2, release);
    INSTALL(cuDevicePrimaryCtxReset_v2, reset);
    INSTALL(cuDevicePrimaryCtxGetState, state);
    INSTALL(cuCtxGetCurrent, get_current);
    INSTALL(cuCtxPushCurrent_v2, push);
    INSTALL(cuCtxGetDevice, get_device);
    INSTALL(cuDeviceGetUuid_v2, uuid);
    INSTALL(cuDeviceGetMemPool, get_pool);
    INSTALL(cuMemPoolGetAttribute, pool_attribute);
    INSTALL(cuMemAllocAsync, alloc_async);
    INSTALL(cuMemFreeAsync, free_async);
    INSTALL(cuMemPoolTrimTo, trim);
    INSTALL(cuCtxSynchronize, synchronize);
    INSTALL(cuStreamIsCapturing, is_capturing);
    INSTALL(cuMemCreate, create_physical);
    INSTALL(cuMemRelease, release_physical);
    INSTALL(cuMemMap, map);
    INSTALL(cuMemUnmap, unmap);
    INSTALL(cuMemRetainAllocationHandle, retain_physical);
    INSTALL(cuMemGetInfo_v2, info);
    INSTALL(cuDeviceTotalMem_v2, total);
    real_found = true;
}

CUcontext fake_context(CUdevice device)
{
    CUcontext context = NULL;
    return cuCtxCreate_v2(&context, 0, device) == CUDA_SUCCESS ? context : NULL;
}
