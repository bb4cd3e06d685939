/* hook_vmm.c - physical memory of its own, mapped where the program likes (physical.h). */
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/physical.h"
#include "intercept/memory/road.h"
#include "intercept/resolve/real.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    bool is_on_device = properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return allocate(&(struct allocation){
        .way = WAY_cuMemCreate,
        .is_uncharged = !handle || !bytes || !is_on_device, /* or it takes memory of the host */
        .device = is_on_device ? properties->location.id : 0,
        .bytes = bytes,
        .got = handle,
        .physical = {properties, flags},
    });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    return release_allocation(RELEASE_cuMemRelease, handle, NULL);
}

/* The driver has mapped it: the mapping keeps it. */
static bool enter_mapping(CUdeviceptr address, size_t bytes, uint64_t number)
{
    struct record displaced;
    return physical_point_at(
        (struct record){
            .key = address, .kind = RECORD_MAPPING, .flags = RECORD_IN_RANGES, .hold = {.length = bytes}},
        number, &displaced);
}

/* The mapping keeps the memory before the driver makes it, so that another thread may release the handle
 * at any moment. */
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    real_needed(cuMemMap);
    uint64_t number = charge_has_any() ? physical_of_handle(handle) : 0;
    if (!number)
        return real(cuMemMap)(address, bytes, offset, handle, flags);
    physical_keep(number);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    charge_enter();
    if (physical_charge_import(number, bytes))
        result = real(cuMemMap)(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && !enter_mapping(address, bytes, number)) {
        real(cuMemUnmap)(address, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_leave();
    if (result != CUDA_SUCCESS)
        physical_let_go(number);
    return result;
}

/* To the program, memory of cuMemAlloc is not physical memory that it could unmap or get a handle of. */
static bool is_the_engines(CUdeviceptr address)
{
    const struct engine *engine = engine_of_process();
    return engine->has_physical_memory && charge_has_any() && engine->has_physical_memory(address);
}

/* Addresses stay reserved across this call, so nobody can map anything there before it returns: records are
 * taken out when the driver is done. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct record mapping;
    real_needed(cuMemUnmap);
    if (is_the_engines(address))
        return CUDA_ERROR_INVALID_VALUE;
    charge_enter();
    CUresult result = real(cuMemUnmap)(address, bytes);
    charge_leave();
    if (result != CUDA_SUCCESS || !charge_has_any())
        return result;
    while (records_find_between(memory_records(), address, address + bytes, &mapping) &&
           records_take(memory_records(), mapping.kind, mapping.key, &mapping))
        if (mapping.kind == RECORD_MAPPING)
            physical_let_go(mapping.hold.physical);
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct record record, displaced;
    real_needed(cuMemRetainAllocationHandle);
    if (is_the_engines((CUdeviceptr)(uintptr_t)address))
        return CUDA_ERROR_INVALID_VALUE;
    charge_enter();
    CUresult result = real(cuMemRetainAllocationHandle)(handle, address);
    charge_leave();
    uint64_t number =
        result == CUDA_SUCCESS && charge_has_any() ? physical_at((CUdeviceptr)(uintptr_t)address) : 0;
    if (!number)
        return result;
    physical_keep(number);
    if (!records_count(memory_records(), RECORD_HANDLE, *handle, 1, &record))
        physical_point_at((struct record){.key = *handle, .kind = RECORD_HANDLE}, number, &displaced);
    return result;
}
