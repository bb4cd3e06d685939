/* hook_memory.c - linear, pitched and managed memory. */
#include "intercept/memory/road.h"

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    return allocate(&(struct allocation){
        .way = WAY_cuMemAlloc_v2, .is_uncharged = !address || !bytes, .bytes = bytes, .got = address});
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    return allocate(&(struct allocation){
        .way = WAY_cuMemAllocManaged,
        .is_uncharged = !address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST),
        .bytes = bytes,
        .got = address,
        .managed_flags = flags,
    });
}

/* How long the rows are is known only once the driver has chosen the pitch. Before that, no more is reserved than the
 * program asked for, so that what fits exactly is not refused. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes)
{
    size_t bytes;
    bool is_overflow = __builtin_mul_overflow(width, height, &bytes);
    return allocate(&(struct allocation){
        .way = WAY_cuMemAllocPitch_v2,
        .is_uncharged = !address || !pitch || !width || !height || is_overflow ||
                        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16),
        .bytes = bytes,
        .got = address,
        .pitched = {pitch, width, height, element_bytes},
    });
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    return release_allocation(RELEASE_cuMemFree_v2, address, NULL);
}
