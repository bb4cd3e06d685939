/* memory.c - allocating, freeing, filling, and what an address is. */
#include "simcudart/simcudart.h"

#define PITCH_ELEMENT_BYTES 4 /* the runtime does not know it; so rows are aligned for every element */

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)pointer;
}

/* Zero bytes are a NULL pointer here, and an error in the driver. */
static cudaError_t allocate(void **pointer, size_t bytes)
{
    CUdeviceptr address = 0;
    RUNTIME_REQUIRE(pointer, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    if (bytes)
        RUNTIME_TRY(runtime_translate(DRIVER(cuMemAlloc_v2)(&address, bytes)));
    *pointer = (void *)address;
    return cudaSuccess;
}
EXPORT(cudaMalloc, allocate, (void **pointer, size_t bytes), (pointer, bytes))

static cudaError_t allocate_managed(void **pointer, size_t bytes, unsigned int flags)
{
    CUdeviceptr address;
    RUNTIME_REQUIRE(pointer && bytes, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuMemAllocManaged)(&address, bytes, flags)));
    *pointer = (void *)address;
    return cudaSuccess;
}
EXPORT(cudaMallocManaged, allocate_managed, (void **pointer, size_t bytes, unsigned int flags),
       (pointer, bytes, flags))

static cudaError_t allocate_host(void **pointer, size_t bytes, unsigned int flags)
{
    RUNTIME_REQUIRE(pointer, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    if (bytes)
        return runtime_translate(DRIVER(cuMemHostAlloc)(pointer, bytes, flags));
    *pointer = NULL;
    return cudaSuccess;
}
EXPORT(cudaMallocHost, allocate_host, (void **pointer, size_t bytes), (pointer, bytes, 0))
EXPORT(cudaHostAlloc, allocate_host, (void **pointer, size_t bytes, unsigned int flags),
       (pointer, bytes, flags))

static cudaError_t allocate_rows(void **pointer, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr address = 0;
    RUNTIME_REQUIRE(pointer && pitch, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    *pitch = 0;
    if (width && height)
        RUNTIME_TRY(runtime_translate(
            DRIVER(cuMemAllocPitch_v2)(&address, pitch, width, height, PITCH_ELEMENT_BYTES)));
    *pointer = (void *)address;
    return cudaSuccess;
}
EXPORT(cudaMallocPitch, allocate_rows, (void **pointer, size_t *pitch, size_t width, size_t height),
       (pointer, pitch, width, height))

static cudaError_t allocate_3d(struct cudaPitchedPtr *pointer, struct cudaExtent extent)
{
    size_t rows;
    RUNTIME_REQUIRE(pointer, cudaErrorInvalidValue);
    RUNTIME_REQUIRE(!__builtin_mul_overflow(extent.height, extent.depth, &rows), cudaErrorMemoryAllocation);
    RUNTIME_TRY(allocate_rows(&pointer->ptr, &pointer->pitch, extent.width, rows));
    pointer->xsize = extent.width;
    pointer->ysize = extent.height;
    return cudaSuccess;
}
EXPORT(cudaMalloc3D, allocate_3d, (struct cudaPitchedPtr * pointer, struct cudaExtent extent),
       (pointer, extent))

/* cudaFree(NULL) is how programs ask for a context. */
static cudaError_t release(void *pointer)
{
    RUNTIME_TRY(runtime_need_context());
    return pointer ? runtime_translate(DRIVER(cuMemFree_v2)(address_of(pointer))) : cudaSuccess;
}
EXPORT(cudaFree, release, (void *pointer), (pointer))

static cudaError_t release_host(void *pointer)
{
    RUNTIME_TRY(runtime_need_context());
    return pointer ? runtime_translate(DRIVER(cuMemFreeHost)(pointer)) : cudaSuccess;
}
EXPORT(cudaFreeHost, release_host, (void *pointer), (pointer))

static cudaError_t fill(enum form form, void *pointer, int value, size_t bytes)
{
    RUNTIME_TRY(runtime_need_context());
    if (bytes == 0)
        return cudaSuccess;
    return runtime_translate(
        DRIVER_FORM(form, cuMemsetD8_v2, _ptds)(address_of(pointer), (unsigned char)value, bytes));
}
EXPORT_FORMS(cudaMemset, _ptds, fill, (void *pointer, int value, size_t bytes), (pointer, value, bytes))

static cudaError_t fill_async(enum form form, void *pointer, int value, size_t bytes, cudaStream_t stream)
{
    RUNTIME_TRY(runtime_need_context());
    if (bytes == 0)
        return cudaSuccess;
    return runtime_translate(
        DRIVER_FORM(form, cuMemsetD8Async, _ptsz)(address_of(pointer), (unsigned char)value, bytes, stream));
}
EXPORT_FORMS(cudaMemsetAsync, _ptsz, fill_async,
             (void *pointer, int value, size_t bytes, cudaStream_t stream), (pointer, value, bytes, stream))

static cudaError_t fill_rows(enum form form, void *pointer, size_t pitch, int value, size_t width,
                             size_t height)
{
    RUNTIME_TRY(runtime_need_context());
    if (width == 0 || height == 0)
        return cudaSuccess;
    return runtime_translate(DRIVER_FORM(form, cuMemsetD2D8_v2, _ptds)(address_of(pointer), pitch,
                                                                       (unsigned char)value, width, height));
}
EXPORT_FORMS(cudaMemset2D, _ptds, fill_rows,
             (void *pointer, size_t pitch, int value, size_t width, size_t height),
             (pointer, pitch, value, width, height))

static cudaError_t fill_rows_async(enum form form, void *pointer, size_t pitch, int value, size_t width,
                                   size_t height, cudaStream_t stream)
{
    RUNTIME_TRY(runtime_need_context());
    if (width == 0 || height == 0)
        return cudaSuccess;
    return runtime_translate(DRIVER_FORM(form, cuMemsetD2D8Async, _ptsz)(
        address_of(pointer), pitch, (unsigned char)value, width, height, stream));
}
EXPORT_FORMS(cudaMemset2DAsync, _ptsz, fill_rows_async,
             (void *pointer, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
             (pointer, pitch, value, width, height, stream))

/* A slice begins every ysize rows; a box that has all rows of its slices is one run of rows. */
static cudaError_t fill_3d(enum form form, struct cudaPitchedPtr target, int value, struct cudaExtent extent)
{
    if (extent.height == target.ysize)
        return fill_rows(form, target.ptr, target.pitch, value, extent.width, extent.height * extent.depth);
    for (size_t z = 0; z < extent.depth; z++)
        RUNTIME_TRY(fill_rows(form, (char *)target.ptr + z * target.pitch * target.ysize, target.pitch, value,
                              extent.width, extent.height));
    return cudaSuccess;
}
EXPORT_FORMS(cudaMemset3D, _ptds, fill_3d,
             (struct cudaPitchedPtr target, int value, struct cudaExtent extent), (target, value, extent))

static cudaError_t fill_3d_async(enum form form, struct cudaPitchedPtr target, int value,
                                 struct cudaExtent extent, cudaStream_t stream)
{
    if (extent.height == target.ysize)
        return fill_rows_async(form, target.ptr, target.pitch, value, extent.width,
                               extent.height * extent.depth, stream);
    for (size_t z = 0; z < extent.depth; z++)
        RUNTIME_TRY(fill_rows_async(form, (char *)target.ptr + z * target.pitch * target.ysize, target.pitch,
                                    value, extent.width, extent.height, stream));
    return cudaSuccess;
}
EXPORT_FORMS(cudaMemset3DAsync, _ptsz, fill_3d_async,
             (struct cudaPitchedPtr target, int value, struct cudaExtent extent, cudaStream_t stream),
             (target, value, extent, stream))

static enum cudaMemoryType type_of(unsigned int driver_type, unsigned int is_managed)
{
    if (is_managed)
        return cudaMemoryTypeManaged;
    switch (driver_type) {
    case CU_MEMORYTYPE_HOST:
        return cudaMemoryTypeHost;
    case CU_MEMORYTYPE_DEVICE:
        return cudaMemoryTypeDevice;
    default:
        return cudaMemoryTypeUnregistered;
    }
}

/* An address that the driver does not know is the host's own memory, and not an error. */
static cudaError_t pointer_attributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    RUNTIME_REQUIRE(attributes, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    unsigned int memory_type = 0, is_managed = 0;
    int device = cudaInvalidDeviceId;
    CUdeviceptr device_pointer = 0;
    void *host_pointer = NULL;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&memory_type, &is_managed, &device, &device_pointer, &host_pointer};
    RUNTIME_TRY(runtime_translate(DRIVER(cuPointerGetAttributes)(5, wanted, values, address_of(pointer))));
    *attributes = (struct cudaPointerAttributes){.type = type_of(memory_type, is_managed)};
    bool is_known = attributes->type != cudaMemoryTypeUnregistered;
    attributes->device = is_known ? device : cudaInvalidDeviceId;
    attributes->devicePointer = is_known ? (void *)device_pointer : NULL;
    attributes->hostPointer = is_known ? host_pointer : (void *)(uintptr_t)pointer;
    return cudaSuccess;
}
EXPORT(cudaPointerGetAttributes, pointer_attributes,
       (struct cudaPointerAttributes * attributes, const void *pointer), (attributes, pointer))
