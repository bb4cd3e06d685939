/* memory.c - linear, pitched, managed and host memory, and what is known of an address. */
#include "simgpu/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "simgpu/arrays/tiles.h"
#include "simgpu/device/profile.h"
#include "simgpu/driver/sim.h"
#include "simgpu/graph/capture.h"
#include "simgpu/memory/blocks.h"
#include "simgpu/memory/heap.h"
#include "simgpu/memory/in_use.h"
#include "simgpu/memory/managed.h"
#include "simgpu/memory/pool.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/time/execution.h"

#define PITCH_BYTES 512u
#define PAGE_BYTES 4096u

enum { HOST_ALLOC_FLAGS = 7, HOST_REGISTER_FLAGS = 15, MANAGED_KINDS = 1u << MEMORY_MANAGED };

/* --- Taking and giving back ------------------------------------------------------------------------ */

CUresult memory_place(CUcontext context, unsigned gpu, enum memory_kind kind, uint64_t bytes, unsigned flags,
                      void *owner, uint64_t *address)
{
    struct memory_allocation like = {
        .bytes = bytes, .context = context, .kind = kind, .gpu = gpu, .flags = flags, .owner = owner};
    *address = heap_allocate(&like);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult memory_take(CUcontext context, unsigned gpu, enum memory_kind kind, uint64_t bytes, unsigned flags,
                     uint64_t *address)
{
    if (!blocks_take(gpu, kind, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = memory_place(context, gpu, kind, bytes, flags, NULL, address);
    if (result != CUDA_SUCCESS)
        blocks_give_back(gpu, kind, bytes);
    return result;
}

/* Whether another process goes on with what is freed here: it then has the bytes too, and the addresses are
 * not used again. */
static bool goes_on_elsewhere(const struct memory_allocation *allocation)
{
    return allocation->share && !device_share_leave(allocation->share, true);
}

bool memory_give_back(uint64_t address, struct memory_allocation *allocation)
{
    bool elsewhere = heap_find(address, allocation) && allocation->address == address &&
                     allocation->kind == MEMORY_DEVICE && goes_on_elsewhere(allocation);
    if (elsewhere)
        heap_abandon(address);
    if (!heap_free(address, MEMORY_LINEAR_KINDS | 1u << MEMORY_POOL, allocation))
        return false;
    managed_gone(allocation);
    if (allocation->kind != MEMORY_POOL && !elsewhere)
        blocks_give_back(allocation->gpu, allocation->kind, allocation->bytes);
    return true;
}

static bool is_of_context(struct memory_allocation *allocation, void *context)
{
    if (allocation->context != context || allocation->kind == MEMORY_POOL)
        return false;
    allocation->is_abandoned = goes_on_elsewhere(allocation);
    if (!allocation->is_abandoned)
        blocks_give_back(allocation->gpu, allocation->kind, allocation->bytes);
    return true;
}

static void host_unmap(const struct memory_allocation *allocation)
{
    munmap((void *)(uintptr_t)allocation->address,
           (allocation->bytes + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1));
}

static void range_unmap(const struct memory_allocation *allocation)
{
    if (allocation->kind == MEMORY_HOST)
        host_unmap(allocation);
    else if (allocation->kind == MEMORY_EXTERNAL)
        external_unmap(allocation);
    else if (allocation->kind == MEMORY_IPC)
        ipc_close(allocation);
}

/* Its host memory goes too, and registrations end. */
void memory_give_back_context(CUcontext context)
{
    struct memory_allocation allocation;
    managed_gone_context(context);
    heap_free_each(is_of_context, context);
    tiles_drop_context(context);
    while (ranges_find_context(context, &allocation))
        if (ranges_remove(allocation.address, &allocation))
            range_unmap(&allocation);
}

bool memory_find(uint64_t address, struct memory_allocation *allocation)
{
    if (heap_find(address, allocation))
        return allocation->kind != MEMORY_ARRAY;
    return ranges_find(address, allocation);
}

static bool is_out_of_reach(const struct memory_allocation *allocation, CUdevice device)
{
    return allocation->kind == MEMORY_MAPPED && !constant_whole(SIM_REACH_ALL) &&
           !(allocation->reached_by >> device & 1);
}

/* Any device may be meant. */
#define WHICHEVER (-1)

static bool is_accessible(CUdevice device, uint64_t address, uint64_t bytes)
{
    /* Mappings and pool memory may lie side by side, so go on where one ends. */
    while (bytes > 0) {
        struct memory_allocation allocation;
        if (!memory_find(address, &allocation))
            return false;
        if (allocation.kind == MEMORY_MULTICAST)
            return false;
        if (allocation.kind == MEMORY_MAPPED && allocation.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return false; /* mapped, but cuMemSetAccess did not allow it */
        if (device != WHICHEVER && is_out_of_reach(&allocation, device))
            return false;
        if (allocation.kind == MEMORY_GRAPH && !graph_memory_is_accessible(&allocation))
            return false;
        uint64_t left = allocation.address + allocation.bytes - address;
        if (left >= bytes)
            return true;
        address += left;
        bytes -= left;
    }
    return true;
}

bool memory_is_accessible(uint64_t address, uint64_t bytes)
{
    return is_accessible(WHICHEVER, address, bytes);
}

bool memory_is_reachable(CUdevice device, uint64_t address, uint64_t bytes)
{
    return is_accessible(device, address, bytes);
}

/* --- Linear, pitched, managed ---------------------------------------------------------------------- */

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0);
    SIM_TRY(context_current(&context));
    SIM_TRY(capture_unsafe());
    uint64_t address;
    SIM_TRY(memory_take(context, context->gpu, MEMORY_DEVICE, bytes, 0, &address));
    *pointer = address;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height,
                            unsigned int element_bytes)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && pitch && width_bytes > 0 && height > 0);
    SIM_REQUIRE(element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
    SIM_TRY(context_current(&context));
    SIM_TRY(capture_unsafe());
    size_t row_bytes, bytes;
    SIM_REQUIRE(!__builtin_add_overflow(width_bytes, PITCH_BYTES - 1, &row_bytes));
    row_bytes &= ~(size_t)(PITCH_BYTES - 1);
    if (__builtin_mul_overflow(row_bytes, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address;
    SIM_TRY(memory_take(context, context->gpu, MEMORY_DEVICE, bytes, 0, &address));
    *pointer = address;
    *pitch = row_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0);
    SIM_REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
    SIM_TRY(context_current(&context));
    SIM_TRY(capture_unsafe());
    uint64_t address;
    SIM_TRY(memory_take(context, context->gpu, MEMORY_MANAGED, bytes, flags, &address));
    *pointer = address;
    return CUDA_SUCCESS;
}

/* Driver API reference: cuMemFree may synchronise. It has no need to where the block stays mapped. */
static void wait_as_free_does(CUcontext context, const struct memory_allocation *allocation)
{
    bool has_block = allocation->bytes > HEAP_PIECE_BYTES;
    if (constant_whole(has_block ? SIM_FREE_BLOCK_WAITS : SIM_FREE_WAITS))
        context_wait(context);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    SIM_TRY(capture_unsafe());
    if (pointer == 0)
        return CUDA_SUCCESS;
    struct memory_allocation allocation;
    SIM_REQUIRE(memory_find(pointer, &allocation) && allocation.address == pointer);
    if (allocation.kind == MEMORY_POOL) {
        wait_as_free_does(context, &allocation);
        return pool_free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (allocation.kind == MEMORY_EXTERNAL) {
        wait_as_free_does(allocation.context, &allocation);
        SIM_REQUIRE(ranges_remove(pointer, &allocation));
        external_unmap(&allocation);
        return CUDA_SUCCESS;
    }
    if (allocation.kind == MEMORY_GRAPH) {
        wait_as_free_does(context, &allocation);
        return graph_memory_free_at(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    SIM_REQUIRE(allocation.kind == MEMORY_DEVICE || allocation.kind == MEMORY_MANAGED);
    wait_as_free_does(allocation.context, &allocation);
    if (allocation.bytes > HEAP_PIECE_BYTES)
        in_use_gone(allocation.address, allocation.bytes);
    return memory_give_back(pointer, &allocation) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Either figure may be left out (seen with drivers 575 to 590). */
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_TRY(context_current(&context));
    uint64_t total = device_shape(context->gpu)->total_bytes, used = device_used_bytes(context->gpu);
    if (total_bytes)
        *total_bytes = total;
    if (free_bytes)
        *free_bytes = total > used ? total - used : 0;
    return CUDA_SUCCESS;
}

/* --- Host memory ----------------------------------------------------------------------------------- */

static CUresult host_take(void **pointer, size_t bytes, unsigned flags)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    SIM_TRY(capture_unsafe());
    void *memory = mmap(NULL, (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ranges_add(&(struct memory_allocation){
        .address = (uint64_t)(uintptr_t)memory,
        .bytes = bytes,
        .context = context,
        .kind = MEMORY_HOST,
        .gpu = context->gpu,
        .flags = flags,
    });
    *pointer = memory;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0 && (flags & ~(unsigned)HOST_ALLOC_FLAGS) == 0);
    return host_take(pointer, bytes, flags);
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0);
    return host_take(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
    SIM_TRY(sim_ready());
    if (!pointer)
        return CUDA_SUCCESS;
    struct memory_allocation allocation;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    SIM_REQUIRE(ranges_find(address, &allocation) && allocation.address == address &&
                allocation.kind == MEMORY_HOST && !allocation.owner);
    SIM_TRY(capture_unsafe());
    context_wait(allocation.context);
    SIM_REQUIRE(ranges_remove(address, &allocation));
    host_unmap(&allocation);
    return CUDA_SUCCESS;
}

static CUresult host_register(void *pointer, size_t bytes, unsigned flags)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0 && (flags & ~(unsigned)HOST_REGISTER_FLAGS) == 0);
    SIM_TRY(context_current(&context));
    SIM_TRY(capture_unsafe());
    if (!constant_whole(SIM_HOST_REGISTER))
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    if (ranges_overlap(address, bytes))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    /* Fail for addresses where no memory is, as pinning does. */
    uint64_t first = address & ~(uint64_t)(PAGE_BYTES - 1);
    unsigned char resident;
    for (uint64_t page = first; page < address + bytes; page += PAGE_BYTES)
        if (mincore((void *)(uintptr_t)page, PAGE_BYTES, &resident) < 0 && errno == ENOMEM)
            return CUDA_ERROR_INVALID_VALUE;
    cost_of_registering(address, bytes);
    ranges_add(&(struct memory_allocation){
        .address = address,
        .bytes = bytes,
        .context = context,
        .kind = MEMORY_REGISTERED,
        .gpu = context->gpu,
        .flags = flags,
    });
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    return host_register(pointer, bytes, flags);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    return host_register(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void *pointer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer);
    struct memory_allocation allocation;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    if (!ranges_find(address, &allocation) || allocation.address != address ||
        allocation.kind != MEMORY_REGISTERED)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    SIM_TRY(capture_unsafe());
    context_wait(allocation.context);
    ranges_remove(address, &allocation);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_pointer, void *pointer, unsigned int flags)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(device_pointer && pointer && flags == 0);
    SIM_TRY(context_current(&context));
    struct memory_allocation allocation;
    SIM_REQUIRE(ranges_find((uint64_t)(uintptr_t)pointer, &allocation) &&
                (allocation.kind == MEMORY_HOST || allocation.kind == MEMORY_REGISTERED));
    *device_pointer = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags && pointer);
    struct memory_allocation allocation;
    SIM_REQUIRE(ranges_find((uint64_t)(uintptr_t)pointer, &allocation) && allocation.kind == MEMORY_HOST);
    *flags = allocation.flags | 2; /* CU_MEMHOSTALLOC_DEVICEMAP is implied by unified addressing */
    return CUDA_SUCCESS;
}

/* --- What is known of an address ------------------------------------------------------------------- */

bool memory_is_synchronous(CUcontext context, uint64_t address)
{
    struct memory_allocation allocation;
    return context->flags & CU_CTX_SYNC_MEMOPS ||
           (memory_find(address, &allocation) && allocation.is_synchronous);
}

/* Either out-parameter may be NULL. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    struct memory_allocation allocation;
    if (!memory_find(pointer, &allocation))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = allocation.address;
    if (bytes)
        *bytes = allocation.bytes;
    return CUDA_SUCCESS;
}

static bool is_host(const struct memory_allocation *allocation)
{
    return allocation->kind == MEMORY_HOST || allocation->kind == MEMORY_REGISTERED ||
           (allocation->kind == MEMORY_POOL && allocation->flags == POOL_ON_HOST);
}

static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    default:
        return 0;
    }
}

static unsigned device_ordinal(unsigned gpu)
{
    unsigned ordinal = 0;
    while (ordinal < simulator.device_count && simulator.visible[ordinal] != gpu)
        ordinal++;
    return ordinal;
}

/* Memory of cuMemCreate is for RDMA only if the program asked for that. */
bool memory_is_for_rdma(const struct memory_allocation *allocation)
{
    switch (allocation->kind) {
    case MEMORY_DEVICE:
        return profile_gpu_value(allocation->gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
    case MEMORY_MAPPED:
        return ((const struct handle *)allocation->owner)->properties.allocFlags.gpuDirectRDMACapable &&
               profile_gpu_value(allocation->gpu,
                                 CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    default:
        return false;
    }
}

/* False where the address has no such attribute: then `*value` is what says so. */
static bool attribute_value(CUpointer_attribute attribute, const struct memory_allocation *allocation,
                            uint64_t address, uint64_t *value)
{
    *value = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        /* CUDA programming guide, stream-ordered allocator: memory of a pool goes with no context (seen as
         * INVALID_VALUE: rapidsai/kvikio, pull request 189). */
        if (allocation->kind != MEMORY_POOL)
            *value = (uint64_t)(uintptr_t)allocation->context;
        return *value != 0;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = is_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value = address;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *value = address;
        return is_host(allocation) || allocation->kind == MEMORY_MANAGED;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = allocation->id;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *value = allocation->kind == MEMORY_MANAGED ||
                 (allocation->kind == MEMORY_MODULE && allocation->flags) ||
                 (allocation->kind == MEMORY_POOL && allocation->flags == POOL_MANAGED);
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = device_ordinal(allocation->gpu);
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value = allocation->address;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value = allocation->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *value = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *value = allocation->kind == MEMORY_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *value = allocation->kind == MEMORY_POOL ? (uint64_t)(uintptr_t)allocation->owner : 0;
        return allocation->kind == MEMORY_POOL;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        if (allocation->kind == MEMORY_MAPPED)
            *value = ((const struct handle *)allocation->owner)->properties.requestedHandleTypes;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *value = memory_is_for_rdma(allocation);
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *value = allocation->is_synchronous;
        return true;
    default:
        return true;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    SIM_TRY(sim_ready());
    size_t bytes = attribute_bytes(attribute);
    SIM_REQUIRE(data && bytes > 0);
    struct memory_allocation allocation;
    uint64_t value;
    SIM_REQUIRE(memory_find(pointer, &allocation));
    SIM_REQUIRE(attribute_value(attribute, &allocation, pointer, &value));
    memcpy(data, &value, bytes);
    return CUDA_SUCCESS;
}

/* What cuPointerGetAttributes() answers about an address that nothing of CUDA's is at, such as memory of malloc (seen with drivers
 * 575 to 590; the driver API reference says -2 for the ordinal). False: it leaves the output alone. */
static bool unknown_value(CUpointer_attribute attribute, uint64_t address, uint64_t *value)
{
    *value = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = (uint64_t)(int64_t)-1;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *value = address;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return false;
    default:
        return true;
    }
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr pointer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(count > 0 && attributes && data);
    struct memory_allocation allocation;
    bool known = memory_find(pointer, &allocation);
    for (unsigned i = 0; i < count; i++) {
        size_t bytes = attribute_bytes(attributes[i]);
        SIM_REQUIRE(bytes > 0 && data[i]);
        uint64_t value;
        bool is_told = true;
        if (known)
            attribute_value(attributes[i], &allocation, pointer, &value);
        else
            is_told = unknown_value(attributes[i], pointer, &value);
        if (is_told)
            memcpy(data[i], &value, bytes);
    }
    return CUDA_SUCCESS;
}

/* Not for memory of cuMemCreate (seen with drivers 575 to 590); UCX tells no difference between that and a pool's. The call
 * waits for copies that were begun before (driver API reference). */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    SIM_TRY(sim_ready());
    struct memory_allocation allocation;
    unsigned is_on;
    SIM_REQUIRE(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    SIM_REQUIRE(memory_find(pointer, &allocation));
    if (allocation.kind == MEMORY_MAPPED || allocation.kind == MEMORY_MULTICAST ||
        allocation.kind == MEMORY_POOL)
        return CUDA_ERROR_NOT_SUPPORTED;
    memcpy(&is_on, value, sizeof(is_on));
    if (heap_set_synchronous(pointer, is_on != 0) && allocation.context)
        context_wait(allocation.context);
    return CUDA_SUCCESS;
}
