/* texture.c - texture and surface objects: descriptions in the runtime's words, objects of the driver's. */
#include "simcudart/simcudart.h"

#include <string.h>

static cudaError_t describe_resource(const struct cudaResourceDesc *resource, CUDA_RESOURCE_DESC *driver)
{
    RUNTIME_REQUIRE(resource, cudaErrorInvalidValue);
    memset(driver, 0, sizeof *driver);
    driver->resType = (CUresourcetype)resource->resType;
#if CUDART_MAJOR >= 13
    driver->flags = resource->flags;
#endif
    switch (driver->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        driver->res.array.hArray = (CUarray)resource->res.array;
        return cudaSuccess;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        driver->res.mipmap.hMipmappedArray = (CUmipmappedArray)resource->res.mipmap;
        return cudaSuccess;
    case CU_RESOURCE_TYPE_LINEAR:
        driver->res.linear.devPtr = (CUdeviceptr)resource->res.linear.devPtr;
        driver->res.linear.sizeInBytes = resource->res.linear.sizeInBytes;
        return array_describe_element(&resource->res.linear.desc, &driver->res.linear.format,
                                      &driver->res.linear.numChannels);
    case CU_RESOURCE_TYPE_PITCH2D:
        driver->res.pitch2D.devPtr = (CUdeviceptr)resource->res.pitch2D.devPtr;
        driver->res.pitch2D.width = resource->res.pitch2D.width;
        driver->res.pitch2D.height = resource->res.pitch2D.height;
        driver->res.pitch2D.pitchInBytes = resource->res.pitch2D.pitchInBytes;
        return array_describe_element(&resource->res.pitch2D.desc, &driver->res.pitch2D.format,
                                      &driver->res.pitch2D.numChannels);
    }
    return cudaErrorInvalidValue;
}

static cudaError_t undescribe_resource(const CUDA_RESOURCE_DESC *driver, struct cudaResourceDesc *resource)
{
    memset(resource, 0, sizeof *resource);
    resource->resType = (int)driver->resType;
#if CUDART_MAJOR >= 13
    resource->flags = driver->flags;
#endif
    switch (driver->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        resource->res.array = (cudaArray_t)driver->res.array.hArray;
        return cudaSuccess;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        resource->res.mipmap = (cudaMipmappedArray_t)driver->res.mipmap.hMipmappedArray;
        return cudaSuccess;
    case CU_RESOURCE_TYPE_LINEAR:
        resource->res.linear.devPtr = (void *)driver->res.linear.devPtr;
        resource->res.linear.sizeInBytes = driver->res.linear.sizeInBytes;
        return array_undescribe_element(driver->res.linear.format, driver->res.linear.numChannels,
                                        &resource->res.linear.desc);
    case CU_RESOURCE_TYPE_PITCH2D:
        resource->res.pitch2D.devPtr = (void *)driver->res.pitch2D.devPtr;
        resource->res.pitch2D.width = driver->res.pitch2D.width;
        resource->res.pitch2D.height = driver->res.pitch2D.height;
        resource->res.pitch2D.pitchInBytes = driver->res.pitch2D.pitchInBytes;
        return array_undescribe_element(driver->res.pitch2D.format, driver->res.pitch2D.numChannels,
                                        &resource->res.pitch2D.desc);
    }
    return cudaErrorInvalidValue;
}

/* The driver's flags; the runtime has a member for each. */
#define READ_AS_INTEGER 0x01u
#define NORMALIZED_COORDINATES 0x02u
#define SRGB 0x10u
#define NO_TRILINEAR_OPTIMIZATION 0x20u
#define SEAMLESS_CUBEMAP 0x40u

static void describe_texture(const struct cudaTextureDesc *texture, CUDA_TEXTURE_DESC *driver)
{
    memset(driver, 0, sizeof *driver);
    for (int i = 0; i < 3; i++)
        driver->addressMode[i] = (CUaddress_mode)texture->addressMode[i];
    driver->filterMode = (CUfilter_mode)texture->filterMode;
    driver->flags = (texture->readMode == 0 ? READ_AS_INTEGER : 0) |
                    (texture->normalizedCoords ? NORMALIZED_COORDINATES : 0) | (texture->sRGB ? SRGB : 0) |
                    (texture->disableTrilinearOptimization ? NO_TRILINEAR_OPTIMIZATION : 0) |
                    (texture->seamlessCubemap ? SEAMLESS_CUBEMAP : 0);
    driver->maxAnisotropy = texture->maxAnisotropy;
    driver->mipmapFilterMode = (CUfilter_mode)texture->mipmapFilterMode;
    driver->mipmapLevelBias = texture->mipmapLevelBias;
    driver->minMipmapLevelClamp = texture->minMipmapLevelClamp;
    driver->maxMipmapLevelClamp = texture->maxMipmapLevelClamp;
    memcpy(driver->borderColor, texture->borderColor, sizeof driver->borderColor);
}

static void undescribe_texture(const CUDA_TEXTURE_DESC *driver, struct cudaTextureDesc *texture)
{
    memset(texture, 0, sizeof *texture);
    for (int i = 0; i < 3; i++)
        texture->addressMode[i] = (int)driver->addressMode[i];
    texture->filterMode = (int)driver->filterMode;
    texture->readMode = !(driver->flags & READ_AS_INTEGER);
    texture->normalizedCoords = (driver->flags & NORMALIZED_COORDINATES) != 0;
    texture->sRGB = (driver->flags & SRGB) != 0;
    texture->disableTrilinearOptimization = (driver->flags & NO_TRILINEAR_OPTIMIZATION) != 0;
    texture->seamlessCubemap = (driver->flags & SEAMLESS_CUBEMAP) != 0;
    texture->maxAnisotropy = driver->maxAnisotropy;
    texture->mipmapFilterMode = (int)driver->mipmapFilterMode;
    texture->mipmapLevelBias = driver->mipmapLevelBias;
    texture->minMipmapLevelClamp = driver->minMipmapLevelClamp;
    texture->maxMipmapLevelClamp = driver->maxMipmapLevelClamp;
    memcpy(texture->borderColor, driver->borderColor, sizeof driver->borderColor);
}

/* Runtime and driver describe a view in the same way. */
static const CUDA_RESOURCE_VIEW_DESC *driver_view(const struct cudaResourceViewDesc *view)
{
    return (const CUDA_RESOURCE_VIEW_DESC *)(const void *)view;
}

static cudaError_t create_texture(cudaTextureObject_t *object, const struct cudaResourceDesc *resource,
                                  const struct cudaTextureDesc *texture,
                                  const struct cudaResourceViewDesc *view)
{
    CUDA_RESOURCE_DESC driver_resource;
    CUDA_TEXTURE_DESC driver_texture;
    RUNTIME_REQUIRE(object && texture, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(describe_resource(resource, &driver_resource));
    describe_texture(texture, &driver_texture);
    return runtime_translate(
        DRIVER(cuTexObjectCreate)(object, &driver_resource, &driver_texture, driver_view(view)));
}
EXPORT(cudaCreateTextureObject, create_texture,
       (cudaTextureObject_t * object, const struct cudaResourceDesc *resource,
        const struct cudaTextureDesc *texture, const struct cudaResourceViewDesc *view),
       (object, resource, texture, view))

static cudaError_t texture_resource(struct cudaResourceDesc *resource, cudaTextureObject_t object)
{
    CUDA_RESOURCE_DESC driver;
    RUNTIME_REQUIRE(resource, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuTexObjectGetResourceDesc)(&driver, object)));
    return undescribe_resource(&driver, resource);
}
EXPORT(cudaGetTextureObjectResourceDesc, texture_resource,
       (struct cudaResourceDesc * resource, cudaTextureObject_t object), (resource, object))

static cudaError_t texture_of(struct cudaTextureDesc *texture, cudaTextureObject_t object)
{
    CUDA_TEXTURE_DESC driver;
    RUNTIME_REQUIRE(texture, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuTexObjectGetTextureDesc)(&driver, object)));
    undescribe_texture(&driver, texture);
    return cudaSuccess;
}
EXPORT(cudaGetTextureObjectTextureDesc, texture_of,
       (struct cudaTextureDesc * texture, cudaTextureObject_t object), (texture, object))

static cudaError_t create_surface(cudaSurfaceObject_t *object, const struct cudaResourceDesc *resource)
{
    CUDA_RESOURCE_DESC driver;
    RUNTIME_REQUIRE(object, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(describe_resource(resource, &driver));
    return runtime_translate(DRIVER(cuSurfObjectCreate)(object, &driver));
}
EXPORT(cudaCreateSurfaceObject, create_surface,
       (cudaSurfaceObject_t * object, const struct cudaResourceDesc *resource), (object, resource))

static cudaError_t surface_resource(struct cudaResourceDesc *resource, cudaSurfaceObject_t object)
{
    CUDA_RESOURCE_DESC driver;
    RUNTIME_REQUIRE(resource, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuSurfObjectGetResourceDesc)(&driver, object)));
    return undescribe_resource(&driver, resource);
}
EXPORT(cudaGetSurfaceObjectResourceDesc, surface_resource,
       (struct cudaResourceDesc * resource, cudaSurfaceObject_t object), (resource, object))
