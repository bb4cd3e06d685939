/* copy_shapes.c - copies of rectangles and boxes: between pitched memory and arrays. */
#include "simcudart/simcudart.h"

enum end { SOURCE, TARGET };

/* What the driver is told about one end of a copy. Without a kind the driver looks at the address itself. */
static cudaError_t memory_type(enum cudaMemcpyKind kind, enum end end, CUmemorytype *type)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        *type = CU_MEMORYTYPE_HOST;
        return cudaSuccess;
    case cudaMemcpyHostToDevice:
        *type = end == SOURCE ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return cudaSuccess;
    case cudaMemcpyDeviceToHost:
        *type = end == SOURCE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return cudaSuccess;
    case cudaMemcpyDeviceToDevice:
        *type = CU_MEMORYTYPE_DEVICE;
        return cudaSuccess;
    case cudaMemcpyDefault:
        *type = CU_MEMORYTYPE_UNIFIED;
        return cudaSuccess;
    }
    return cudaErrorInvalidMemcpyDirection;
}

/* One end of a 2D copy: an array, or pitched memory. */
struct plane {
    cudaArray_const_t array;
    size_t x_bytes, y;
    const void *pointer;
    size_t pitch;
};

static struct plane plane_of_memory(const void *pointer, size_t pitch)
{
    return (struct plane){.pointer = pointer, .pitch = pitch};
}

static struct plane plane_of_array(cudaArray_const_t array, size_t x_bytes, size_t y)
{
    return (struct plane){.array = array, .x_bytes = x_bytes, .y = y};
}

static CUarray driver_array(cudaArray_const_t array)
{
    return (CUarray)(uintptr_t)array;
}

static cudaError_t describe_plane(const struct plane *to, const struct plane *from, size_t width,
                                  size_t height, enum cudaMemcpyKind kind, CUDA_MEMCPY2D *copy)
{
    *copy = (CUDA_MEMCPY2D){
        .srcXInBytes = from->x_bytes,
        .srcY = from->y,
        .srcHost = from->pointer,
        .srcDevice = (CUdeviceptr)from->pointer,
        .srcArray = driver_array(from->array),
        .srcPitch = from->pitch,
        .dstXInBytes = to->x_bytes,
        .dstY = to->y,
        .dstHost = (void *)(uintptr_t)to->pointer,
        .dstDevice = (CUdeviceptr)to->pointer,
        .dstArray = driver_array(to->array),
        .dstPitch = to->pitch,
        .WidthInBytes = width,
        .Height = height,
    };
    RUNTIME_TRY(memory_type(kind, SOURCE, &copy->srcMemoryType));
    RUNTIME_TRY(memory_type(kind, TARGET, &copy->dstMemoryType));
    if (from->array)
        copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    else
        RUNTIME_REQUIRE(width <= from->pitch, cudaErrorInvalidPitchValue);
    if (to->array)
        copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    else
        RUNTIME_REQUIRE(width <= to->pitch, cudaErrorInvalidPitchValue);
    return cudaSuccess;
}

static cudaError_t copy_plane(enum form form, struct plane to, struct plane from, size_t width, size_t height,
                              enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D driver;
    RUNTIME_TRY(describe_plane(&to, &from, width, height, kind, &driver));
    RUNTIME_TRY(runtime_need_context());
    if (width == 0 || height == 0)
        return cudaSuccess;
    return runtime_translate(DRIVER_FORM(form, cuMemcpy2DUnaligned_v2, _ptds)(&driver));
}

static cudaError_t copy_plane_async(enum form form, struct plane to, struct plane from, size_t width,
                                    size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D driver;
    RUNTIME_TRY(describe_plane(&to, &from, width, height, kind, &driver));
    RUNTIME_TRY(runtime_need_context());
    if (width == 0 || height == 0)
        return cudaSuccess;
    return runtime_translate(DRIVER_FORM(form, cuMemcpy2DAsync_v2, _ptsz)(&driver, stream));
}

EXPORT_FORMS(cudaMemcpy2D, _ptds, copy_plane,
             (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
              enum cudaMemcpyKind kind),
             (plane_of_memory(to, to_pitch), plane_of_memory(from, from_pitch), width, height, kind))
EXPORT_FORMS(cudaMemcpy2DAsync, _ptsz, copy_plane_async,
             (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
              enum cudaMemcpyKind kind, cudaStream_t stream),
             (plane_of_memory(to, to_pitch), plane_of_memory(from, from_pitch), width, height, kind, stream))
EXPORT_FORMS(cudaMemcpy2DToArray, _ptds, copy_plane,
             (cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height,
              enum cudaMemcpyKind kind),
             (plane_of_array(to, x, y), plane_of_memory(from, pitch), width, height, kind))
EXPORT_FORMS(cudaMemcpy2DToArrayAsync, _ptsz, copy_plane_async,
             (cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height,
              enum cudaMemcpyKind kind, cudaStream_t stream),
             (plane_of_array(to, x, y), plane_of_memory(from, pitch), width, height, kind, stream))
EXPORT_FORMS(cudaMemcpy2DFromArray, _ptds, copy_plane,
             (void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width, size_t height,
              enum cudaMemcpyKind kind),
             (plane_of_memory(to, pitch), plane_of_array(from, x, y), width, height, kind))
EXPORT_FORMS(cudaMemcpy2DFromArrayAsync, _ptsz, copy_plane_async,
             (void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width, size_t height,
              enum cudaMemcpyKind kind, cudaStream_t stream),
             (plane_of_memory(to, pitch), plane_of_array(from, x, y), width, height, kind, stream))
EXPORT_FORMS(cudaMemcpy2DArrayToArray, _ptds, copy_plane,
             (cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x, size_t from_y,
              size_t width, size_t height, enum cudaMemcpyKind kind),
             (plane_of_array(to, to_x, to_y), plane_of_array(from, from_x, from_y), width, height, kind))

/* Bytes that run on from row to row of an array: `count` of them from byte `x` of row `y` on, to or from memory. */
struct run {
    cudaArray_const_t array;
    size_t x, y;
    const void *memory;
    size_t count;
    enum cudaMemcpyKind kind;
    bool is_async;
    cudaStream_t stream;
};

/* The next rectangle of the run: the rest of a row, or all whole rows. */
static void run_next(const struct run *run, size_t row_bytes, size_t *width, size_t *height)
{
    *width = row_bytes - run->x;
    *height = 1;
    if (run->count < *width)
        *width = run->count;
    else if (run->x == 0)
        *height = run->count / row_bytes;
}

static cudaError_t copy_run(enum form form, enum end array_end, struct run run)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    size_t element_bytes;
    RUNTIME_REQUIRE(run.array && (run.memory || run.count == 0), cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuArray3DGetDescriptor_v2)(&shape, driver_array(run.array))));
    RUNTIME_TRY(array_element_bytes(run.array, &element_bytes));
    size_t row_bytes = shape.Width * element_bytes;
    RUNTIME_REQUIRE(run.x < row_bytes, cudaErrorInvalidValue);
    while (run.count > 0) {
        size_t width, height;
        run_next(&run, row_bytes, &width, &height);
        struct plane array = plane_of_array(run.array, run.x, run.y);
        struct plane memory = plane_of_memory(run.memory, width);
        struct plane to = array_end == TARGET ? array : memory, from = array_end == TARGET ? memory : array;
        RUNTIME_TRY(run.is_async ? copy_plane_async(form, to, from, width, height, run.kind, run.stream)
                                 : copy_plane(form, to, from, width, height, run.kind));
        run.memory = (const char *)run.memory + width * height;
        run.count -= width * height;
        run.x = 0;
        run.y += height;
    }
    return cudaSuccess;
}

EXPORT_FORMS(cudaMemcpyToArray, _ptds, copy_run,
             (cudaArray_t to, size_t x, size_t y, const void *from, size_t count, enum cudaMemcpyKind kind),
             (TARGET, (struct run){to, x, y, from, count, kind, false, NULL}))
EXPORT_FORMS(cudaMemcpyToArrayAsync, _ptsz, copy_run,
             (cudaArray_t to, size_t x, size_t y, const void *from, size_t count, enum cudaMemcpyKind kind,
              cudaStream_t stream),
             (TARGET, (struct run){to, x, y, from, count, kind, true, stream}))
EXPORT_FORMS(cudaMemcpyFromArray, _ptds, copy_run,
             (void *to, cudaArray_const_t from, size_t x, size_t y, size_t count, enum cudaMemcpyKind kind),
             (SOURCE, (struct run){from, x, y, to, count, kind, false, NULL}))
EXPORT_FORMS(cudaMemcpyFromArrayAsync, _ptsz, copy_run,
             (void *to, cudaArray_const_t from, size_t x, size_t y, size_t count, enum cudaMemcpyKind kind,
              cudaStream_t stream),
             (SOURCE, (struct run){from, x, y, to, count, kind, true, stream}))

/* Where an array takes part the runtime counts positions and extents in elements, the driver always in bytes.
 * Both count positions in memory in bytes. */
cudaError_t copy_describe(const struct cudaMemcpy3DParms *parameters, CUDA_MEMCPY3D *copy)
{
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    RUNTIME_REQUIRE((parameters->srcArray != NULL) != (parameters->srcPtr.ptr != NULL),
                    cudaErrorInvalidValue);
    RUNTIME_REQUIRE((parameters->dstArray != NULL) != (parameters->dstPtr.ptr != NULL),
                    cudaErrorInvalidValue);
    size_t from_element = 1, to_element = 1;
    if (parameters->srcArray)
        RUNTIME_TRY(array_element_bytes(parameters->srcArray, &from_element));
    if (parameters->dstArray)
        RUNTIME_TRY(array_element_bytes(parameters->dstArray, &to_element));
    *copy = (CUDA_MEMCPY3D){
        .srcXInBytes = parameters->srcPos.x * from_element,
        .srcY = parameters->srcPos.y,
        .srcZ = parameters->srcPos.z,
        .srcHost = parameters->srcPtr.ptr,
        .srcDevice = (CUdeviceptr)parameters->srcPtr.ptr,
        .srcArray = driver_array(parameters->srcArray),
        .srcPitch = parameters->srcPtr.pitch,
        .srcHeight = parameters->srcPtr.ysize,
        .dstXInBytes = parameters->dstPos.x * to_element,
        .dstY = parameters->dstPos.y,
        .dstZ = parameters->dstPos.z,
        .dstHost = parameters->dstPtr.ptr,
        .dstDevice = (CUdeviceptr)parameters->dstPtr.ptr,
        .dstArray = driver_array(parameters->dstArray),
        .dstPitch = parameters->dstPtr.pitch,
        .dstHeight = parameters->dstPtr.ysize,
        .WidthInBytes = parameters->extent.width * (parameters->srcArray ? from_element : to_element),
        .Height = parameters->extent.height,
        .Depth = parameters->extent.depth,
    };
    RUNTIME_TRY(memory_type(parameters->kind, SOURCE, &copy->srcMemoryType));
    RUNTIME_TRY(memory_type(parameters->kind, TARGET, &copy->dstMemoryType));
    if (parameters->srcArray)
        copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    if (parameters->dstArray)
        copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    return cudaSuccess;
}

/* Whether an end is in host memory; an array is on the device. */
static bool is_on_host(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST;
}

static enum cudaMemcpyKind kind_of(CUmemorytype from, CUmemorytype to)
{
    if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED)
        return cudaMemcpyDefault;
    if (is_on_host(from))
        return is_on_host(to) ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
    return is_on_host(to) ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

cudaError_t copy_undescribe(const CUDA_MEMCPY3D *copy, struct cudaMemcpy3DParms *parameters)
{
    size_t from_element = 1, to_element = 1;
    bool from_array = copy->srcMemoryType == CU_MEMORYTYPE_ARRAY,
         to_array = copy->dstMemoryType == CU_MEMORYTYPE_ARRAY;
    cudaArray_t source = from_array ? (cudaArray_t)copy->srcArray : NULL;
    cudaArray_t target = to_array ? (cudaArray_t)copy->dstArray : NULL;
    if (source)
        RUNTIME_TRY(array_element_bytes(source, &from_element));
    if (target)
        RUNTIME_TRY(array_element_bytes(target, &to_element));
    const void *from = is_on_host(copy->srcMemoryType) ? copy->srcHost : (const void *)copy->srcDevice;
    void *to = is_on_host(copy->dstMemoryType) ? copy->dstHost : (void *)copy->dstDevice;
    *parameters = (struct cudaMemcpy3DParms){
        .srcArray = source,
        .srcPos = {copy->srcXInBytes / from_element, copy->srcY, copy->srcZ},
        .dstArray = target,
        .dstPos = {copy->dstXInBytes / to_element, copy->dstY, copy->dstZ},
        .extent = {copy->WidthInBytes / (source ? from_element : to_element), copy->Height, copy->Depth},
        .kind = kind_of(copy->srcMemoryType, copy->dstMemoryType),
    };
    if (!source)
        parameters->srcPtr = (struct cudaPitchedPtr){(void *)(uintptr_t)from, copy->srcPitch,
                                                     copy->WidthInBytes, copy->srcHeight};
    if (!target)
        parameters->dstPtr = (struct cudaPitchedPtr){to, copy->dstPitch, copy->WidthInBytes, copy->dstHeight};
    return cudaSuccess;
}

static cudaError_t copy_box(enum form form, const struct cudaMemcpy3DParms *parameters)
{
    CUDA_MEMCPY3D driver;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(copy_describe(parameters, &driver));
    return runtime_translate(DRIVER_FORM(form, cuMemcpy3D_v2, _ptds)(&driver));
}
EXPORT_FORMS(cudaMemcpy3D, _ptds, copy_box, (const struct cudaMemcpy3DParms *parameters), (parameters))

static cudaError_t copy_box_async(enum form form, const struct cudaMemcpy3DParms *parameters,
                                  cudaStream_t stream)
{
    CUDA_MEMCPY3D driver;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(copy_describe(parameters, &driver));
    return runtime_translate(DRIVER_FORM(form, cuMemcpy3DAsync_v2, _ptsz)(&driver, stream));
}
EXPORT_FORMS(cudaMemcpy3DAsync, _ptsz, copy_box_async,
             (const struct cudaMemcpy3DParms *parameters, cudaStream_t stream), (parameters, stream))

static cudaError_t describe_peers(const struct cudaMemcpy3DPeerParms *parameters, CUDA_MEMCPY3D_PEER *copy)
{
    RUNTIME_REQUIRE(parameters, cudaErrorInvalidValue);
    struct cudaMemcpy3DParms same = {
        .srcArray = parameters->srcArray,
        .srcPos = parameters->srcPos,
        .srcPtr = parameters->srcPtr,
        .dstArray = parameters->dstArray,
        .dstPos = parameters->dstPos,
        .dstPtr = parameters->dstPtr,
        .extent = parameters->extent,
        .kind = cudaMemcpyDeviceToDevice,
    };
    CUDA_MEMCPY3D plain;
    CUcontext from, to;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(copy_describe(&same, &plain));
    RUNTIME_TRY(runtime_primary_context(parameters->srcDevice, &from));
    RUNTIME_TRY(runtime_primary_context(parameters->dstDevice, &to));
    *copy = (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = plain.srcXInBytes,
        .srcY = plain.srcY,
        .srcZ = plain.srcZ,
        .srcMemoryType = plain.srcMemoryType,
        .srcDevice = plain.srcDevice,
        .srcArray = plain.srcArray,
        .srcContext = from,
        .srcPitch = plain.srcPitch,
        .srcHeight = plain.srcHeight,
        .dstXInBytes = plain.dstXInBytes,
        .dstY = plain.dstY,
        .dstZ = plain.dstZ,
        .dstMemoryType = plain.dstMemoryType,
        .dstDevice = plain.dstDevice,
        .dstArray = plain.dstArray,
        .dstContext = to,
        .dstPitch = plain.dstPitch,
        .dstHeight = plain.dstHeight,
        .WidthInBytes = plain.WidthInBytes,
        .Height = plain.Height,
        .Depth = plain.Depth,
    };
    return cudaSuccess;
}

static cudaError_t copy_box_peer(enum form form, const struct cudaMemcpy3DPeerParms *parameters)
{
    CUDA_MEMCPY3D_PEER driver;
    RUNTIME_TRY(describe_peers(parameters, &driver));
    return runtime_translate(DRIVER_FORM(form, cuMemcpy3DPeer, _ptds)(&driver));
}
EXPORT_FORMS(cudaMemcpy3DPeer, _ptds, copy_box_peer, (const struct cudaMemcpy3DPeerParms *parameters),
             (parameters))

static cudaError_t copy_box_peer_async(enum form form, const struct cudaMemcpy3DPeerParms *parameters,
                                       cudaStream_t stream)
{
    CUDA_MEMCPY3D_PEER driver;
    RUNTIME_TRY(describe_peers(parameters, &driver));
    return runtime_translate(DRIVER_FORM(form, cuMemcpy3DPeerAsync, _ptsz)(&driver, stream));
}
EXPORT_FORMS(cudaMemcpy3DPeerAsync, _ptsz, copy_box_peer_async,
             (const struct cudaMemcpy3DPeerParms *parameters, cudaStream_t stream), (parameters, stream))
