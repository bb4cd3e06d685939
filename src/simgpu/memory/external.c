/* external.c - memory of other APIs, imported by a descriptor.
 *
 * A descriptor that cuMemExportToShareableHandle gave is device memory, counted once with its other holders.
 * Any other file that can be mapped stands for memory that is not a device's: it takes nothing of a device. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "simgpu/arrays/arrays.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/time/execution.h"

struct CUextMemory_st {
    _Atomic unsigned kind; /* SIM_EXTERNAL; structs stay (sim.h) */
    uint64_t bytes;
    unsigned gpu;
    struct handle *handle; /* of any memory: a file that is not a device's has one too */
};

/* Memory that is not a device's: a handle of its own for the file. */
static CUresult file_open(int fd, uint64_t bytes, struct handle **handle_out)
{
    struct stat file;
    SIM_REQUIRE(fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && bytes <= (uint64_t)file.st_size);
    struct handle *handle = calloc(1, sizeof(*handle));
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (!handle || own < 0) {
        free(handle);
        if (own >= 0)
            close(own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->bytes = bytes;
    handle->references = 1;
    handle->fd = own;
    atomic_store(&handle->kind, SIM_HANDLE);
    *handle_out = handle;
    return CUDA_SUCCESS;
}

/* Takes the descriptor over when it succeeds (driver API reference). */
CUresult cuImportExternalMemory(CUexternalMemory *memory_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(memory_out && descriptor && descriptor->size > 0 && (descriptor->flags & ~1u) == 0);
    SIM_TRY(context_current(&context));
    if (descriptor->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return descriptor->type >= CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32 &&
                       descriptor->type <= CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : CUDA_ERROR_INVALID_VALUE;
    int fd = descriptor->handle.fd;
    struct handle *handle = NULL;
    CUresult result = handle_import(fd, &handle);
    if (result == CUDA_SUCCESS && (handle->multicast || descriptor->size > handle->bytes)) {
        pthread_mutex_lock(&vmm_lock);
        handle->references--;
        handle_settle(handle);
        pthread_mutex_unlock(&vmm_lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS)
        SIM_TRY(file_open(fd, descriptor->size, &handle));
    CUexternalMemory memory = calloc(1, sizeof(*memory));
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->bytes = descriptor->size;
    memory->gpu = handle->is_device ? handle->gpu : context->gpu;
    memory->handle = handle;
    close(fd);
    atomic_store(&memory->kind, SIM_EXTERNAL);
    *memory_out = memory;
    return CUDA_SUCCESS;
}

static CUresult external_check(CUexternalMemory memory)
{
    SIM_TRY(sim_ready());
    return memory && atomic_load(&memory->kind) == SIM_EXTERNAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Buffers are freed with cuMemFree, before or after the memory is destroyed. */
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *descriptor)
{
    CUcontext context;
    SIM_TRY(external_check(memory));
    SIM_REQUIRE(pointer && descriptor && descriptor->flags == 0 && descriptor->size > 0);
    SIM_REQUIRE(descriptor->offset <= memory->bytes &&
                descriptor->size <= memory->bytes - descriptor->offset);
    SIM_REQUIRE(descriptor->offset % 4096 == 0);
    SIM_TRY(context_current(&context));
    void *address = mmap(NULL, descriptor->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                         memory->handle->fd, (off_t)descriptor->offset);
    if (address == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    madvise(address, descriptor->size, MADV_DONTFORK);
    pthread_mutex_lock(&vmm_lock);
    memory->handle->mappings++;
    pthread_mutex_unlock(&vmm_lock);
    ranges_add(&(struct memory_allocation){.address = (uint64_t)(uintptr_t)address,
                                           .bytes = descriptor->size,
                                           .context = context,
                                           .kind = MEMORY_EXTERNAL,
                                           .gpu = memory->gpu,
                                           .owner = memory->handle});
    *pointer = (CUdeviceptr)(uintptr_t)address;
    return CUDA_SUCCESS;
}

/* Arrays on it are destroyed with cuMipmappedArrayDestroy, before or after the memory. */
CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory memory,
                                                 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *descriptor)
{
    SIM_TRY(external_check(memory));
    SIM_REQUIRE(mipmap && descriptor && !(descriptor->arrayDesc.Flags & (ARRAY_SPARSE | ARRAY_DEFERRED)));
    return mipmap_create(mipmap, &descriptor->arrayDesc, descriptor->numLevels, memory->handle,
                         descriptor->offset);
}

void external_unmap(const struct memory_allocation *mapping)
{
    munmap((void *)(uintptr_t)mapping->address, mapping->bytes);
    struct handle *handle = mapping->owner;
    pthread_mutex_lock(&vmm_lock);
    handle->mappings--;
    handle_settle(handle);
    pthread_mutex_unlock(&vmm_lock);
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    SIM_TRY(external_check(memory));
    unsigned kind = SIM_EXTERNAL;
    if (!atomic_compare_exchange_strong(&memory->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&vmm_lock);
    memory->handle->references--;
    handle_settle(memory->handle);
    pthread_mutex_unlock(&vmm_lock);
    return CUDA_SUCCESS;
}
