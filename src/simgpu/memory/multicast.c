/* multicast.c - multicast objects: stores through their addresses would go to the memory of every device that
 * is bound there.
 *
 * Only multimem instructions reach memory through these addresses, and no kernel here has any: what is
 * simulated is the team, the bindings and how long they hold memory. An object takes no memory of a device
 * itself; what is bound to it stays until it is unbound or the object ends, whatever becomes of its handle.
 * A page that goes with it says which devices have joined, to all processes that have the object. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "simgpu/device/profile.h"
#include "simgpu/memory/shared_fabric.h"
#include "simgpu/memory/vmm.h"

#define GRANULARITY_BYTES (UINT64_C(2) << 20) /* both the least and what is recommended (measure) */
#define LOOK_NS 200000

/* Shared by all processes that have the object. */
struct team {
    uint64_t object_bytes, handle_types;
    uint32_t device_count;
    _Atomic uint64_t gpus; /* a bit for each card that was added */
};
_Static_assert(DEVICE_CARDS <= 64, "bits of a team");

/* 0 for a MIG instance, which reaches no other GPU. */
static uint64_t team_bit(unsigned gpu)
{
    return device_shape(gpu)->instance == DEVICE_WHOLE ? UINT64_C(1) << device_shape(gpu)->card : 0;
}

struct binding {
    LIST_ENTRY(binding) entry;
    struct handle *memory;
    uint64_t offset, bytes;
};

struct multicast {
    struct team *team;
    bool is_shareable;
    LIST_HEAD(, binding) bindings; /* of this process */
};

static bool is_granular(uint64_t value)
{
    return value % GRANULARITY_BYTES == 0;
}

static bool is_supported(void)
{
    int supported = 0;
    profile_attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, &supported);
    return supported;
}

static CUresult properties_check(const CUmulticastObjectProp *properties)
{
    SIM_TRY(sim_ready());
    if (!is_supported())
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(properties && properties->flags == 0 && properties->size > 0);
    SIM_REQUIRE(properties->numDevices > 0 && properties->numDevices <= device_parameters().gpu_count);
    return shared_handle_types_check(properties->handleTypes, true);
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *properties,
                                   CUmulticastGranularity_flags option)
{
    SIM_TRY(properties_check(properties));
    SIM_REQUIRE(granularity && option <= CU_MULTICAST_GRANULARITY_RECOMMENDED);
    *granularity = GRANULARITY_BYTES;
    return CUDA_SUCCESS;
}

/* --- The object ------------------------------------------------------------------------------------ */

struct handle *multicast_join(int fd)
{
    struct handle *handle = calloc(1, sizeof(*handle));
    struct multicast *multicast = calloc(1, sizeof(*multicast));
    struct team *team = mmap(NULL, sizeof(*team), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!handle || !multicast || team == MAP_FAILED) {
        if (team != MAP_FAILED)
            munmap(team, sizeof(*team));
        free(multicast);
        free(handle);
        return NULL;
    }
    multicast->team = team;
    multicast->is_shareable = team->handle_types != CU_MEM_HANDLE_TYPE_NONE;
    handle->multicast = multicast;
    handle->properties.requestedHandleTypes = (CUmemAllocationHandleType)team->handle_types;
    handle->bytes = team->object_bytes;
    handle->references = 1;
    handle->fabric = -1;
    handle->fd = fd;
    atomic_store(&handle->kind, SIM_HANDLE);
    return handle;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *object, const CUmulticastObjectProp *properties)
{
    SIM_TRY(properties_check(properties));
    SIM_REQUIRE(object && is_granular(properties->size));
    const struct team team = {.object_bytes = properties->size,
                              .handle_types = properties->handleTypes,
                              .device_count = properties->numDevices};
    int fd = memfd_create("simulated-multicast", MFD_CLOEXEC);
    struct handle *handle =
        fd >= 0 && write(fd, &team, sizeof(team)) == (ssize_t)sizeof(team) ? multicast_join(fd) : NULL;
    if (!handle) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *object = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

/* Under vmm_lock. */
static void binding_drop(struct binding *binding)
{
    LIST_REMOVE(binding, entry);
    binding->memory->mappings--;
    handle_settle(binding->memory);
    free(binding);
}

void multicast_end(struct handle *object)
{
    struct binding *binding;
    while ((binding = LIST_FIRST(&object->multicast->bindings)))
        binding_drop(binding);
    munmap(object->multicast->team, sizeof(*object->multicast->team));
    free(object->multicast);
    object->multicast = NULL;
}

/* --- The team -------------------------------------------------------------------------------------- */

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device)
{
    SIM_TRY(sim_ready());
    pthread_mutex_lock(&vmm_lock);
    struct handle *handle = handle_of(object);
    CUresult result = handle && handle->multicast ? device_check(device) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct team *team = handle->multicast->team;
        uint64_t own = team_bit(simulator.visible[device]), gpus = atomic_load(&team->gpus);
        do {
            if (!own)
                result = CUDA_ERROR_NOT_SUPPORTED;
            else if (gpus & own || (unsigned)__builtin_popcountll(gpus) == team->device_count)
                result = CUDA_ERROR_INVALID_VALUE; /* once each, and no more than there is room for */
        } while (result == CUDA_SUCCESS && !atomic_compare_exchange_weak(&team->gpus, &gpus, gpus | own));
    }
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

static bool is_whole(const struct handle *object)
{
    const struct team *team = object->multicast->team;
    return (unsigned)__builtin_popcountll(atomic_load(&team->gpus)) == team->device_count;
}

void multicast_lock_whole(CUmemGenericAllocationHandle value)
{
    for (;;) {
        pthread_mutex_lock(&vmm_lock);
        const struct handle *handle = handle_of(value);
        if (!handle || !handle->multicast || is_whole(handle))
            return;
        pthread_mutex_unlock(&vmm_lock);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

/* --- Bindings -------------------------------------------------------------------------------------- */

/* Under vmm_lock, once the team is whole. `gpu`: the one that the program names; NULL: the memory's. */
static CUresult bind(struct handle *object, const unsigned *gpu, uint64_t offset, struct handle *memory,
                     uint64_t memory_offset, uint64_t bytes)
{
    SIM_REQUIRE(object && object->multicast && memory && memory->is_device && bytes > 0);
    SIM_REQUIRE(is_granular(offset) && is_granular(memory_offset) && is_granular(bytes));
    SIM_REQUIRE(offset <= object->bytes && bytes <= object->bytes - offset);
    SIM_REQUIRE(memory_offset <= memory->bytes && bytes <= memory->bytes - memory_offset);
    struct multicast *multicast = object->multicast;
    SIM_REQUIRE(!multicast->is_shareable ||
                memory->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE);
    if (!(atomic_load(&multicast->team->gpus) & team_bit(memory->gpu)) || (gpu && *gpu != memory->gpu))
        return CUDA_ERROR_INVALID_DEVICE;
    const struct binding *other;
    LIST_FOREACH (other, &multicast->bindings, entry)
        SIM_REQUIRE(other->memory->gpu != memory->gpu || offset >= other->offset + other->bytes ||
                    other->offset >= offset + bytes);
    struct binding *binding = malloc(sizeof(*binding));
    if (!binding)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct binding){.memory = memory, .offset = offset, .bytes = bytes};
    LIST_INSERT_HEAD(&multicast->bindings, binding, entry);
    memory->mappings++;
    return CUDA_SUCCESS;
}

static CUresult bind_memory(CUmemGenericAllocationHandle object, const unsigned *gpu, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes)
{
    multicast_lock_whole(object);
    struct handle *bound = handle_of(memory);
    CUresult result = bound && bound->references > 0
                          ? bind(handle_of(object), gpu, offset, bound, memory_offset, bytes)
                          : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == 0);
    return bind_memory(object, NULL, offset, memory, memory_offset, bytes);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                               unsigned long long flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == 0);
    SIM_TRY(device_check(device));
    return bind_memory(object, &simulator.visible[device], offset, memory, memory_offset, bytes);
}

/* Addresses of cuMemMap; those of pools' memory, which a card takes too, are refused. */
static CUresult bind_address(CUmemGenericAllocationHandle object, const unsigned *gpu, size_t offset,
                             CUdeviceptr address, size_t bytes)
{
    struct memory_allocation mapping;
    multicast_lock_whole(object);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (ranges_find(address, &mapping) && mapping.kind == MEMORY_MAPPED &&
        bytes <= mapping.address + mapping.bytes - address)
        result = bind(handle_of(object), gpu, offset, mapping.owner, address - mapping.address, bytes);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address,
                             size_t bytes, unsigned long long flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == 0);
    return bind_address(object, NULL, offset, address, bytes);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == 0);
    SIM_TRY(device_check(device));
    return bind_address(object, &simulator.visible[device], offset, address, bytes);
}

/* Unbind what lies inside. A binding that reaches beyond makes the call an error (undefined on a card). */
static CUresult unbind(struct handle *object, unsigned gpu, uint64_t offset, uint64_t bytes)
{
    SIM_REQUIRE(object && object->multicast && bytes > 0 && is_granular(offset) && is_granular(bytes));
    SIM_REQUIRE(offset <= object->bytes && bytes <= object->bytes - offset);
    const struct binding *one;
    LIST_FOREACH (one, &object->multicast->bindings, entry) {
        bool is_touched =
            one->memory->gpu == gpu && one->offset < offset + bytes && offset < one->offset + one->bytes;
        SIM_REQUIRE(!is_touched || (one->offset >= offset && one->offset + one->bytes <= offset + bytes));
    }
    for (struct binding *binding = LIST_FIRST(&object->multicast->bindings), *next; binding; binding = next) {
        next = LIST_NEXT(binding, entry);
        if (binding->memory->gpu == gpu && binding->offset >= offset && binding->offset < offset + bytes)
            binding_drop(binding);
    }
    return CUDA_SUCCESS;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    pthread_mutex_lock(&vmm_lock);
    CUresult result = unbind(handle_of(object), simulator.visible[device], offset, bytes);
    pthread_mutex_unlock(&vmm_lock);
    return result;
}
