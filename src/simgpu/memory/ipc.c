/* ipc.c - memory of cuMemAlloc that another process opens by a handle of 64 bytes.
 *
 * The handle says where the bytes lie: blocks of the exporter's heap, which the importer reaches as a file of
 * the exporter's process while that lives. The importer keeps what it has opened, whatever becomes of the
 * exporter. As on a card, whole blocks are mapped, so that neighbours of small allocations can be seen. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/memory/heap.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

#define IPC_MAGIC 0x67707569u
#define IPC_LAZY_PEER_ACCESS 1u /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which must be given */

struct ipc_memory {
    uint32_t magic; /* IPC_MAGIC */
    int32_t pid, fd;
    uint16_t gpu, share_index;
    uint32_t first_block, block_count;
    uint64_t inside_bytes, bytes;
    uint64_t share_generation;
    uint64_t inode; /* of `fd`, as `pid` may be another process by then */
};
_Static_assert(sizeof(struct ipc_memory) <= sizeof(CUipcMemHandle), "a handle's 64 bytes");

/* What this process has opened. */
struct opened {
    LIST_ENTRY(opened) entry;
    struct device_share *share;
    CUcontext context; /* that opened it */
    int32_t pid;       /* whose it is */
    uint64_t pointer, address, mapped_bytes;
    unsigned count; /* opened so often */
};

static pthread_mutex_t ipc_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, opened) all_opened = LIST_HEAD_INITIALIZER(all_opened);

static CUresult get_handle(struct ipc_memory *handle, CUdeviceptr pointer)
{
    struct memory_allocation allocation;
    struct heap_place place;
    struct stat file;
    SIM_REQUIRE(memory_find(pointer, &allocation) && allocation.kind == MEMORY_DEVICE);
    SIM_REQUIRE(heap_place_of(allocation.address, &place) && fstat(place.fd, &file) == 0);
    if (!allocation.share) {
        allocation.share = device_share_begin(allocation.gpu, allocation.bytes);
        if (!allocation.share)
            return CUDA_ERROR_OUT_OF_MEMORY;
        heap_set_share(allocation.address, allocation.share);
    }
    *handle = (struct ipc_memory){.magic = IPC_MAGIC,
                                  .pid = (int32_t)getpid(),
                                  .fd = place.fd,
                                  .gpu = (uint16_t)allocation.gpu,
                                  .share_index = (uint16_t)allocation.share->index,
                                  .first_block = place.first_block,
                                  .block_count = place.block_count,
                                  .inside_bytes = place.inside_bytes,
                                  .bytes = allocation.bytes,
                                  .share_generation = allocation.share->generation,
                                  .inode = (uint64_t)file.st_ino};
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle_out, CUdeviceptr pointer)
{
    CUcontext context;
    struct ipc_memory handle;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(handle_out && pointer);
    SIM_TRY(context_current(&context));
    pthread_mutex_lock(&ipc_lock);
    CUresult result = get_handle(&handle, pointer);
    pthread_mutex_unlock(&ipc_lock);
    if (result != CUDA_SUCCESS)
        return result;
    memset(handle_out, 0, sizeof(*handle_out));
    memcpy(handle_out, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

/* Map the exporter's blocks; MAP_FAILED when it is gone. */
static void *blocks_map(const struct ipc_memory *handle)
{
    char path[64];
    struct stat file;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)handle->pid, (int)handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return MAP_FAILED;
    void *memory = MAP_FAILED;
    if (fstat(fd, &file) == 0 && (uint64_t)file.st_ino == handle->inode)
        memory =
            mmap(NULL, (size_t)handle->block_count << HEAP_BLOCK_BITS, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_NORESERVE, fd, (off_t)((uint64_t)handle->first_block << HEAP_BLOCK_BITS));
    close(fd);
    if (memory != MAP_FAILED)
        madvise(memory, (size_t)handle->block_count << HEAP_BLOCK_BITS, MADV_DONTFORK);
    return memory;
}

/* Only one context of each device here may open memory of one device of another process (driver API
 * reference). */
static bool is_opened_elsewhere(const struct ipc_memory *handle, CUcontext context)
{
    const struct opened *opened;
    LIST_FOREACH (opened, &all_opened, entry)
        if (opened->pid == handle->pid && opened->share->gpu == handle->gpu && opened->context != context &&
            opened->context->gpu == context->gpu)
            return true;
    return false;
}

static CUresult open_handle(const struct ipc_memory *handle, CUcontext context, CUdeviceptr *pointer)
{
    if (is_opened_elsewhere(handle, context))
        return CUDA_ERROR_MAP_FAILED;
    struct opened *opened;
    LIST_FOREACH (opened, &all_opened, entry)
        if (opened->context == context && opened->share->index == handle->share_index &&
            opened->share->generation == handle->share_generation && opened->share->gpu == handle->gpu) {
            opened->count++;
            *pointer = opened->pointer;
            return CUDA_SUCCESS;
        }
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CUDA_ERROR_OUT_OF_MEMORY;
    opened->share = device_share_join(handle->gpu, handle->share_index, handle->share_generation);
    void *memory = opened->share ? blocks_map(handle) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        if (opened->share)
            device_share_leave(opened->share, false);
        free(opened);
        return CUDA_ERROR_INVALID_VALUE;
    }
    opened->address = (uint64_t)(uintptr_t)memory;
    opened->mapped_bytes = (uint64_t)handle->block_count << HEAP_BLOCK_BITS;
    opened->pointer = opened->address + handle->inside_bytes;
    opened->count = 1;
    opened->context = context;
    opened->pid = handle->pid;
    LIST_INSERT_HEAD(&all_opened, opened, entry);
    ranges_add(&(struct memory_allocation){.address = opened->pointer,
                                           .bytes = handle->bytes,
                                           .context = context,
                                           .kind = MEMORY_IPC,
                                           .gpu = handle->gpu,
                                           .owner = opened});
    *pointer = opened->pointer;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle given, unsigned int flags)
{
    CUcontext context;
    struct ipc_memory handle;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && flags == IPC_LAZY_PEER_ACCESS);
    SIM_TRY(context_current(&context));
    memcpy(&handle, &given, sizeof(handle));
    SIM_REQUIRE(handle.magic == IPC_MAGIC && handle.block_count > 0 && handle.bytes > 0 &&
                handle.inside_bytes + handle.bytes <= (uint64_t)handle.block_count << HEAP_BLOCK_BITS);
    if (handle.pid == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* a process does not open its own memory */
    bool visible = false;
    for (unsigned ordinal = 0; ordinal < simulator.device_count; ordinal++)
        visible |= simulator.visible[ordinal] == handle.gpu;
    if (!visible)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&ipc_lock);
    CUresult result = open_handle(&handle, context, pointer);
    pthread_mutex_unlock(&ipc_lock);
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

static void opened_drop(struct opened *opened)
{
    LIST_REMOVE(opened, entry);
    munmap((void *)(uintptr_t)opened->address, opened->mapped_bytes);
    device_share_leave(opened->share, false);
    free(opened);
}

/* The context ends, and the range is out of the table already. */
void ipc_close(const struct memory_allocation *range)
{
    pthread_mutex_lock(&ipc_lock);
    opened_drop(range->owner);
    pthread_mutex_unlock(&ipc_lock);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    struct memory_allocation range;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(ranges_find(pointer, &range) && range.kind == MEMORY_IPC && range.address == pointer);
    context_wait(range.context);
    pthread_mutex_lock(&ipc_lock);
    bool found = ranges_find(pointer, &range) && range.kind == MEMORY_IPC && range.address == pointer;
    struct opened *opened = range.owner;
    if (found && --opened->count == 0 && ranges_remove(pointer, &range))
        opened_drop(opened);
    pthread_mutex_unlock(&ipc_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
