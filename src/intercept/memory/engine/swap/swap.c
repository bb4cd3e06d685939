#include "intercept/memory/engine/swap/swap.h"

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/as_driver.h"
#include "intercept/memory/engine/swap/extents/access.h"
#include "intercept/memory/engine/swap/extents/dying.h"
#include "intercept/memory/engine/swap/extents/quiet.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/ipc/hand_over.h"
#include "intercept/memory/engine/swap/ipc/swap_ipc.h"
#include "intercept/memory/engine/swap/move/clean.h"
#include "intercept/memory/engine/swap/move/mover.h"
#include "intercept/memory/engine/swap/move/tools.h"
#include "intercept/memory/engine/swap/pools/swap_pool.h"
#include "intercept/memory/engine/swap/pools/swap_pool_find.h"
#include "intercept/memory/engine/swap/pools/swap_pool_share.h"
#include "intercept/memory/engine/swap/program/swap_program.h"
#include "intercept/memory/engine/swap/program/swap_unknown.h"
#include "intercept/memory/engine/swap/swap_answers.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"
#include "intercept/submit/peer_copies.h"

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
    struct opener opener;
    if (device < 0 || device >= (int)LEDGER_GPUS || peer < 0 || peer >= (int)LEDGER_GPUS || device == peer)
        return;
    guard_lock(&swap_state()->lock);
    swap_state()->open_to[device] |= UINT64_C(1) << peer;
    opener_begin(&opener);
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        if (extent->address && !extent->pool && extent->device == device && extent_is_on_card(extent))
            opener_add(&opener, extent);
    opener_end(&opener);
    guard_unlock(&swap_state()->lock);
}

/* --- Addresses ------------------------------------------------------------------------------------- */

static uint64_t take_from(struct extent *extent, CUcontext context, uint64_t bytes)
{
    if (!extent || !extent->is_used || !extent->is_shared || extent->died || extent->context != context)
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

static CUresult allocate_once(const struct allocation *wanted, CUcontext context)
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

/* What is dying, or empty, takes room until it ends. */
static CUresult swap_allocate(const struct allocation *wanted, CUcontext context)
{
    CUresult result = allocate_once(wanted, context);
    return result == CUDA_ERROR_OUT_OF_MEMORY && dying_end_all(true, QUIET_PATIENCE_NS)
               ? allocate_once(wanted, context)
               : result;
}

/* A small free behaves as without GPU Slice: it waits, or refuses in a capture, as the driver's free of something else
 * does in the same context. It unmaps nothing, so nothing rests on that wait. If the card has no room even for the
 * allocation that the driver frees, this waits for the context. */
static CUresult wait_in_current(CUcontext context, uint64_t devices)
{
    CUdeviceptr other;
    CUresult result = real(cuMemAlloc_v2)(&other, 1);
    if (result == CUDA_SUCCESS)
        result = real(cuMemFree_v2)(other);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = quiet_wait(devices, context, QUIET_PATIENCE_NS);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static CUresult wait_as_free_does(CUcontext context, uint64_t devices)
{
    if (!own_calls_push(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = wait_in_current(context, devices);
    own_calls_pop();
    return result;
}

/* Whether any piece from this one on is on the card. */
static bool is_on_card(const struct extent *extent)
{
    for (; extent; extent = extents_next_piece(&swap_state()->extents, extent))
        if (extent_is_on_card(extent))
            return true;
    return false;
}

/* Take an allocation from the program. An extent without any is to end, `*dying`; but one empty extent is kept, since
 * programs that free small memory allocate it again. Of what is freed in a stream's order the program says that no
 * other work uses it, and the stream was waited for. */
static CUresult take_back(enum release_way way, uint64_t address, struct dying *dying)
{
    struct extent *extent = extents_find(&swap_state()->extents, address);
    *dying = (struct dying){0};
    if (!extent || extent->died || !extent_has(extent, address))
        return CUDA_ERROR_INVALID_VALUE;
    extent_forget_numbers(extent, address, EXTENT_BLOCK_BYTES);
    extent_give_back(extent, address);
    if (extent->is_shared && (!extent_is_empty(extent) || !swap_state()->empty_count++))
        return CUDA_SUCCESS;
    if (!is_on_card(extent) || (way != RELEASE_cuMemFree_v2 && !extent->is_shared))
        return extent_end(extent);
    dying_begin(extent, dying);
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
        result = swap_state()->is_evicted ? charge_capture_forbids()
                                          : wait_as_free_does(current, UINT64_C(1) << device);
    return result == CUDA_SUCCESS ? swap_pool_free(way, key, stream) : result;
}

/* What the program frees. */
struct freed {
    bool is_ours, is_small, is_on_card;
    CUcontext context;
    uint64_t devices;
};

/* Wait as the driver's own free does. cuMemFree does so only if a living context is current. What is not small waits
 * until it may be unmapped. */
static CUresult wait_before_free(enum release_way way, CUstream stream, const struct freed *freed)
{
    CUdevice current;
    if (way != RELEASE_cuMemFree_v2)
        return as_driver_wait_for_stream(way, stream);
    bool is_small = freed->is_small && freed->is_on_card;
    if (is_small && own_calls_is_current(freed->context))
        return wait_in_current(freed->context, freed->devices);
    CUresult result = real(cuCtxGetDevice)(&current);
    if (result != CUDA_SUCCESS)
        return result;
    return is_small ? wait_as_free_does(freed->context, freed->devices) : charge_capture_forbids();
}

static struct freed find_freed(uint64_t address)
{
    struct freed freed = {0};
    guard_lock(&swap_state()->lock);
    const struct extent *extent = extents_find(&swap_state()->extents, address);
    if (extent && !extent->pool && !extent->died && extent_has(extent, address))
        freed = (struct freed){.is_ours = true,
                               .is_small = extent->is_shared,
                               .is_on_card = is_on_card(extent),
                               .context = extent->context,
                               .devices = extent_devices(extent)};
    guard_unlock(&swap_state()->lock);
    return freed;
}

static CUresult free_ours(enum release_way way, uint64_t address, bool is_small)
{
    struct dying dying;
    guard_lock(&swap_state()->lock);
    CUresult result = take_back(way, address, &dying);
    guard_unlock(&swap_state()->lock);
    if (result == CUDA_SUCCESS && dying.number)
        result = dying_end(&dying, is_small ? 0 : QUIET_PATIENCE_NS);
    return is_small && dying.number ? CUDA_SUCCESS : result; /* an empty extent that stays is used again */
}

static CUresult swap_release(enum release_way way, uint64_t key, CUstream stream)
{
    if (way == RELEASE_cuMemRelease && program_is_handle(key))
        return program_release(key);
    if (release_rows[way].record == RECORD_IPC)
        return swap_ipc_close(key);
    if (release_rows[way].record != RECORD_POINTER)
        return plain_release(way, key, stream);
    struct freed freed = find_freed(key);
    bool is_pools = !freed.is_ours && swap_pool_has(key);
    if (!freed.is_ours && !is_pools && swap_pool_is_imported(key))
        return swap_pool_free_imported(way, key, stream);
    if ((!freed.is_ours && !is_pools) || (way != RELEASE_cuMemFree_v2 && as_driver_is_captured(way, stream)))
        /* In a capture, the driver refuses to free what no graph has allocated. */
        return plain_release(way, key, stream);
    if (is_pools)
        return free_of_pool(way, key, stream);
    CUresult result = wait_before_free(way, stream, &freed);
    return result == CUDA_SUCCESS ? free_ours(way, key, freed.is_small) : result;
}

/* --- Copies and memsets between cards ------------------------------------------------------------------ */

/* Memory of pools goes with no context: any of its device will do. NULL: there is none. */
static CUcontext context_of(CUcontext context, CUdevice device)
{
    const struct swap_tools *tools = swap_state()->tools;
    for (unsigned i = 0; tools && i < SWAP_CONTEXTS_MAX && !context; i++)
        if (tools[i].context && tools[i].device == device)
            context = tools[i].context;
    return context;
}

/* In an extent, or imported. The driver sees what the program maps itself as it is. */
static bool find_peer_place(CUdeviceptr address, struct peer_place *place)
{
    const struct extent *extent = extents_find(&swap_state()->extents, address);
    const struct swap_import *import = extent ? NULL : import_find(address);
    if (extent)
        *place = (struct peer_place){extent->context, extent->device, extent_devices(extent)};
    else if (import)
        *place = (struct peer_place){import->context, import->device, import_devices(import)};
    else
        return false;
    place->context = context_of(place->context, place->device);
    return place->context != NULL;
}

static bool swap_find_peer_place(CUdeviceptr address, struct peer_place *place)
{
    guard_lock(&swap_state()->lock);
    bool is_found = find_peer_place(address, place);
    guard_unlock(&swap_state()->lock);
    return is_found;
}

/* From the first context on a second device on, work of one card may be about memory of another. */
static void look_for_peers(const struct swap_tools *met)
{
    const struct swap_tools *tools = swap_state()->tools;
    for (unsigned i = 0; i < SWAP_CONTEXTS_MAX; i++)
        if (tools[i].context && tools[i].device != met->device)
            atomic_store_explicit(&peer_places_find, swap_find_peer_place, memory_order_relaxed);
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
    if (tools_find(context, &tools) == CUDA_SUCCESS)
        look_for_peers(tools);
    guard_unlock(&swap_state()->lock);
    own_calls_end(&calls);
}

/* Whether a context that lives may reach the extent. */
static bool is_reached(const struct extent *extent)
{
    const struct swap_tools *tools = swap_state()->tools;
    for (unsigned i = 0; tools && i < SWAP_CONTEXTS_MAX; i++)
        if (tools[i].context && extent_devices(extent) >> tools[i].device & 1)
            return true;
    return false;
}

static void swap_forget_context(CUcontext context)
{
    struct extents *extents = &swap_state()->extents;
    struct dying dying;
    guard_lock(&swap_state()->lock);
    swap_state()->contexts_gone++;
    tools_forget_context(context);
    for (struct extent *extent = extents_next(extents, NULL); extent;
         extent = extents_next(extents, extent)) {
        if (extent->context != context || extent->bytes_before)
            continue;
        if (!is_on_card(extent) || !is_reached(extent))
            extent_end(extent);
        else if (!extent->died)
            dying_begin(extent, &dying); /* swap_contexts_ended() */
    }
    arena_forget_context(&swap_state()->arena, context);
    swap_pool_forget_context(context);
    swap_ipc_forget_context(context);
    guard_unlock(&swap_state()->lock);
}

static void swap_contexts_ended(void)
{
    dying_end_all(false, 0);
}

const struct engine engine_swap = {
    .uses_ranges = true,
    .allocate = swap_allocate,
    .release = swap_release,
    .meet_context = swap_meet_context,
    .forget_context = swap_forget_context,
    .contexts_ended = swap_contexts_ended,
    .has_physical_memory = swap_has_physical_memory,
    .address_range = swap_address_range,
    .pointer_attribute = swap_pointer_attribute,
    .pointer_attributes = swap_pointer_attributes,
    .vmm = &program_vmm,
    .pools = &swap_pools,
    .open_to_peer = swap_open_to_peer,
    .ipc_handle = swap_ipc_handle,
};
