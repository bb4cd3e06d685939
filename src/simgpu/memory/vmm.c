/* vmm.c - virtual memory management: addresses reserved apart from the memory that is mapped there.
 *
 * A handle's memory is a memfd, so that two mappings of one handle are the same bytes. It is the device's
 * until the last of its references and mappings goes. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

#include "simgpu/memory/in_use.h"
#include "simgpu/memory/shared_fabric.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/time/execution.h"

#define GRANULARITY_BYTES (UINT64_C(2) << 20)
struct reservation {
    LIST_ENTRY(reservation) entry;
    uint64_t address, bytes;
};

pthread_mutex_t vmm_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, reservation) reservations = LIST_HEAD_INITIALIZER(reservations);

static bool is_granular(uint64_t value)
{
    return value % GRANULARITY_BYTES == 0;
}

/* --- Addresses ------------------------------------------------------------------------------------- */

static struct reservation *reservation_find(uint64_t address, uint64_t bytes)
{
    struct reservation *reservation;
    LIST_FOREACH (reservation, &reservations, entry)
        if (address >= reservation->address && address - reservation->address < reservation->bytes &&
            bytes <= reservation->bytes - (address - reservation->address))
            return reservation;
    return NULL;
}

/* A driver without virtual memory management has the functions, and serves none. */
static CUresult vmm_ready(void)
{
    SIM_TRY(sim_ready());
    return constant_whole(SIM_VMM) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    SIM_TRY(vmm_ready());
    SIM_REQUIRE(pointer && bytes > 0 && is_granular(bytes) && flags == 0);
    SIM_REQUIRE((alignment & (alignment - 1)) == 0);
    uint64_t step = alignment > GRANULARITY_BYTES ? alignment : GRANULARITY_BYTES;
    uint64_t room;
    if (__builtin_add_overflow((uint64_t)bytes, step, &room))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *reservation = malloc(sizeof(*reservation));
    void *memory =
        mmap((void *)(uintptr_t)wanted, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!reservation || memory == MAP_FAILED) {
        free(reservation);
        if (memory != MAP_FAILED)
            munmap(memory, room);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* Cut to what is aligned. */
    uint64_t first = (uint64_t)(uintptr_t)memory, address = (first + step - 1) & ~(step - 1);
    if (address > first)
        munmap(memory, address - first);
    if (first + room > address + bytes)
        munmap((void *)(uintptr_t)(address + bytes), first + room - address - bytes);
    pthread_mutex_lock(&vmm_lock);
    *reservation = (struct reservation){.address = address, .bytes = bytes};
    LIST_INSERT_HEAD(&reservations, reservation, entry);
    pthread_mutex_unlock(&vmm_lock);
    *pointer = address;
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr pointer, size_t bytes)
{
    struct reservation *reservation = reservation_find(pointer, bytes);
    SIM_REQUIRE(reservation && reservation->address == pointer && reservation->bytes == bytes);
    SIM_REQUIRE(!ranges_overlap(pointer, bytes)); /* else something is still mapped */
    LIST_REMOVE(reservation, entry);
    munmap((void *)(uintptr_t)pointer, bytes);
    free(reservation);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0);
    pthread_mutex_lock(&vmm_lock);
    CUresult result = address_free(pointer, bytes);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

/* --- Memory ---------------------------------------------------------------------------------------- */

static CUresult properties_check(const CUmemAllocationProp *properties)
{
    SIM_REQUIRE(properties && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_check(properties->location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    SIM_TRY(vmm_ready());
    SIM_REQUIRE(granularity && option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    SIM_TRY(properties_check(properties));
    *granularity = GRANULARITY_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle_out, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    SIM_TRY(vmm_ready());
    SIM_REQUIRE(handle_out && bytes > 0 && is_granular(bytes) && flags == 0);
    SIM_TRY(properties_check(properties));
    bool is_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    SIM_TRY(shared_handle_types_check((unsigned)properties->requestedHandleTypes, is_device));
    struct handle *handle = calloc(1, sizeof(*handle));
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle->properties = *properties;
    handle->is_device = is_device;
    handle->gpu = handle->is_device ? simulator.visible[properties->location.id] : 0;
    handle->bytes = bytes;
    handle->fabric = -1;
    handle->references = 1;
    if (handle->is_device && !device_charge(handle->gpu, bytes)) {
        free(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->fd = memfd_create("simulated-gpu-memory", MFD_CLOEXEC);
    if (handle->fd < 0 || ftruncate(handle->fd, (off_t)bytes) < 0) {
        if (handle->fd >= 0)
            close(handle->fd);
        if (handle->is_device)
            device_credit(handle->gpu, bytes);
        free(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (handle->is_device)
        cost_of_bytes(SIM_CREATE_GIB_NS, bytes);
    atomic_store(&handle->kind, SIM_HANDLE);
    *handle_out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

struct handle *handle_of(CUmemGenericAllocationHandle value)
{
    struct handle *handle = (struct handle *)(uintptr_t)value;
    return handle && atomic_load(&handle->kind) == SIM_HANDLE ? handle : NULL;
}

void handle_settle(struct handle *handle)
{
    if (handle->references > 0 || handle->mappings > 0)
        return;
    atomic_store(&handle->kind, SIM_DESTROYED);
    close(handle->fd);
    if (handle->fabric >= 0)
        close(handle->fabric);
    if (handle->multicast)
        multicast_end(handle);
    if (handle->share)
        device_share_leave(handle->share, false);
    else if (handle->is_device)
        device_credit(handle->gpu, handle->bytes);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle value)
{
    SIM_TRY(sim_ready());
    pthread_mutex_lock(&vmm_lock);
    struct handle *handle = handle_of(value);
    bool referenced = handle && handle->references > 0;
    if (referenced) {
        handle->references--;
        handle_settle(handle);
    }
    pthread_mutex_unlock(&vmm_lock);
    return referenced ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle value)
{
    SIM_TRY(sim_ready());
    struct handle *handle = handle_of(value);
    SIM_REQUIRE(properties && handle && !handle->multicast);
    *properties = handle->properties;
    return CUDA_SUCCESS;
}

/* --- Mapping --------------------------------------------------------------------------------------- */

/* What a call takes that changes what so many mappings are. */
static void cost_of_mapping(uint64_t mappings)
{
    cost_hold_kernel_lock(constant_whole(SIM_MAP_NS) + mappings * constant_whole(SIM_MAP_CHUNK_NS));
}

static uint64_t count_mappings(uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes, count = 0;
    struct memory_allocation mapping;
    while (constant_whole(SIM_MAP_CHUNK_NS) && address < end && ranges_find(address, &mapping)) {
        count++;
        address = mapping.address + mapping.bytes;
    }
    return count;
}

static CUresult map(uint64_t address, uint64_t bytes, struct handle *handle)
{
    SIM_REQUIRE(handle && handle->references > 0 && bytes <= handle->bytes);
    SIM_REQUIRE(reservation_find(address, bytes) && !ranges_overlap(address, bytes));
    /* A multicast object has no memory of its own: its addresses stay without any. */
    if (!handle->multicast && mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
                                   MAP_SHARED | MAP_FIXED | MAP_NORESERVE, handle->fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    madvise((void *)(uintptr_t)address, bytes, MADV_DONTFORK);
    enum memory_kind kind = handle->is_device ? MEMORY_MAPPED : MEMORY_HOST;
    if (handle->multicast)
        kind = MEMORY_MULTICAST;
    handle->mappings++;
    ranges_add(&(struct memory_allocation){
        .address = address,
        .bytes = bytes,
        .kind = kind,
        .gpu = handle->gpu,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE,
        .owner = handle,
    });
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle value,
                  unsigned long long flags)
{
    SIM_TRY(vmm_ready());
    SIM_REQUIRE(bytes > 0 && is_granular(pointer) && is_granular(bytes) && flags == 0);
    SIM_REQUIRE(offset == 0); /* the driver takes no other (driver API reference) */
    cost_of_mapping(1);
    multicast_lock_whole(value);
    CUresult result = map(pointer, bytes, handle_of(value));
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

static bool is_mapping(const struct memory_allocation *range)
{
    return range->owner &&
           (range->kind == MEMORY_MAPPED || range->kind == MEMORY_HOST || range->kind == MEMORY_MULTICAST);
}

/* Whether [address, address + bytes) is made of whole mappings. */
static bool is_whole_mappings(uint64_t address, uint64_t bytes)
{
    while (bytes > 0) {
        struct memory_allocation mapping;
        if (!ranges_find(address, &mapping) || !is_mapping(&mapping) || mapping.address != address ||
            mapping.bytes > bytes)
            return false;
        address += mapping.bytes;
        bytes -= mapping.bytes;
    }
    return true;
}

static CUresult unmap(uint64_t address, uint64_t bytes)
{
    SIM_REQUIRE(is_whole_mappings(address, bytes));
    for (uint64_t at = address; at < address + bytes;) {
        struct memory_allocation mapping;
        ranges_remove(at, &mapping);
        in_use_gone(at, mapping.bytes);
        /* In one step, so that nobody else's mapping gets between. */
        mmap((void *)(uintptr_t)at, mapping.bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        struct handle *handle = mapping.owner;
        handle->mappings--;
        handle_settle(handle);
        at += mapping.bytes;
    }
    return CUDA_SUCCESS;
}

/* Waits for all work or for none (measure). */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pointer && bytes > 0);
    for (unsigned ordinal = 0; constant_whole(SIM_UNMAP_WAITS) && ordinal < simulator.device_count;
         ordinal++) {
        CUcontext context = context_of_gpu(simulator.visible[ordinal]);
        if (context)
            context_wait(context);
    }
    cost_of_mapping(count_mappings(pointer, bytes));
    pthread_mutex_lock(&vmm_lock);
    CUresult result = unmap(pointer, bytes);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

/* Set access for the device where the memory is, a peer of it, or the host. What one of them may do all may do
 * here, but for who may reach it at all. */
static CUresult set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access)
{
    SIM_REQUIRE(is_whole_mappings(address, bytes));
    SIM_REQUIRE(access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (access->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        SIM_TRY(device_check(access->location.id));
    for (uint64_t at = address; at < address + bytes;) {
        struct memory_allocation mapping;
        ranges_find(at, &mapping);
        const struct handle *handle = mapping.owner;
        bool is_of_peer = access->location.type == CU_MEM_LOCATION_TYPE_DEVICE && handle->is_device &&
                          simulator.visible[access->location.id] != handle->gpu;
        if (handle->properties.allocFlags.gpuDirectRDMACapable && !constant_whole(SIM_RDMA_ACCESS))
            return CUDA_ERROR_UNKNOWN;
        if (is_of_peer && !device_reaches(simulator.visible[access->location.id], handle->gpu))
            return CUDA_ERROR_NOT_SUPPORTED;
        uint64_t reached_by = mapping.reached_by;
        if (access->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
            uint64_t bit = UINT64_C(1) << access->location.id;
            reached_by =
                access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? reached_by & ~bit : reached_by | bit;
        }
        if (is_of_peer && access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            ranges_set_access(at, mapping.flags, reached_by);
            at += mapping.bytes;
            continue;
        }
        int protection = (access->flags & 1 ? PROT_READ : 0) | (access->flags & 2 ? PROT_WRITE : 0);
        if (!handle->multicast && mprotect((void *)(uintptr_t)at, mapping.bytes, protection) < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        ranges_set_access(at, access->flags, reached_by);
        at += mapping.bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    SIM_TRY(vmm_ready());
    SIM_REQUIRE(pointer && bytes > 0 && access && count > 0);
    cost_of_mapping(count * count_mappings(pointer, bytes));
    pthread_mutex_lock(&vmm_lock);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = set_access(pointer, bytes, &access[i]);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags && location);
    struct memory_allocation mapping;
    SIM_REQUIRE(ranges_find(pointer, &mapping) && is_mapping(&mapping));
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        SIM_TRY(device_check(location->id));
        const struct handle *handle = mapping.owner;
        unsigned gpu = simulator.visible[location->id];
        bool reaches = !handle->is_device || gpu == handle->gpu || device_reaches(gpu, handle->gpu);
        if (handle->is_device && !constant_whole(SIM_REACH_ALL))
            reaches = mapping.reached_by >> location->id & 1;
        *flags = reaches ? mapping.flags : 0;
    } else {
        *flags = mapping.kind == MEMORY_HOST ? mapping.flags : 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *value, void *pointer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value && pointer);
    pthread_mutex_lock(&vmm_lock);
    struct memory_allocation mapping;
    bool found = ranges_find((uint64_t)(uintptr_t)pointer, &mapping) && is_mapping(&mapping);
    if (found) {
        struct handle *handle = mapping.owner;
        handle->references++;
        *value = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    }
    pthread_mutex_unlock(&vmm_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
