/* vmm_share.c - physical memory and multicast objects that go to other processes, through descriptors or
 * fabric handles. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/memory/shared_fabric.h"
#include "simgpu/memory/vmm.h"

bool handle_share(struct handle *handle)
{
    if (handle->is_device && !handle->share)
        handle->share = device_share_begin(handle->gpu, handle->bytes);
    return !handle->is_device || handle->share;
}

/* What another process is told of the memory. */
static struct shared_descriptor described(const struct handle *handle)
{
    struct shared_descriptor what = {.magic = SHARED_DESCRIPTOR_MAGIC,
                                     .kind = handle->multicast ? SHARED_DESCRIPTOR_MULTICAST
                                                               : SHARED_DESCRIPTOR_MEMORY,
                                     .gpu = handle->gpu,
                                     .is_device = handle->is_device,
                                     .bytes = handle->bytes,
                                     .properties = handle->properties};
    if (handle->share) {
        what.share_index = handle->share->index;
        what.share_generation = handle->share->generation;
    }
    return what;
}

/* The same handle each time. */
static CUresult export_fabric(unsigned char *fabric, struct handle *handle)
{
    const struct shared_descriptor what = described(handle);
    if (handle->fabric < 0)
        handle->fabric = shared_fabric_make(&what, handle->fd);
    if (handle->fabric < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    shared_fabric_name(handle->fabric, fabric);
    return CUDA_SUCCESS;
}

static CUresult export_descriptor(int *fd, const struct handle *handle)
{
    const struct shared_descriptor what = described(handle);
    int made = shared_descriptor_make(&what, handle->fd, handle->share ? handle->share->token : -1);
    if (made < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *fd = made;
    return CUDA_SUCCESS;
}

static CUresult export(void *shareable, struct handle *handle, CUmemAllocationHandleType type)
{
    SIM_REQUIRE(handle && handle->references > 0);
    SIM_REQUIRE((unsigned)handle->properties.requestedHandleTypes & (unsigned)type);
    if (!handle_share(handle))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return type == CU_MEM_HANDLE_TYPE_FABRIC ? export_fabric(shareable, handle)
                                             : export_descriptor(shareable, handle);
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle value,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(shareable && flags == 0);
    SIM_TRY(shared_handle_type_check(type));
    pthread_mutex_lock(&vmm_lock);
    CUresult result = export(shareable, handle_of(value), type);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

/* The ordinal here of a GPU of the machine; -1 when this process does not see it. */
static CUdevice ordinal_of(unsigned gpu)
{
    for (unsigned ordinal = 0; ordinal < simulator.device_count; ordinal++)
        if (simulator.visible[ordinal] == gpu)
            return (CUdevice)ordinal;
    return -1;
}

static CUresult import_read(const struct shared_descriptor *what, int memory, struct handle **handle_out)
{
    struct stat file;
    if (what->kind == SHARED_DESCRIPTOR_MULTICAST) {
        *handle_out = multicast_join(memory);
        return *handle_out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    SIM_REQUIRE(what->kind == SHARED_DESCRIPTOR_MEMORY && fstat(memory, &file) == 0 &&
                (uint64_t)file.st_size == what->bytes);
    CUdevice ordinal = ordinal_of(what->gpu);
    if (what->is_device && ordinal < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct handle *handle = calloc(1, sizeof(*handle));
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle->properties = what->properties;
    handle->is_device = what->is_device;
    handle->gpu = what->gpu;
    handle->bytes = what->bytes;
    handle->fabric = -1;
    handle->references = 1;
    if (what->is_device) {
        handle->properties.location.id = ordinal;
        handle->share = device_share_join(what->gpu, what->share_index, what->share_generation);
    }
    if (what->is_device && !handle->share) {
        free(handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle->fd = memory;
    atomic_store(&handle->kind, SIM_HANDLE);
    *handle_out = handle;
    return CUDA_SUCCESS;
}

CUresult handle_import(int fd, struct handle **handle)
{
    struct shared_descriptor what;
    int memory = -1, token = -1;
    SIM_REQUIRE(shared_descriptor_read(fd, &what, &memory, &token));
    CUresult result = import_read(&what, memory, handle);
    if (result != CUDA_SUCCESS)
        close(memory);
    if (token >= 0)
        close(token); /* it held the memory until we did */
    return result;
}

static CUresult import_fabric(const unsigned char *fabric, struct handle **handle)
{
    struct shared_descriptor what;
    int memory = -1;
    SIM_REQUIRE(fabric && shared_fabric_read(fabric, &what, &memory));
    CUresult result = import_read(&what, memory, handle);
    if (result != CUDA_SUCCESS)
        close(memory);
    return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *value, void *shareable,
                                        CUmemAllocationHandleType type)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value);
    SIM_TRY(shared_handle_type_check(type));
    struct handle *handle;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        SIM_TRY(import_fabric(shareable, &handle));
    else
        SIM_TRY(
            handle_import((int)(intptr_t)shareable, &handle)); /* the descriptor is the pointer (cuda.h) */
    *value = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}
