/* hook_external.c - memory of other APIs (Vulkan, OpenGL by dma-buf, NvSciBuf). The process that imports it is
 * charged by the size that it names. Buffers and arrays mapped onto it take nothing more.
 *
 * Where the descriptor is a file of its own, the memory has a name, and the session is charged for it once, however
 * often its processes import it, as for what cuMemExportToShareableHandle gave (hook_joint.c). Where all of the driver's
 * descriptors are one file, each import is charged, also in the maker's session: nothing tells such memory from
 * another API's, which nobody else is charged for. */
#include "intercept/memory/road.h"
#include "intercept/memory/share_name.h"

static uint64_t name_of(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memory)
{
    bool is_its_own = false;
    uint64_t name = 0;
    if (memory && (memory->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
                   memory->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD))
        name = share_name_of_file(memory->handle.fd, &is_its_own);
    return is_its_own ? name : 0;
}

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    return allocate(&(struct allocation){
        .way = WAY_cuImportExternalMemory,
        .is_uncharged = !memory || !description || !description->size,
        .bytes = description ? description->size : 0,
        .got = memory,
        .external = {.descriptor = description, .name = name_of(description)},
    });
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    return release_allocation(RELEASE_cuDestroyExternalMemory, (uint64_t)(uintptr_t)memory, NULL);
}
