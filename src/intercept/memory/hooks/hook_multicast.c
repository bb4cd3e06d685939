/* hook_multicast.c - multicast objects. They take no memory, and hold the allocations that are bound to them.
 *
 * A binding's key is {number of the object:24, GPU:8, offset in the object in units of 64 KiB:32}. */
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/physical.h"
#include "intercept/resolve/real.h"

static uint64_t key_of(uint64_t object, uint32_t gpu, uint64_t offset)
{
    return object << 40 | (uint64_t)(gpu & 0xff) << 32 | (offset >> 16 & UINT32_MAX);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *properties)
{
    struct charge charge = {0};
    real_needed(cuMulticastCreate);
    real_needed(cuMemRelease);
    CUresult result = real(cuMulticastCreate)(handle, properties);
    if (result == CUDA_SUCCESS && charge_has_any() &&
        !physical_enter(&charge, *handle, RECORD_MULTICAST, 0)) {
        real(cuMemRelease)(*handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* The driver has bound the allocation `number` to the object. */
static void bind(CUmemGenericAllocationHandle object_handle, size_t offset, uint64_t number)
{
    struct records *records = memory_records();
    struct record physical, displaced;
    uint64_t object = physical_of_handle(object_handle);
    if (!object || !number || !records_find(records, RECORD_PHYSICAL, number, &physical))
        return;
    physical_keep(number);
    struct record binding = {.key = key_of(object, physical.gpu, offset), .kind = RECORD_BINDING};
    if (!physical_point_at(binding, number, &displaced))
        physical_let_go(number);
    else if (displaced.kind != RECORD_FREE)
        physical_let_go(displaced.hold.physical);
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t object_offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    real_needed(cuMulticastBindMem);
    uint64_t number = charge_has_any() ? physical_of_handle(memory) : 0;
    if (number && !physical_charge_import(number, memory_offset + bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct engine_vmm *vmm = engine_of_process()->vmm;
    CUmemGenericAllocationHandle drivers = memory;
    CUresult result = vmm->pin(&drivers, WIRE_STAYS_BOUND);
    if (result != CUDA_SUCCESS)
        return result;
    result = real(cuMulticastBindMem)(object, object_offset, drivers, memory_offset, bytes, flags);
    if (result != CUDA_SUCCESS)
        vmm->unpin(memory, WIRE_STAYS_BOUND);
    if (result == CUDA_SUCCESS && number)
        bind(object, object_offset, number);
    return result;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t object_offset, CUdeviceptr address,
                             size_t bytes, unsigned long long flags)
{
    real_needed(cuMulticastBindAddr);
    const struct engine_vmm *vmm = engine_of_process()->vmm;
    vmm->pin_range(address, bytes, WIRE_STAYS_BOUND);
    CUresult result = real(cuMulticastBindAddr)(object, object_offset, address, bytes, flags);
    if (result != CUDA_SUCCESS)
        vmm->unpin_range(address, bytes, WIRE_STAYS_BOUND);
    if (result == CUDA_SUCCESS && charge_has_any())
        bind(object, object_offset, physical_at(address));
    return result;
}

struct part {
    uint64_t first, last; /* keys */
};

static bool is_inside(const struct record *binding, const void *argument)
{
    const struct part *part = argument;
    return binding->key >= part->first && binding->key <= part->last;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes)
{
    struct charge charge;
    real_needed(cuMulticastUnbind);
    uint64_t number = charge_has_any() ? physical_of_handle(object) : 0;
    CUresult result = real(cuMulticastUnbind)(object, device, offset, bytes);
    if (result == CUDA_SUCCESS && number && bytes && charge_place_device(&charge, device) == PLACE_ON_GPU) {
        struct part part = {key_of(number, charge.gpu, offset),
                            key_of(number, charge.gpu, offset + bytes - 1)};
        physical_let_go_all(RECORD_BINDING, is_inside, &part);
    }
    return result;
}

void physical_multicast_ended(uint64_t number)
{
    struct part part = {key_of(number, 0, 0), key_of(number, 0xff, UINT64_MAX)};
    physical_let_go_all(RECORD_BINDING, is_inside, &part);
}
