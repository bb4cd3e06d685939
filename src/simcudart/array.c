/* array.c - arrays, and the description of their elements. */
#include "simcudart/simcudart.h"

static const struct {
    enum cudaChannelFormatKind kind;
    int bits;
    CUarray_format format;
} formats[] = {
    {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
    {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
    {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
    {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
    {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
    {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
    {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
    {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
};

/* Channels follow one another without a gap, all as wide as the first: one, two or four. */
cudaError_t array_describe_element(const struct cudaChannelFormatDesc *channels, CUarray_format *format,
                                   unsigned int *count)
{
    RUNTIME_REQUIRE(channels, cudaErrorInvalidValue);
    const int bits[4] = {channels->x, channels->y, channels->z, channels->w};
    *count = 0;
    while (*count < 4 && bits[*count])
        (*count)++;
    RUNTIME_REQUIRE(*count == 1 || *count == 2 || *count == 4, cudaErrorInvalidChannelDescriptor);
    for (unsigned int i = 0; i < 4; i++)
        RUNTIME_REQUIRE(bits[i] == (i < *count ? bits[0] : 0), cudaErrorInvalidChannelDescriptor);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].kind == channels->f && formats[i].bits == bits[0]) {
            *format = formats[i].format;
            return cudaSuccess;
        }
    return cudaErrorInvalidChannelDescriptor;
}

cudaError_t array_undescribe_element(CUarray_format format, unsigned int count,
                                     struct cudaChannelFormatDesc *channels)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].format == format) {
            int bits = formats[i].bits;
            *channels = (struct cudaChannelFormatDesc){bits, count > 1 ? bits : 0, count > 2 ? bits : 0,
                                                       count > 3 ? bits : 0, formats[i].kind};
            return cudaSuccess;
        }
    return cudaErrorInvalidChannelDescriptor;
}

static cudaError_t array_info(struct cudaChannelFormatDesc *channels, struct cudaExtent *extent,
                              unsigned int *flags, cudaArray_const_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    RUNTIME_REQUIRE(array, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuArray3DGetDescriptor_v2)(&descriptor, (CUarray)(uintptr_t)array)));
    if (channels)
        RUNTIME_TRY(array_undescribe_element(descriptor.Format, descriptor.NumChannels, channels));
    if (extent)
        *extent = (struct cudaExtent){descriptor.Width, descriptor.Height, descriptor.Depth};
    if (flags)
        *flags = descriptor.Flags;
    return cudaSuccess;
}
EXPORT(cudaArrayGetInfo, array_info,
       (struct cudaChannelFormatDesc * channels, struct cudaExtent *extent, unsigned int *flags,
        cudaArray_t array),
       (channels, extent, flags, array))
EXPORT(cudaGetChannelDesc, array_info, (struct cudaChannelFormatDesc * channels, cudaArray_const_t array),
       (channels, NULL, NULL, array))

cudaError_t array_element_bytes(cudaArray_const_t array, size_t *bytes)
{
    struct cudaChannelFormatDesc channels;
    RUNTIME_TRY(array_info(&channels, NULL, NULL, array));
    *bytes = (size_t)(channels.x + channels.y + channels.z + channels.w) / 8;
    return cudaSuccess;
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                   enum cudaChannelFormatKind kind)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

static cudaError_t describe_box(const struct cudaChannelFormatDesc *channels, struct cudaExtent extent,
                                unsigned int flags, CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    *descriptor = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    return array_describe_element(channels, &descriptor->Format, &descriptor->NumChannels);
}

static cudaError_t allocate_array(cudaArray_t *array, const struct cudaChannelFormatDesc *channels,
                                  struct cudaExtent extent, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    RUNTIME_REQUIRE(array, cudaErrorInvalidValue);
    RUNTIME_TRY(describe_box(channels, extent, flags, &descriptor));
    RUNTIME_TRY(runtime_need_context());
    return runtime_translate(DRIVER(cuArray3DCreate_v2)((CUarray *)array, &descriptor));
}
EXPORT(cudaMalloc3DArray, allocate_array,
       (cudaArray_t * array, const struct cudaChannelFormatDesc *channels, struct cudaExtent extent,
        unsigned int flags),
       (array, channels, extent, flags))
EXPORT(cudaMallocArray, allocate_array,
       (cudaArray_t * array, const struct cudaChannelFormatDesc *channels, size_t width, size_t height,
        unsigned int flags),
       (array, channels, (struct cudaExtent){width, height, 0}, flags))

static cudaError_t allocate_mipmaps(cudaMipmappedArray_t *array, const struct cudaChannelFormatDesc *channels,
                                    struct cudaExtent extent, unsigned int levels, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    RUNTIME_REQUIRE(array, cudaErrorInvalidValue);
    RUNTIME_TRY(describe_box(channels, extent, flags, &descriptor));
    RUNTIME_TRY(runtime_need_context());
    return runtime_translate(DRIVER(cuMipmappedArrayCreate)((CUmipmappedArray *)array, &descriptor, levels));
}
EXPORT(cudaMallocMipmappedArray, allocate_mipmaps,
       (cudaMipmappedArray_t * array, const struct cudaChannelFormatDesc *channels, struct cudaExtent extent,
        unsigned int levels, unsigned int flags),
       (array, channels, extent, levels, flags))

static cudaError_t release_array(cudaArray_t array)
{
    RUNTIME_TRY(runtime_need_context());
    return array ? runtime_translate(DRIVER(cuArrayDestroy)((CUarray)array)) : cudaSuccess;
}
EXPORT(cudaFreeArray, release_array, (cudaArray_t array), (array))

static cudaError_t release_mipmaps(cudaMipmappedArray_t array)
{
    RUNTIME_TRY(runtime_need_context());
    return array ? runtime_translate(DRIVER(cuMipmappedArrayDestroy)((CUmipmappedArray)array)) : cudaSuccess;
}
EXPORT(cudaFreeMipmappedArray, release_mipmaps, (cudaMipmappedArray_t array), (array))

static cudaError_t linear_width(size_t *elements, const struct cudaChannelFormatDesc *channels, int device)
{
    CUarray_format format;
    unsigned int count;
    RUNTIME_REQUIRE(elements, cudaErrorInvalidValue);
    RUNTIME_TRY(array_describe_element(channels, &format, &count));
    RUNTIME_TRY(runtime_need_driver());
    return runtime_translate(DRIVER(cuDeviceGetTexture1DLinearMaxWidth)(elements, format, count, device));
}
EXPORT(cudaDeviceGetTexture1DLinearMaxWidth, linear_width,
       (size_t * elements, const struct cudaChannelFormatDesc *channels, int device),
       (elements, channels, device))
