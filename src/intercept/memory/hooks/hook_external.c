/* hook_external.c - memory of other APIs (Vulkan, OpenGL by dma-buf, NvSciBuf). The process that imports it is
 * charged by the size that it names, since nobody else in the session was charged for it. Buffers and arrays mapped
 * onto it take nothing more. A descriptor of cuMemExportToShareableHandle is charged like any other, so its memory is
 * charged twice in its maker's session: its name may be that of all descriptors of the driver (hook_joint.c), and
 * that must not make memory of other APIs free. */
#include "intercept/memory/road.h"

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    return allocate(&(struct allocation){
        .way = WAY_cuImportExternalMemory,
        .is_uncharged = !memory || !description || !description->size,
        .bytes = description ? description->size : 0,
        .got = memory,
        .external = description,
    });
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    return release_allocation(RELEASE_cuDestroyExternalMemory, (uint64_t)(uintptr_t)memory, NULL);
}
