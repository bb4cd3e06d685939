/* plain.c - the engine that passes everything on to the driver. */
#include "intercept/memory/engine/engine.h"
#include "intercept/resolve/real.h"

const struct engine *_Atomic engine_in_use = &engine_plain;

/* The arguments that each form of alloc.def passes to the driver. */
#define OF_LINEAR (w->got, w->bytes)
#define OF_PITCHED (w->got, w->pitched.pitch, w->pitched.width, w->pitched.height, w->pitched.element_bytes)
#define OF_MANAGED (w->got, w->bytes, w->managed_flags)
#define OF_PHYSICAL (w->got, w->bytes, w->physical.properties, w->physical.flags)
#define OF_IN_ORDER (w->got, w->bytes, w->pooled.stream)
#define OF_FROM_POOL (w->got, w->bytes, w->pooled.pool, w->pooled.stream)
#define OF_ARRAY_OF_OLD (w->got, w->array.descriptor)
#define OF_ARRAY (w->got, w->array.descriptor)
#define OF_ARRAY_3D_OF_OLD (w->got, w->array.descriptor)
#define OF_ARRAY_3D (w->got, w->array.descriptor)
#define OF_MIPMAPS (w->got, w->array.descriptor, w->array.levels)
#define OF_EXTERNAL (w->got, w->external.descriptor)
#define OF_IPC (w->got, *(const CUipcMemHandle *)w->import.handle, w->import.flags)
#define OF_POOL_POINTER (w->got, w->import.pool, w->import.handle)
#define OF_SHAREABLE (w->got, w->import.handle, w->import.type)
#define OF_CONTEXT (w->got, w->context.flags, w->device)
#define OF_CONTEXT_AFFINE                                                                                    \
    (w->got, w->context.affinity, w->context.affinity_count, w->context.flags, w->device)
#define OF_CONTEXT_PARAMS (w->got, w->context.params, w->context.flags, w->device)
#define OF_CONTEXT_VDPAU (w->got, w->context.flags, w->device, w->context.vdpau, w->context.vdpau_lookup)
#define OF_PRIMARY (w->got, w->device)
#define OF_GREEN (w->got, w->context.resources, w->device, w->context.flags)

CUresult plain_allocate_by_row(const struct allocation *w)
{
    switch (w->way) {
#define ALLOCATES(symbol, form, ...)                                                                         \
    case WAY_##symbol:                                                                                       \
        return real(symbol) OF_##form;
#include "intercept/memory/alloc.def"
    case WAY_COUNT:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

#define OUT_OF_ADDRESS (key)
#define OUT_OF_ADDRESS_IN_ORDER (key, stream)
#define OUT_OF_ARRAY ((CUarray)(uintptr_t)key)
#define OUT_OF_MIPMAPS ((CUmipmappedArray)(uintptr_t)key)
#define OUT_OF_EXTERNAL ((CUexternalMemory)(uintptr_t)key)
#define OUT_OF_CONTEXT ((CUcontext)(uintptr_t)key)
#define OUT_OF_DEVICE ((CUdevice)key)
#define OUT_OF_GREEN ((CUgreenCtx)(uintptr_t)key)

CUresult plain_release_by_row(enum release_way way, uint64_t key, CUstream stream)
{
    switch (way) {
#define RELEASES(symbol, form, ...)                                                                          \
    case RELEASE_##symbol:                                                                                   \
        return real(symbol) OUT_OF_##form;
#include "intercept/memory/alloc.def"
    case RELEASE_COUNT:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* The driver frees what was made in a context when the context ends, so `context` is not needed. */
static CUresult allocate(const struct allocation *wanted, CUcontext context)
{
    (void)context;
    return plain_allocate(wanted);
}

static CUresult plain_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    real_needed(cuMemGetAddressRange_v2);
    return real(cuMemGetAddressRange_v2)(base, bytes, address);
}

static CUresult plain_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    real_needed(cuPointerGetAttribute);
    return real(cuPointerGetAttribute)(value, which, address);
}

static CUresult plain_pointer_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                         CUdeviceptr address)
{
    real_needed(cuPointerGetAttributes);
    return real(cuPointerGetAttributes)(count, which, values, address);
}

/* --- The program's own physical memory: the hooks have checked that the driver has these calls ------ */

static CUresult plain_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                              unsigned long long flags)
{
    return real(cuMemAddressReserve)(address, bytes, alignment, wanted, flags);
}

static CUresult plain_free_addresses(CUdeviceptr address, size_t bytes)
{
    return real(cuMemAddressFree)(address, bytes);
}

static CUresult plain_map(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return real(cuMemMap)(address, bytes, offset, handle, flags);
}

static CUresult plain_unmap(CUdeviceptr address, size_t bytes)
{
    return real(cuMemUnmap)(address, bytes);
}

static CUresult plain_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                 size_t count)
{
    return real(cuMemSetAccess)(address, bytes, access, count);
}

static CUresult plain_get_access(unsigned long long *flags, const CUmemLocation *location,
                                 CUdeviceptr address)
{
    return real(cuMemGetAccess)(flags, location, address);
}

static CUresult plain_retain(CUmemGenericAllocationHandle *handle, void *address)
{
    return real(cuMemRetainAllocationHandle)(handle, address);
}

static CUresult plain_properties(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    return real(cuMemGetAllocationPropertiesFromHandle)(properties, handle);
}

static bool plain_moves(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return false;
}

static CUresult plain_export(void *shareable, CUmemGenericAllocationHandle handle,
                             CUmemAllocationHandleType type, unsigned long long flags)
{
    return real(cuMemExportToShareableHandle)(shareable, handle, type, flags);
}

static CUresult plain_pin(CUmemGenericAllocationHandle *handle, enum wire_stays why)
{
    (void)handle;
    (void)why;
    return CUDA_SUCCESS;
}

static void plain_do_nothing_in_range(CUdeviceptr address, size_t bytes, enum wire_stays why)
{
    (void)why;
    (void)address;
    (void)bytes;
}

static void plain_unpin(CUmemGenericAllocationHandle handle, enum wire_stays why)
{
    (void)handle;
    (void)why;
}

static CUresult plain_set_attribute(const void *value, CUpointer_attribute which, CUdeviceptr address)
{
    return real(cuPointerSetAttribute)(value, which, address);
}

const struct engine_vmm plain_vmm = {
    .reserve = plain_reserve,
    .free_addresses = plain_free_addresses,
    .map = plain_map,
    .unmap = plain_unmap,
    .set_access = plain_set_access,
    .get_access = plain_get_access,
    .retain = plain_retain,
    .properties = plain_properties,
    .moves = plain_moves,
    .export = plain_export,
    .pin = plain_pin,
    .pin_range = plain_do_nothing_in_range,
    .unpin = plain_unpin,
    .unpin_range = plain_do_nothing_in_range,
    .set_attribute = plain_set_attribute,
};

/* --- Pools: the callers have checked that the driver has these calls -------------------------------- */

static CUresult plain_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    return real(cuMemPoolGetAttribute)(pool, which, value);
}

static CUresult plain_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    return real(cuMemPoolSetAttribute)(pool, which, value);
}

static CUresult plain_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    return real(cuMemPoolSetAccess)(pool, access, count);
}

static CUresult plain_pool_trim(CUmemoryPool pool, size_t keep_bytes)
{
    return real(cuMemPoolTrimTo)(pool, keep_bytes);
}

static CUresult plain_pool_destroy(CUmemoryPool pool)
{
    return real(cuMemPoolDestroy)(pool);
}

static CUresult plain_pool_export(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
                                  unsigned long long flags)
{
    return real(cuMemPoolExportToShareableHandle)(shareable, pool, type, flags);
}

static CUresult plain_pool_export_pointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    return real(cuMemPoolExportPointer)(data, address);
}

static uint64_t no_bytes(CUmemoryPool pool)
{
    (void)pool;
    return 0;
}

static bool never(CUmemoryPool pool)
{
    (void)pool;
    return false;
}

static void plain_pool_made(CUmemoryPool pool, const CUmemPoolProps *properties)
{
    (void)pool;
    (void)properties;
}

static void plain_pool_waited(void)
{
}

const struct engine_pools plain_pools = {
    .get_attribute = plain_pool_get_attribute,
    .set_attribute = plain_pool_set_attribute,
    .set_access = plain_pool_set_access,
    .trim = plain_pool_trim,
    .destroy = plain_pool_destroy,
    .export = plain_pool_export,
    .export_pointer = plain_pool_export_pointer,
    .engines_bytes = no_bytes,
    .is_in_use = never,
    .made = plain_pool_made,
    .waited = plain_pool_waited,
};

const struct engine engine_plain = {
    .allocate = allocate,
    .release = plain_release_by_row,
    .address_range = plain_address_range,
    .pointer_attribute = plain_pointer_attribute,
    .pointer_attributes = plain_pointer_attributes,
    .vmm = &plain_vmm,
    .pools = &plain_pools,
};
