/* vmm.c - see vmm.h. */
#include "vmm.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* What goes over the socket: a descriptor's number in the process of that pid, or a fabric handle. */
struct shared_memory {
    CUmemAllocationHandleType type;
    pid_t pid;
    int fd;
    struct fabric_handle fabric;
};

CUmemAllocationProp vmm_properties(const struct wishes *wishes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = wishes->fallback,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    if (wishes->rdma && device_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        properties.allocFlags.gpuDirectRDMACapable = 1;
    if (wishes->fabric && device_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED))
        properties.requestedHandleTypes =
            CU_MEM_HANDLE_TYPE_FABRIC | (wishes->fabric_beside ? wishes->fallback : 0);
    return properties;
}

CUresult vmm_create(CUmemGenericAllocationHandle *handle, size_t bytes, const struct wishes *wishes,
                    CUmemAllocationProp *properties)
{
    CUresult result = cuMemCreate(handle, bytes, properties, 0);
    bool is_refused = result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED;
    if (!is_refused || !(properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC))
        return result;
    properties->requestedHandleTypes = wishes->fallback;
    return cuMemCreate(handle, bytes, properties, 0);
}

size_t vmm_granularity(const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags which)
{
    size_t bytes;
    MUST(cuMemGetAllocationGranularity(&bytes, properties, which));
    return bytes;
}

void vmm_map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemMap(at, bytes, 0, handle, 0));
    MUST(cuMemSetAccess(at, bytes, &access, 1));
}

void vmm_send(int socket, CUmemGenericAllocationHandle handle, const CUmemAllocationProp *properties)
{
    struct shared_memory shared = {.type = CU_MEM_HANDLE_TYPE_FABRIC, .pid = getpid(), .fd = -1};
    if (properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        shared.type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        MUST(cuMemExportToShareableHandle(&shared.fd, handle, shared.type, 0));
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* who takes it need not be our descendant */
    } else {
        MUST(cuMemExportToShareableHandle(&shared.fabric, handle, shared.type, 0));
    }
    send_bytes(socket, &shared, sizeof(shared));
    char taken;
    receive_bytes(socket, &taken, 1);
    if (shared.fd >= 0)
        close(shared.fd);
}

CUmemGenericAllocationHandle vmm_receive(int socket)
{
    struct shared_memory shared;
    CUmemGenericAllocationHandle handle;
    receive_bytes(socket, &shared, sizeof(shared));
    if (shared.type == CU_MEM_HANDLE_TYPE_FABRIC) {
        MUST(cuMemImportFromShareableHandle(&handle, &shared.fabric, shared.type));
    } else {
        int process = (int)syscall(SYS_pidfd_open, shared.pid, 0);
        int fd = (int)syscall(SYS_pidfd_getfd, process, shared.fd, 0);
        if (fd < 0)
            gallery_fail("the descriptor of process %d: %s", (int)shared.pid, strerror(errno));
        MUST(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, shared.type));
        close(fd);
        close(process);
    }
    send_bytes(socket, "t", 1);
    return handle;
}
