/* hook_vmm.c - physical memory that the program makes itself and maps where it likes (physical.h). */
#include <string.h>

#include "intercept/memory/engine/engine.h"
#include "intercept/memory/physical.h"
#include "intercept/memory/road.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"
#include "intercept/submit/synchronous.h"

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

/* The functions that answer the program: the engine's, or the driver's where the driver calls itself inside another call. */
static const struct engine_vmm *vmm(void)
{
    return own_calls_depth ? &plain_vmm : engine_of_process()->vmm;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    real_needed(cuMemAddressReserve);
    return vmm()->reserve(address, bytes, alignment, wanted, flags);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    real_needed(cuMemAddressFree);
    return vmm()->free_addresses(address, bytes);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    real_needed(cuMemSetAccess);
    return vmm()->set_access(address, bytes, access, count);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    real_needed(cuMemGetAccess);
    return vmm()->get_access(flags, location, address);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle handle)
{
    real_needed(cuMemGetAllocationPropertiesFromHandle);
    return vmm()->properties(properties, handle);
}

/* The descriptor may keep what is at this address. */
static void mark_shared(CUdeviceptr address)
{
    CUdeviceptr base;
    size_t bytes;
    uint64_t number = physical_at(address);
    if (number)
        records_set_flags(memory_records(), RECORD_PHYSICAL, number, RECORD_SHARED, true);
    else if (engine_of_process()->address_range(&base, &bytes, address) == CUDA_SUCCESS)
        records_set_flags(memory_records(), RECORD_POINTER, base, RECORD_SHARED, true);
}

/* For RDMA or another driver, which then reach the memory where it is now. If the driver has no dma-buf, programs
 * register the memory by nvidia-peermem instead, which we cannot see. So the memory stays then too. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    real_needed(cuMemGetHandleForAddressRange);
    vmm()->pin_range(address, bytes, WIRE_STAYS_DMA_BUF);
    CUresult result = real(cuMemGetHandleForAddressRange)(handle, address, bytes, type, flags);
    if (result == CUDA_SUCCESS && charge_has_any())
        mark_shared(address);
    return result;
}

static bool is_set(const void *value)
{
    unsigned word = 0;
    if (value)
        memcpy(&word, value, sizeof(word));
    return word != 0;
}

/* Whether waiting for a stream might end a capture. */
static bool may_be_capturing(void)
{
    return gate_of() ? in_flight_has_captures() : own_calls_has_captured();
}

/* Programs set SYNC_MEMOPS for what RDMA reaches (GPUDirect RDMA documentation). Where the driver does not have it for
 * such memory, they go on without. Where it is ours to keep (synchronous.h), what was copied before is waited for, as the driver
 * does. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which, CUdeviceptr address)
{
    real_needed(cuPointerSetAttribute);
    bool is_asked_for = which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && is_set(value);
    if (is_asked_for)
        vmm()->pin_range(address, 1, WIRE_STAYS_SYNC_MEMOPS);
    CUresult result = vmm()->set_attribute(value, which, address);
    if (is_asked_for && synchronous_is_in_use() && !may_be_capturing())
        result = synchronous_end(CU_STREAM_LEGACY, result);
    return result;
}

/* The driver has mapped the memory; the mapping keeps it from now on. */
static bool enter_mapping(CUdeviceptr address, size_t bytes, uint64_t number)
{
    struct record displaced;
    return physical_point_at(
        (struct record){
            .key = address, .kind = RECORD_MAPPING, .flags = RECORD_IN_RANGES, .hold = {.length = bytes}},
        number, &displaced);
}

/* The mapping keeps the memory from before the driver makes the mapping, so that another thread may release the
 * handle at any moment. */
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    real_needed(cuMemMap);
    const struct engine_vmm *answers = vmm();
    uint64_t number = charge_has_any() ? physical_of_handle(handle) : 0;
    if (!number)
        return answers->map(address, bytes, offset, handle, flags);
    physical_keep(number);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    charge_enter();
    if (physical_charge_import(number, bytes))
        result = answers->map(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && !enter_mapping(address, bytes, number)) {
        answers->unmap(address, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_leave();
    if (result != CUDA_SUCCESS)
        physical_let_go(number);
    return result;
}

/* To the program, memory of cuMemAlloc is not physical memory that it could unmap, or get a handle for. */
static bool is_the_engines(CUdeviceptr address)
{
    const struct engine *engine = engine_of_process();
    return engine->has_physical_memory && charge_has_any() && engine->has_physical_memory(address);
}

/* The addresses stay reserved across this call, so nobody can map anything there before it returns. The records are
 * taken out when the driver is done. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct record mapping;
    real_needed(cuMemUnmap);
    if (is_the_engines(address))
        return CUDA_ERROR_INVALID_VALUE;
    const struct engine_vmm *answers = vmm();
    charge_enter();
    CUresult result = answers->unmap(address, bytes);
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
    const struct engine_vmm *answers = vmm();
    charge_enter();
    CUresult result = answers->retain(handle, address);
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
