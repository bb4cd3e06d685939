/* textures.c - texture and surface objects: handles that remember what they were made of. No kernel that we
 * know reads through them. */
#include <stdlib.h>

#include "simgpu/arrays/arrays.h"
#include "simgpu/memory/memory.h"

struct object {
    _Atomic unsigned kind; /* SIM_TEXTURE or SIM_SURFACE; structs stay (sim.h) */
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

static CUresult resource_check(const CUDA_RESOURCE_DESC *resource)
{
    SIM_REQUIRE(resource->flags == 0);
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return array_check(resource->res.array.hArray) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return mipmap_check(resource->res.mipmap.hMipmappedArray) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                                  : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_LINEAR:
        SIM_REQUIRE(array_texel_of(resource->res.linear.format, resource->res.linear.numChannels).bytes > 0);
        SIM_REQUIRE(resource->res.linear.sizeInBytes > 0);
        return memory_is_accessible(resource->res.linear.devPtr, resource->res.linear.sizeInBytes)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_PITCH2D: {
        unsigned bytes =
            array_texel_of(resource->res.pitch2D.format, resource->res.pitch2D.numChannels).bytes;
        size_t pitch = resource->res.pitch2D.pitchInBytes, height = resource->res.pitch2D.height;
        SIM_REQUIRE(bytes > 0 && resource->res.pitch2D.width > 0 && height > 0 && pitch % 32 == 0);
        SIM_REQUIRE(resource->res.pitch2D.width <= pitch / bytes);
        return memory_is_accessible(resource->res.pitch2D.devPtr, pitch * (height - 1) + 1)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult object_make(unsigned long long *handle, unsigned kind, const CUDA_RESOURCE_DESC *resource,
                            const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    struct object *object = calloc(1, sizeof(*object));
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->resource = *resource;
    if (texture)
        object->texture = *texture;
    if (view)
        object->view = *view;
    atomic_store(&object->kind, kind);
    *handle = (unsigned long long)(uintptr_t)object;
    return CUDA_SUCCESS;
}

static struct object *object_of(unsigned long long handle, unsigned kind)
{
    struct object *object = (struct object *)(uintptr_t)handle;
    return object && atomic_load(&object->kind) == kind ? object : NULL;
}

static CUresult object_destroy(unsigned long long handle, unsigned kind)
{
    SIM_TRY(sim_ready());
    struct object *object = object_of(handle, kind);
    SIM_REQUIRE(object);
    return atomic_compare_exchange_strong(&object->kind, &kind, SIM_DESTROYED) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectCreate(CUtexObject *handle, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(handle && resource && texture);
    SIM_TRY(context_current(&context));
    SIM_TRY(resource_check(resource));
    /* Only arrays have views (driver API reference). */
    SIM_REQUIRE(!view || resource->resType == CU_RESOURCE_TYPE_ARRAY ||
                resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);
    return object_make(handle, SIM_TEXTURE, resource, texture, view);
}

CUresult cuTexObjectDestroy(CUtexObject handle)
{
    return object_destroy(handle, SIM_TEXTURE);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject handle)
{
    SIM_TRY(sim_ready());
    const struct object *object = object_of(handle, SIM_TEXTURE);
    SIM_REQUIRE(resource && object);
    *resource = object->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *texture, CUtexObject handle)
{
    SIM_TRY(sim_ready());
    const struct object *object = object_of(handle, SIM_TEXTURE);
    SIM_REQUIRE(texture && object);
    *texture = object->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject handle)
{
    SIM_TRY(sim_ready());
    const struct object *object = object_of(handle, SIM_TEXTURE);
    SIM_REQUIRE(view && object);
    *view = object->view;
    return CUDA_SUCCESS;
}

/* A surface needs an array that was made for surfaces. */
CUresult cuSurfObjectCreate(CUsurfObject *handle, const CUDA_RESOURCE_DESC *resource)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(handle && resource);
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(resource->resType == CU_RESOURCE_TYPE_ARRAY);
    SIM_TRY(resource_check(resource));
    SIM_REQUIRE(resource->res.array.hArray->descriptor.Flags & ARRAY_SURFACE);
    return object_make(handle, SIM_SURFACE, resource, NULL, NULL);
}

CUresult cuSurfObjectDestroy(CUsurfObject handle)
{
    return object_destroy(handle, SIM_SURFACE);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject handle)
{
    SIM_TRY(sim_ready());
    const struct object *object = object_of(handle, SIM_SURFACE);
    SIM_REQUIRE(resource && object);
    *resource = object->resource;
    return CUDA_SUCCESS;
}
