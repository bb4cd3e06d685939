/* narrow.c - the forms of before CUDA 3.2, whose device addresses and sizes have 32 bits.
 *
 * They are for contexts of their own time, which cuCtxCreate (not _v2) makes: there all linear memory lies
 * below 4 GiB, as in a 32-bit process. In any other context they answer INVALID_CONTEXT, as NVIDIA's 64-bit
 * driver does (seen there for cuMemFree: github.com/pmodels/mpich/pull/7091). What a card's driver makes of
 * contexts of the old form nobody here has seen (measure). */
#include "cuda/driver_more.h"
#include "simgpu/driver/sim.h"

/* The current context, if it is one of the old form. */
static CUresult narrow_check(void)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_TRY(context_current(&context));
    return context_is_narrow(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* A size as 32 bits tell it: all of them are "more than that". */
static unsigned int narrowed(size_t bytes)
{
    return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX;
}

/* --- What allocates and tells ---------------------------------------------------------------------- */

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    CUdeviceptr wide;
    SIM_TRY(narrow_check());
    SIM_REQUIRE(pointer);
    SIM_TRY(cuMemAlloc_v2(&wide, bytes));
    *pointer = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width_bytes,
                         unsigned int height, unsigned int element_bytes)
{
    CUdeviceptr wide;
    size_t wide_pitch;
    SIM_TRY(narrow_check());
    SIM_REQUIRE(pointer && pitch);
    SIM_TRY(cuMemAllocPitch_v2(&wide, &wide_pitch, width_bytes, height, element_bytes));
    *pointer = (CUdeviceptr_v1)wide;
    *pitch = (unsigned int)wide_pitch;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void **pointer, unsigned int bytes)
{
    SIM_TRY(narrow_check());
    return cuMemAllocHost_v2(pointer, bytes);
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t wide_free, wide_total;
    SIM_TRY(narrow_check());
    SIM_REQUIRE(free_bytes && total_bytes);
    SIM_TRY(cuMemGetInfo_v2(&wide_free, &wide_total));
    *free_bytes = narrowed(wide_free);
    *total_bytes = narrowed(wide_total);
    return CUDA_SUCCESS;
}

/* Needs no context. */
CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t wide;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(bytes);
    SIM_TRY(cuDeviceTotalMem_v2(&wide, device));
    *bytes = narrowed(wide);
    return CUDA_SUCCESS;
}

/* Either out-parameter may be NULL. */
CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *bytes, CUdeviceptr_v1 pointer)
{
    CUdeviceptr wide_base;
    size_t wide_bytes;
    SIM_TRY(narrow_check());
    SIM_TRY(cuMemGetAddressRange_v2(&wide_base, &wide_bytes, pointer));
    if (base)
        *base = (CUdeviceptr_v1)wide_base;
    if (bytes)
        *bytes = (unsigned int)wide_bytes;
    return CUDA_SUCCESS;
}

/* Host memory lies where it lies: what 32 bits do not reach has no such address. */
CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *device_pointer, void *pointer, unsigned int flags)
{
    CUdeviceptr wide;
    SIM_TRY(narrow_check());
    SIM_REQUIRE(device_pointer);
    SIM_TRY(cuMemHostGetDevicePointer_v2(&wide, pointer, flags));
    SIM_REQUIRE(wide <= UINT32_MAX);
    *device_pointer = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

/* Either out-parameter may be NULL. */
CUresult cuModuleGetGlobal(CUdeviceptr_v1 *pointer, unsigned int *bytes, CUmodule module, const char *name)
{
    CUdeviceptr wide;
    size_t wide_bytes;
    SIM_TRY(narrow_check());
    SIM_TRY(cuModuleGetGlobal_v2(&wide, &wide_bytes, module, name));
    if (pointer)
        *pointer = (CUdeviceptr_v1)wide;
    if (bytes)
        *bytes = (unsigned int)wide_bytes;
    return CUDA_SUCCESS;
}

/* --- Texture references ----------------------------------------------------------------------------- */

CUresult cuTexRefSetAddress(unsigned int *offset, CUtexref reference, CUdeviceptr_v1 pointer,
                            unsigned int bytes)
{
    size_t wide_offset;
    SIM_TRY(narrow_check());
    SIM_TRY(cuTexRefSetAddress_v2(offset ? &wide_offset : NULL, reference, pointer, bytes));
    if (offset)
        *offset = (unsigned int)wide_offset;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress2D(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor,
                              CUdeviceptr_v1 pointer, unsigned int pitch)
{
    SIM_TRY(narrow_check());
    SIM_REQUIRE(descriptor);
    const CUDA_ARRAY_DESCRIPTOR wide = {.Width = descriptor->Width,
                                        .Height = descriptor->Height,
                                        .Format = descriptor->Format,
                                        .NumChannels = descriptor->NumChannels};
    return cuTexRefSetAddress2D_v2(reference, &wide, pointer, pitch);
}

CUresult cuTexRefGetAddress(CUdeviceptr_v1 *pointer, CUtexref reference)
{
    CUdeviceptr wide;
    SIM_TRY(narrow_check());
    SIM_REQUIRE(pointer);
    SIM_TRY(cuTexRefGetAddress_v2(&wide, reference));
    *pointer = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

/* --- What moves data ------------------------------------------------------------------------------- */

static CUDA_MEMCPY2D widened_2d(const CUDA_MEMCPY2D_v1 *copy)
{
    return (CUDA_MEMCPY2D){.srcXInBytes = copy->srcXInBytes,
                           .srcY = copy->srcY,
                           .srcMemoryType = copy->srcMemoryType,
                           .srcHost = copy->srcHost,
                           .srcDevice = copy->srcDevice,
                           .srcArray = copy->srcArray,
                           .srcPitch = copy->srcPitch,
                           .dstXInBytes = copy->dstXInBytes,
                           .dstY = copy->dstY,
                           .dstMemoryType = copy->dstMemoryType,
                           .dstHost = copy->dstHost,
                           .dstDevice = copy->dstDevice,
                           .dstArray = copy->dstArray,
                           .dstPitch = copy->dstPitch,
                           .WidthInBytes = copy->WidthInBytes,
                           .Height = copy->Height};
}

static CUDA_MEMCPY3D widened_3d(const CUDA_MEMCPY3D_v1 *copy)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = copy->srcXInBytes,
                           .srcY = copy->srcY,
                           .srcZ = copy->srcZ,
                           .srcLOD = copy->srcLOD,
                           .srcMemoryType = copy->srcMemoryType,
                           .srcHost = copy->srcHost,
                           .srcDevice = copy->srcDevice,
                           .srcArray = copy->srcArray,
                           .reserved0 = copy->reserved0,
                           .srcPitch = copy->srcPitch,
                           .srcHeight = copy->srcHeight,
                           .dstXInBytes = copy->dstXInBytes,
                           .dstY = copy->dstY,
                           .dstZ = copy->dstZ,
                           .dstLOD = copy->dstLOD,
                           .dstMemoryType = copy->dstMemoryType,
                           .dstHost = copy->dstHost,
                           .dstDevice = copy->dstDevice,
                           .dstArray = copy->dstArray,
                           .reserved1 = copy->reserved1,
                           .dstPitch = copy->dstPitch,
                           .dstHeight = copy->dstHeight,
                           .WidthInBytes = copy->WidthInBytes,
                           .Height = copy->Height,
                           .Depth = copy->Depth};
}

/* The wide form with the same arguments; a box is widened first. */
#define NARROW(symbol, parameters, wide, arguments)                                                          \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        SIM_TRY(narrow_check());                                                                             \
        return wide arguments;                                                                               \
    }
#define NARROW_BOX(symbol, parameters, type, widened, wide, arguments)                                       \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        SIM_TRY(narrow_check());                                                                             \
        SIM_REQUIRE(copy);                                                                                   \
        type box = widened(copy);                                                                            \
        return wide arguments;                                                                               \
    }
NARROW(cuMemFree, (CUdeviceptr_v1 pointer), cuMemFree_v2, (pointer))
NARROW(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned int bytes), cuMemcpyHtoD_v2,
       (to, from, bytes))
NARROW(cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned int bytes), cuMemcpyDtoH_v2, (to, from, bytes))
NARROW(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes), cuMemcpyDtoD_v2,
       (to, from, bytes))
NARROW(cuMemcpyDtoA, (CUarray to, unsigned int offset, CUdeviceptr_v1 from, unsigned int bytes),
       cuMemcpyDtoA_v2, (to, offset, from, bytes))
NARROW(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned int offset, unsigned int bytes),
       cuMemcpyAtoD_v2, (to, from, offset, bytes))
NARROW(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned int bytes, CUstream stream),
       cuMemcpyHtoDAsync_v2, (to, from, bytes, stream))
NARROW(cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream),
       cuMemcpyDtoHAsync_v2, (to, from, bytes, stream))
NARROW(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream),
       cuMemcpyDtoDAsync_v2, (to, from, bytes, stream))
NARROW_BOX(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *copy), CUDA_MEMCPY2D, widened_2d, cuMemcpy2D_v2, (&box))
NARROW_BOX(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *copy), CUDA_MEMCPY2D, widened_2d,
           cuMemcpy2DUnaligned_v2, (&box))
NARROW_BOX(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), CUDA_MEMCPY2D, widened_2d,
           cuMemcpy2DAsync_v2, (&box, stream))
NARROW_BOX(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *copy), CUDA_MEMCPY3D, widened_3d, cuMemcpy3D_v2, (&box))
NARROW_BOX(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), CUDA_MEMCPY3D, widened_3d,
           cuMemcpy3DAsync_v2, (&box, stream))
NARROW(cuMemsetD8, (CUdeviceptr_v1 pointer, unsigned char value, unsigned int count), cuMemsetD8_v2,
       (pointer, value, count))
NARROW(cuMemsetD16, (CUdeviceptr_v1 pointer, unsigned short value, unsigned int count), cuMemsetD16_v2,
       (pointer, value, count))
NARROW(cuMemsetD32, (CUdeviceptr_v1 pointer, unsigned int value, unsigned int count), cuMemsetD32_v2,
       (pointer, value, count))
NARROW(cuMemsetD2D8,
       (CUdeviceptr_v1 pointer, unsigned int pitch, unsigned char value, unsigned int width,
        unsigned int height),
       cuMemsetD2D8_v2, (pointer, pitch, value, width, height))
NARROW(cuMemsetD2D16,
       (CUdeviceptr_v1 pointer, unsigned int pitch, unsigned short value, unsigned int width,
        unsigned int height),
       cuMemsetD2D16_v2, (pointer, pitch, value, width, height))
NARROW(cuMemsetD2D32,
       (CUdeviceptr_v1 pointer, unsigned int pitch, unsigned int value, unsigned int width,
        unsigned int height),
       cuMemsetD2D32_v2, (pointer, pitch, value, width, height))
