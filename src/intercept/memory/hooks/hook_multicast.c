/* hook_multicast.c - multicast objects and logical endpoints. They take no memory, and hold the allocations that are bound
 * to them. */
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/physical.h"
#include "intercept/resolve/real.h"

/* Enter an object that the driver has made. False without memory for it. */
static bool enter_object(CUmemGenericAllocationHandle handle)
{
    struct charge charge = {0};
    return !charge_has_any() || physical_enter(&charge, handle, RECORD_MULTICAST, 0);
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
    struct record binding = {.key = physical_binding_key(object, physical.gpu, offset),
                             .kind = RECORD_BINDING};
    if (!physical_point_at(binding, number, &displaced))
        physical_let_go(number);
    else if (displaced.kind != RECORD_FREE)
        physical_let_go(displaced.hold.physical);
}

/* Around a call that binds memory of a handle to an object: what is imported is charged by what is bound of it, and
 * memory that could leave stays where it is. The driver gets `drivers`. */
struct bound {
    CUmemGenericAllocationHandle programs, drivers;
    uint64_t number;
};

static CUresult begin_bind(struct bound *bound, CUmemGenericAllocationHandle memory, uint64_t end)
{
    *bound = (struct bound){memory, memory, charge_has_any() ? physical_of_handle(memory) : 0};
    if (bound->number && !physical_charge_import(bound->number, end))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return engine_of_process()->vmm->pin(&bound->drivers, WIRE_STAYS_BOUND);
}

static CUresult end_bind(const struct bound *bound, CUmemGenericAllocationHandle object, uint64_t offset,
                         CUresult result)
{
    if (result != CUDA_SUCCESS)
        engine_of_process()->vmm->unpin(bound->programs, WIRE_STAYS_BOUND);
    else if (bound->number)
        bind(object, offset, bound->number);
    return result;
}

static void begin_bind_address(CUdeviceptr address, uint64_t bytes)
{
    engine_of_process()->vmm->pin_range(address, bytes, WIRE_STAYS_BOUND);
}

static CUresult end_bind_address(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle object,
                                 uint64_t offset, CUresult result)
{
    if (result != CUDA_SUCCESS)
        engine_of_process()->vmm->unpin_range(address, bytes, WIRE_STAYS_BOUND);
    else if (charge_has_any())
        bind(object, offset, physical_at(address));
    return result;
}

/* The driver has unbound what lies there. */
static void unbind(CUmemGenericAllocationHandle object, CUdevice device, uint64_t offset, uint64_t bytes)
{
    struct charge charge;
    uint64_t number = charge_has_any() ? physical_of_handle(object) : 0;
    if (!number || !bytes || charge_place_device(&charge, device) != PLACE_ON_GPU)
        return;
    physical_let_go_bindings(physical_binding_key(number, charge.gpu, offset),
                             physical_binding_key(number, charge.gpu, offset + bytes - 1));
}

/* --- Multicast objects ----------------------------------------------------------------------------- */

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *properties)
{
    real_needed(cuMulticastCreate);
    real_needed(cuMemRelease);
    CUresult result = real(cuMulticastCreate)(handle, properties);
    if (result == CUDA_SUCCESS && !enter_object(*handle)) {
        real(cuMemRelease)(*handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

#define BINDS_MEMORY(symbol, parameters, arguments)                                                          \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct bound bound;                                                                                  \
        real_needed(symbol);                                                                                 \
        CUresult result = begin_bind(&bound, memory, memory_offset + bytes);                                 \
        return result == CUDA_SUCCESS ? end_bind(&bound, object, offset, real(symbol) arguments) : result;   \
    }
BINDS_MEMORY(cuMulticastBindMem,
             (CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle memory,
              size_t memory_offset, size_t bytes, unsigned long long flags),
             (object, offset, bound.drivers, memory_offset, bytes, flags))
BINDS_MEMORY(cuMulticastBindMem_v2,
             (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
              CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
              unsigned long long flags),
             (object, device, offset, bound.drivers, memory_offset, bytes, flags))

#define BINDS_ADDRESS(symbol, parameters, arguments)                                                         \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        begin_bind_address(address, bytes);                                                                  \
        return end_bind_address(address, bytes, object, offset, real(symbol) arguments);                     \
    }
BINDS_ADDRESS(cuMulticastBindAddr,
              (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address, size_t bytes,
               unsigned long long flags),
              (object, offset, address, bytes, flags))
BINDS_ADDRESS(cuMulticastBindAddr_v2,
              (CUmemGenericAllocationHandle object, CUdevice device, size_t offset, CUdeviceptr address,
               size_t bytes, unsigned long long flags),
              (object, device, offset, address, bytes, flags))

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes)
{
    real_needed(cuMulticastUnbind);
    CUresult result = real(cuMulticastUnbind)(object, device, offset, bytes);
    if (result == CUDA_SUCCESS)
        unbind(object, device, offset, bytes);
    return result;
}

/* --- Logical endpoints ----------------------------------------------------------------------------- */

/* Endpoints have numbers that the program reserves. In our records they are handles, as no driver gives them out. */
static CUmemGenericAllocationHandle object_of(CUlogicalEndpointId id)
{
    return UINT64_C(0x6c65) << 48 | id;
}

/* An endpoint has come to be. */
static CUresult enter_endpoint(CUlogicalEndpointId id, CUresult result)
{
    if (result == CUDA_SUCCESS && !enter_object(object_of(id))) {
        real(cuLogicalEndpointDestroy)(id);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

CUresult cuLogicalEndpointCreate(CUlogicalEndpointId id, const CUlogicalEndpointProp *properties)
{
    real_needed(cuLogicalEndpointCreate);
    real_needed(cuLogicalEndpointDestroy);
    return enter_endpoint(id, real(cuLogicalEndpointCreate)(id, properties));
}

CUresult cuLogicalEndpointImport(CUlogicalEndpointId id, const void *handle,
                                 CUlogicalEndpointIpcHandleType type)
{
    real_needed(cuLogicalEndpointImport);
    real_needed(cuLogicalEndpointDestroy);
    return enter_endpoint(id, real(cuLogicalEndpointImport)(id, handle, type));
}

CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId id)
{
    struct record object;
    real_needed(cuLogicalEndpointDestroy);
    CUresult result = real(cuLogicalEndpointDestroy)(id);
    if (result == CUDA_SUCCESS && charge_has_any() &&
        records_take(memory_records(), RECORD_HANDLE, object_of(id), &object))
        physical_let_go(object.hold.physical);
    return result;
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId id, CUdevice device, cuuint64_t offset,
                                  CUmemGenericAllocationHandle memory, cuuint64_t memory_offset,
                                  cuuint64_t bytes, unsigned long long flags)
{
    struct bound bound;
    real_needed(cuLogicalEndpointBindMem);
    CUresult result = begin_bind(&bound, memory, memory_offset + bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = real(cuLogicalEndpointBindMem)(id, device, offset, bound.drivers, memory_offset, bytes, flags);
    return end_bind(&bound, object_of(id), offset, result);
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice device, cuuint64_t offset, void *pointer,
                                   cuuint64_t bytes, unsigned long long flags)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    real_needed(cuLogicalEndpointBindAddr);
    begin_bind_address(address, bytes);
    CUresult result = real(cuLogicalEndpointBindAddr)(id, device, offset, pointer, bytes, flags);
    return end_bind_address(address, bytes, object_of(id), offset, result);
}

CUresult cuLogicalEndpointUnbind(CUlogicalEndpointId id, CUdevice device, cuuint64_t offset, cuuint64_t bytes)
{
    real_needed(cuLogicalEndpointUnbind);
    CUresult result = real(cuLogicalEndpointUnbind)(id, device, offset, bytes);
    if (result == CUDA_SUCCESS)
        unbind(object_of(id), device, offset, bytes);
    return result;
}
