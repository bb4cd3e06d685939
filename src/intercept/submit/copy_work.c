#include "intercept/submit/copy_work.h"

#include <stdint.h>

static CUgraphNodeParams work_of(CUDA_MEMCPY3D copy)
{
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy.copyParams = copy};
}

CUgraphNodeParams copy_work_line(struct copy_end to, struct copy_end from, size_t bytes)
{
    return work_of((CUDA_MEMCPY3D){.srcMemoryType = from.type,
                                   .srcHost = (const void *)(uintptr_t)from.address,
                                   .srcDevice = from.address,
                                   .dstMemoryType = to.type,
                                   .dstHost = (void *)(uintptr_t)to.address,
                                   .dstDevice = to.address,
                                   .WidthInBytes = bytes,
                                   .Height = 1,
                                   .Depth = 1});
}

CUgraphNodeParams copy_work_rows(const CUDA_MEMCPY2D *copy)
{
    if (!copy)
        return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return work_of((CUDA_MEMCPY3D){.srcXInBytes = copy->srcXInBytes,
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
                                   .Height = copy->Height,
                                   .Depth = 1});
}

CUgraphNodeParams copy_work_box(const CUDA_MEMCPY3D *copy)
{
    return copy ? work_of(*copy) : (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY};
}

CUgraphNodeParams copy_work_fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element_bytes,
                                 size_t width, size_t height)
{
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET,
                               .memset = {.dst = to,
                                          .pitch = pitch,
                                          .value = value,
                                          .elementSize = element_bytes,
                                          .width = width,
                                          .height = height}};
}

CUgraphNodeParams copy_work_of_node(const CUgraphNodeParams *params)
{
    return params ? *params : (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY};
}

CUgraphNodeParams copy_work_of_fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    if (!fill)
        return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return copy_work_fill(fill->dst, fill->pitch, fill->value, fill->elementSize, fill->width, fill->height);
}

CUDA_MEMSET_NODE_PARAMS copy_work_fill_of(const CUgraphNodeParams *work)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = work->memset.dst,
                                     .pitch = work->memset.pitch,
                                     .value = work->memset.value,
                                     .elementSize = work->memset.elementSize,
                                     .width = work->memset.width,
                                     .height = work->memset.height};
}

CUcontext *copy_work_context(CUgraphNodeParams *work)
{
    return work->type == CU_GRAPH_NODE_TYPE_MEMCPY   ? &work->memcpy.copyCtx
           : work->type == CU_GRAPH_NODE_TYPE_MEMSET ? &work->memset.ctx
                                                     : NULL;
}

CUgraphNodeParams copy_work_in(CUgraphNodeParams work, CUcontext context)
{
    CUcontext *named = copy_work_context(&work);
    if (named)
        *named = context;
    return work;
}

bool copy_work_is_line(const CUgraphNodeParams *work)
{
    const CUDA_MEMCPY3D *copy = &work->memcpy.copyParams;
    bool is_offset =
        copy->srcXInBytes || copy->srcY || copy->srcZ || copy->dstXInBytes || copy->dstY || copy->dstZ;
    return work->type == CU_GRAPH_NODE_TYPE_MEMCPY && copy->Height == 1 && copy->Depth == 1 && !is_offset &&
           copy->srcMemoryType != CU_MEMORYTYPE_ARRAY && copy->dstMemoryType != CU_MEMORYTYPE_ARRAY;
}
