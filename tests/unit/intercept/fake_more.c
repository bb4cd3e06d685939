#include "fake_more.h"

#include <string.h>

#include "fake_driver.h"
#include "intercept/resolve/real.h"

unsigned fake_things;
size_t fake_made_reserved, fake_made_used;

static bool there[256];
static unsigned attached[64];
static size_t limits[CU_LIMIT_MAX] = {[CU_LIMIT_STACK_SIZE] = 1024, [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20};
static CUresult (*default_attribute)(CUmemoryPool, CUmemPool_attribute, void *);
static CUresult (*default_trim)(CUmemoryPool, size_t);
static CUresult (*context_destroy)(CUcontext);
static CUresult (*wide_alloc)(CUdeviceptr *, size_t);
static CUresult (*wide_free)(CUdeviceptr);

#define MADE_POOL ((CUmemoryPool)0x7777)

static void *make(void)
{
    CUresult result = fake_next_result;
    fake_next_result = CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return NULL;
    unsigned at = 1;
    while (there[at])
        at++;
    there[at] = true;
    fake_things++;
    return (void *)((uintptr_t)at << 4);
}

static CUresult end(const void *thing)
{
    uintptr_t at = (uintptr_t)thing >> 4;
    CUresult result = fake_next_result;
    fake_next_result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && (at >= 256 || !there[at]))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return result;
    there[at] = false;
    fake_things--;
    return CUDA_SUCCESS;
}

#define MAKES(name, parameters, handle)                                                                      \
    static CUresult name parameters                                                                          \
    {                                                                                                        \
        return (*handle = make()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                                 \
    }
MAKES(array_v1, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v1 *how), array)
MAKES(array_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *how), array)
MAKES(array_3d_v1, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *how), array)
MAKES(array_3d, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *how), array)
MAKES(mipmap, (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned levels), array)
MAKES(import, (CUexternalMemory * memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *how), memory)

static CUresult end_array(CUarray array)
{
    return end(array);
}

static CUresult end_mipmap(CUmipmappedArray array)
{
    return end(array);
}

static CUresult end_external(CUexternalMemory memory)
{
    return end(memory);
}

static CUresult map_array(CUarrayMapInfo *infos, unsigned count, CUstream stream)
{
    return CUDA_SUCCESS;
}

/* --- Contexts -------------------------------------------------------------------------------------- */

static CUresult get_limit(size_t *value, CUlimit limit)
{
    *value = limits[limit];
    return CUDA_SUCCESS;
}

static CUresult set_limit(CUlimit limit, size_t value)
{
    CUresult result = fake_next_result;
    fake_next_result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        limits[limit] = value;
    return result;
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 4 : 1024;
    return CUDA_SUCCESS;
}

static CUresult attach(CUcontext *context, unsigned flags)
{
    real(cuCtxGetCurrent)(context);
    attached[(uintptr_t)*context >> 12]++;
    return CUDA_SUCCESS;
}

static CUresult detach(CUcontext context)
{
    unsigned *count = &attached[(uintptr_t)context >> 12];
    if (!*count)
        return context_destroy(context);
    --*count;
    return CUDA_SUCCESS;
}

static CUresult vdpau(CUcontext *context, unsigned flags, CUdevice device, VdpDevice vdp,
                      VdpGetProcAddress *lookup)
{
    return real(cuCtxCreate_v2)(context, flags, device);
}

/* A green context is a handle into the same page as the primary one, which it keeps. */
static CUresult make_green(CUgreenCtx *green, CUdevResourceDesc what, CUdevice device, unsigned flags)
{
    static unsigned count;
    CUcontext primary;
    real(cuDevicePrimaryCtxRetain)(&primary, device);
    *green = (CUgreenCtx)((uintptr_t)primary + 0x10 * ++count);
    return CUDA_SUCCESS;
}

static CUresult end_green(CUgreenCtx green)
{
    return real(cuDevicePrimaryCtxRelease_v2)(0);
}

/* Pushing is setting, in this driver. */
static CUresult pop(CUcontext *context)
{
    real(cuCtxGetCurrent)(context);
    return CUDA_SUCCESS;
}

static CUresult from_green(CUcontext *context, CUgreenCtx green)
{
    *context = (CUcontext)green;
    return CUDA_SUCCESS;
}

/* --- A pool of the program's own ------------------------------------------------------------------- */

static CUresult make_pool(CUmemoryPool *pool, const CUmemPoolProps *how)
{
    *pool = MADE_POOL;
    fake_things++;
    return CUDA_SUCCESS;
}

static CUresult end_pool(CUmemoryPool pool)
{
    fake_made_reserved = fake_made_used = 0;
    fake_things--;
    return CUDA_SUCCESS;
}

static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    if (pool != MADE_POOL)
        return default_attribute(pool, which, value);
    *(cuuint64_t *)value =
        which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? fake_made_reserved : fake_made_used;
    return CUDA_SUCCESS;
}

static CUresult alloc_from_pool(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool != MADE_POOL)
        return real(cuMemAllocAsync)(address, bytes, stream);
    fake_made_used += bytes;
    while (fake_made_reserved < fake_made_used)
        fake_made_reserved += FAKE_POOL_BLOCK;
    *address = (CUdeviceptr)0x5000 << 32;
    return CUDA_SUCCESS;
}

static CUresult trim(CUmemoryPool pool, size_t keep)
{
    if (pool != MADE_POOL)
        return default_trim(pool, keep);
    while (fake_made_reserved >= keep + FAKE_POOL_BLOCK &&
           fake_made_reserved - FAKE_POOL_BLOCK >= fake_made_used)
        fake_made_reserved -= FAKE_POOL_BLOCK;
    return CUDA_SUCCESS;
}

/* --- Old forms ------------------------------------------------------------------------------------- */

static CUresult alloc_v1(CUdeviceptr_v1 *address, unsigned bytes)
{
    CUdeviceptr wide;
    CUresult result = wide_alloc(&wide, bytes);
    if (result == CUDA_SUCCESS)
        *address = (CUdeviceptr_v1)(wide >> 32);
    return result;
}

static CUresult pitch_v1(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width, unsigned height,
                         unsigned element)
{
    *pitch = (width + FAKE_PITCH - 1) / FAKE_PITCH * FAKE_PITCH;
    return alloc_v1(address, *pitch * height);
}

static CUresult free_v1(CUdeviceptr_v1 address)
{
    return wide_free((CUdeviceptr)address << 32);
}

static CUresult info_v1(unsigned *free_bytes, unsigned *total_bytes)
{
    if (free_bytes)
        *free_bytes = UINT32_MAX;
    if (total_bytes)
        *total_bytes = UINT32_MAX;
    return CUDA_SUCCESS;
}

static CUresult total_v1(unsigned *bytes, CUdevice device)
{
    *bytes = UINT32_MAX;
    return CUDA_SUCCESS;
}

#define INSTALL(symbol, function)                                                                            \
    real_functions[CUDA_ID_##symbol] = (void *)(__typeof__(&symbol))                                         \
    {                                                                                                        \
        function                                                                                             \
    }

void fake_more_install(void)
{
    default_attribute = real(cuMemPoolGetAttribute);
    default_trim = real(cuMemPoolTrimTo);
    context_destroy = real(cuCtxDestroy_v2);
    wide_alloc = real(cuMemAlloc_v2);
    wide_free = real(cuMemFree_v2);
    INSTALL(cuArrayCreate, array_v1);
    INSTALL(cuArrayCreate_v2, array_v2);
    INSTALL(cuArray3DCreate, array_3d_v1);
    INSTALL(cuArray3DCreate_v2, array_3d);
    INSTALL(cuMipmappedArrayCreate, mipmap);
    INSTALL(cuArrayDestroy, end_array);
    INSTALL(cuMipmappedArrayDestroy, end_mipmap);
    INSTALL(cuMemMapArrayAsync, map_array);
    INSTALL(cuImportExternalMemory, import);
    INSTALL(cuDestroyExternalMemory, end_external);
    INSTALL(cuCtxGetLimit, get_limit);
    INSTALL(cuCtxSetLimit, set_limit);
    INSTALL(cuDeviceGetAttribute, attribute);
    INSTALL(cuCtxAttach, attach);
    INSTALL(cuCtxDetach, detach);
    INSTALL(cuVDPAUCtxCreate_v2, vdpau);
    INSTALL(cuGreenCtxCreate, make_green);
    INSTALL(cuGreenCtxDestroy, end_green);
    INSTALL(cuCtxFromGreenCtx, from_green);
    INSTALL(cuCtxPopCurrent_v2, pop);
    INSTALL(cuMemPoolCreate, make_pool);
    INSTALL(cuMemPoolDestroy, end_pool);
    INSTALL(cuMemPoolGetAttribute, pool_attribute);
    INSTALL(cuMemAllocFromPoolAsync, alloc_from_pool);
    INSTALL(cuMemPoolTrimTo, trim);
    INSTALL(cuMemAlloc, alloc_v1);
    INSTALL(cuMemAllocPitch, pitch_v1);
    INSTALL(cuMemFree, free_v1);
    INSTALL(cuMemGetInfo, info_v1);
    INSTALL(cuDeviceTotalMem, total_v1);
}
