#include "intercept/memory/engine/swap.h"

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/as_driver.h"
#include "intercept/memory/engine/mover.h"
#include "intercept/memory/engine/resident.h"
#include "intercept/memory/engine/swap_answers.h"
#include "intercept/memory/engine/swap_ipc.h"
#include "intercept/memory/engine/swap_pool.h"
#include "intercept/memory/engine/swap_pool_share.h"
#include "intercept/memory/engine/swap_program.h"
#include "intercept/memory/engine/swap_unknown.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"

/* Whether every device that the process sees has memory apart from its addresses. A process has one engine. */
static bool has_vmm(void)
{
    CUdevice device = 0;
    int has = 1;
    while (has && real(cuDeviceGetAttribute)(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                             device) == CUDA_SUCCESS)
        device++;
    return has && device > 0; /* the first that does not exist ended it */
}

void swap_begin(void)
{
    static atomic_bool said;
    if (!has_vmm()) {
        report_once(&said, "the driver has no virtual memory management here, as on some vGPUs, which "
                           "--oversubscribe needs: this program's memory stays on the card");
        return;
    }
    swap_state()->clean_mode = clean_mode_read();
    mover_register();
    atomic_store_explicit(&engine_in_use, &engine_swap, memory_order_relaxed);
    swap_unknown_begin();
}

/* As the driver does for memory of its own (cuCtxEnablePeerAccess): for the extents on `device` that exist, and for
 * later ones. */
static void swap_open_to_peer(CUdevice device, CUdevice peer)
{
    struct extents *extents = &swap_state()->extents;
    if (device < 0 || device >= (int)LEDGER_GPUS || peer < 0 || peer >= (int)LEDGER_GPUS || device == peer)
        return;
    guard_lock(&swap_state()->lock);
    swap_state()->open_to[device] |= UINT64_C(1) << peer;
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        if (extent->address && !extent->pool && extent->device == device && extent->is_resident)
            extent_open_to_peers(extent);
    guard_unlock(&swap_state()->lock);
}

/* --- Addresses ------------------------------------------------------------------------------------- */

static uint64_t take_from(struct extent *extent, CUcontext context, uint64_t bytes)
{
    if (!extent || !extent->is_used || !extent->is_shared || extent->context != context)
        return 0;
    bool was_empty = extent_is_empty(extent);
    uint64_t address = extent_take(extent, bytes);
    swap_state()->empty_count -= address && was_empty;
    return address;
}

/* Take room in a shared extent of the context; try the one that had room last first. 0 with `*result` if there is
 * none. */
static uint64_t take_small(CUcontext context, CUdevice device, uint64_t bytes, CUresult *result)
{
    struct swap *swap = swap_state();
    uint64_t address = take_from(swap->had_room, context, bytes);
    if (address)
        return address;
    for (struct extent *extent = extents_next_shared(&swap->extents, NULL); extent && !address;
         extent = extents_next_shared(&swap->extents, extent)) {
        address = take_from(extent, context, bytes);
        swap->had_room = extent;
    }
    if (address)
        return address;
    swap->had_room = extent_make(context, device, EXTENT_SHARED_BYTES, true, result);
    return take_from(swap->had_room, context, bytes);
}

/* Take memory for `bytes`. Under the lock. */
static CUresult take(CUcontext context, uint64_t bytes, CUdeviceptr *address)
{
    CUdevice device;
    CUresult result = real(cuCtxGetDevice)(&device);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t taken;
    if (bytes <= EXTENT_SHARED_BYTES / 2) {
        taken = take_small(context, device, bytes, &result);
    } else {
        struct extent *extent = extent_make(context, device, bytes, false, &result);
        taken = extent ? extent->address : 0;
    }
    if (taken)
        *address = taken;
    return taken ? CUDA_SUCCESS : result;
}

/* --- Allocating and freeing ------------------------------------------------------------------------ */

static CUresult swap_allocate(const struct allocation *wanted, CUcontext context)
{
    const struct alloc_row *row = &alloc_rows[wanted->way];
    uint64_t bytes = wanted->bytes;
    bool is_pitched = wanted->way == WAY_cuMemAllocPitch_v2;
    if (row->record == RECORD_HANDLE && row->can_move && program_can_move(wanted))
        return program_create(wanted);
    if (row->charged == ALLOC_POOLED)
        return swap_pool_allocate(wanted);
    if (row->record == RECORD_IPC)
        return swap_ipc_open(wanted);
    if (wanted->way == WAY_cuMemPoolImportPointer)
        return swap_pool_import_pointer(wanted);
    if (!row->can_move || row->record != RECORD_POINTER)
        return plain_allocate(wanted);
    CUresult result = is_pitched ? as_driver_pitch(wanted, &bytes) : charge_capture_forbids();
    if (result != CUDA_SUCCESS)
        return result;
    guard_lock(&swap_state()->lock);
    result = take(context, bytes, wanted->got);
    if (result == CUDA_ERROR_OUT_OF_MEMORY &&
        swap_pool_give_back(false)) /* as the driver does with its pools */
        result = take(context, bytes, wanted->got);
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult synchronize(CUcontext context)
{
    struct own_calls calls;
    if (!own_calls_begin(&calls, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuCtxSynchronize)();
    own_calls_end(&calls);
    return result;
}

/* The driver's own free waits for the work that may use the memory, and refuses in some captures. Freeing something
 * else in the same context does the same, so that is what this does. If the card has no room even for that, it waits
 * for the context. */
static CUresult wait_as_free_does(CUcontext context)
{
    CUdeviceptr other;
    if (!own_calls_push(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuMemAlloc_v2)(&other, 1);
    if (result == CUDA_SUCCESS)
        result = real(cuMemFree_v2)(other);
    own_calls_pop();
    return result == CUDA_ERROR_OUT_OF_MEMORY ? synchronize(context) : result;
}

/* One empty extent is kept, since programs that free small memory allocate it again. */
static CUresult give_back(struct extent *extent, uint64_t address)
{
    if (!extent->is_shared)
        return extent_end(extent);
    extent_give_back(extent, address);
    if (!extent_is_empty(extent))
        return CUDA_SUCCESS;
    if (swap_state()->empty_count++)
        extent_end(extent); /* if the driver refuses, the extent is used again */
    return CUDA_SUCCESS;
}

/* cuMemFree waits for the work of the current context. A free in a stream's order does not wait. */
static CUresult free_of_pool(enum release_way way, uint64_t key, CUstream stream)
{
    CUcontext current;
    CUdevice device;
    if (way != RELEASE_cuMemFree_v2)
        return swap_pool_free(way, key, stream);
    CUresult result = real(cuCtxGetDevice)(&device);
    if (result == CUDA_SUCCESS)
        result = real(cuCtxGetCurrent)(&current);
    if (result == CUDA_SUCCESS)
        result = swap_state()->is_evicted ? charge_capture_forbids() : wait_as_free_does(current);
    return result == CUDA_SUCCESS ? swap_pool_free(way, key, stream) : result;
}

/* Wait as the driver's own free does. cuMemFree does so only if a living context is current. */
static CUresult wait_before_free(enum release_way way, CUstream stream, CUcontext context, bool is_resident)
{
    CUdevice current;
    if (way != RELEASE_cuMemFree_v2)
        return as_driver_wait_for_stream(way, stream);
    CUresult result = real(cuCtxGetDevice)(&current);
    if (result != CUDA_SUCCESS)
        return result;
    return is_resident ? wait_as_free_does(context) : charge_capture_forbids();
}

/* Whether any piece from this one on is on the card. */
static bool is_on_card(const struct extent *extent)
{
    for (; extent; extent = extents_next_piece(&swap_state()->extents, extent))
        if (extent->is_resident)
            return true;
    return false;
}

static CUresult swap_release(enum release_way way, uint64_t key, CUstream stream)
{
    if (way == RELEASE_cuMemRelease && program_is_handle(key))
        return program_release(key);
    if (release_rows[way].record == RECORD_IPC)
        return swap_ipc_close(key);
    if (release_rows[way].record != RECORD_POINTER)
        return plain_release(way, key, stream);
    guard_lock(&swap_state()->lock);
    struct extent *extent = extents_find(&swap_state()->extents, key);
    bool is_ours = extent && !extent->pool && extent_has(extent, key);
    bool is_resident = is_ours && is_on_card(extent);
    CUcontext context = is_ours ? extent->context : NULL;
    guard_unlock(&swap_state()->lock);
    bool is_pools = !is_ours && swap_pool_has(key);
    if (!is_ours && !is_pools && swap_pool_is_imported(key))
        return swap_pool_free_imported(way, key, stream);
    if ((!is_ours && !is_pools) || (way != RELEASE_cuMemFree_v2 && as_driver_is_captured(way, stream)))
        /* In a capture, the driver refuses to free what no graph has allocated. */
        return plain_release(way, key, stream);
    if (is_pools)
        return free_of_pool(way, key, stream);
    CUresult result = wait_before_free(way, stream, context, is_resident);
    if (result != CUDA_SUCCESS)
        return result;
    guard_lock(&swap_state()->lock);
    extent = extents_find(&swap_state()->extents, key);
    result = extent ? give_back(extent, key) : CUDA_ERROR_INVALID_VALUE;
    guard_unlock(&swap_state()->lock);
    return result;
}

/* Make the tools that move memory in this context; tools.h says why so early. If the card has no room for them, they
 * are made with the first move. */
static void swap_meet_context(CUcontext context)
{
    struct own_calls calls;
    struct swap_tools *tools;
    if (!own_calls_begin(&calls, context))
        return;
    guard_lock(&swap_state()->lock);
    tools_find(context, &tools);
    guard_unlock(&swap_state()->lock);
    own_calls_end(&calls);
}

static void swap_forget_context(CUcontext context)
{
    struct extents *extents = &swap_state()->extents;
    guard_lock(&swap_state()->lock);
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        if (extent->context == context && !extent->bytes_before)
            extent_end(extent);
    arena_forget_context(&swap_state()->arena, context);
    tools_forget_context(context);
    swap_pool_forget_context(context);
    swap_ipc_forget_context(context);
    guard_unlock(&swap_state()->lock);
}

const struct engine engine_swap = {
    .uses_ranges = true,
    .allocate = swap_allocate,
    .release = swap_release,
    .meet_context = swap_meet_context,
    .forget_context = swap_forget_context,
    .has_physical_memory = swap_has_physical_memory,
    .address_range = swap_address_range,
    .pointer_attribute = swap_pointer_attribute,
    .pointer_attributes = swap_pointer_attributes,
    .vmm = &program_vmm,
    .pools = &swap_pools,
    .open_to_peer = swap_open_to_peer,
    .ipc_handle = swap_ipc_handle,
};
