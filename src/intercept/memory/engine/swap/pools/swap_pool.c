#include "intercept/memory/engine/swap/pools/swap_pool.h"

#include <string.h>

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap/extents/dying.h"
#include "intercept/memory/engine/swap/extents/quiet.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/ipc/descriptors.h"
#include "intercept/memory/engine/swap/pools/pool_orders.h"
#include "intercept/memory/engine/swap/pools/swap_pool_find.h"
#include "intercept/memory/engine/swap/pools/swap_pool_share.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

#define REGION_BYTES (UINT64_C(16) << 30)

static struct swap_pools *state(void)
{
    return &swap_state()->pools;
}

static struct blocks *blocks(void)
{
    return &swap_state()->pools.blocks;
}

static struct swap_pool *first_pool(void)
{
    return state()->table;
}

static struct swap_pool *end_of_pools(void)
{
    return state()->table ? state()->table + state()->count : NULL;
}

/* Take the lock around calls to the driver, which must not invalidate a capture of the program. */
static void lock_for_own_calls(struct own_calls *calls)
{
    own_calls_begin(calls, NULL);
    guard_lock(&swap_state()->lock);
}

static void unlock_after(struct own_calls *calls)
{
    guard_unlock(&swap_state()->lock);
    own_calls_end(calls);
}

/* --- Which pools are served ------------------------------------------------------------------------ */

static struct swap_pool *find_pool(CUmemoryPool handle)
{
    for (struct swap_pool *pool = first_pool(); pool < end_of_pools(); pool++)
        if (handle && pool->handle == handle)
            return pool;
    return NULL;
}

static struct swap_pool *add_pool(const struct swap_pool *made)
{
    struct swap_pools *pools = state();
    struct swap_pool *place = first_pool();
    if (!place && !(place = pools->table = extents_make_table(SWAP_POOLS_MAX * sizeof(struct swap_pool))))
        return NULL;
    while (place < end_of_pools() && place->handle)
        place++;
    if (place == pools->table + SWAP_POOLS_MAX)
        return NULL;
    if (place == end_of_pools())
        pools->count++;
    *place = *made;
    place->blocks.number = (uint32_t)(place - pools->table) + 1;
    place->is_opportunistic = place->waits_for_others = true;
    blocks()->forget = orders_keep_event;
    return place;
}

/* The device whose default pool this is. */
static bool find_default(CUmemoryPool handle, CUdevice *device)
{
    CUmemoryPool standard;
    if (!real(cuDeviceGetDefaultMemPool))
        return false;
    for (*device = 0; *device < (int)LEDGER_GPUS; ++*device) {
        if (real(cuDeviceGetDefaultMemPool)(&standard, *device) != CUDA_SUCCESS)
            return false;
        if (standard == handle)
            return true;
    }
    return false;
}

/* Under the lock. The pool if memory of it is or was ours, else NULL. Pools that the program made were added when it
 * made them. */
static struct swap_pool *own_pool(CUmemoryPool handle)
{
    struct swap_pool *pool = find_pool(handle);
    if (!pool && handle) {
        struct swap_pool made = {.handle = handle};
        made.is_drivers = !find_default(handle, &made.device);
        pool = add_pool(&made);
    }
    return pool && !pool->is_drivers ? pool : NULL;
}

/* The same, if we serve it. */
static struct swap_pool *served_pool(CUmemoryPool handle)
{
    struct swap_pool *pool = own_pool(handle);
    return pool && !pool->is_exported ? pool : NULL;
}

/* The engine serves pools with handle types too, since few of them are exported. */
static bool can_serve(const CUmemPoolProps *properties)
{
    const unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    const unsigned char none[sizeof(properties->reserved)] = {0};
    return properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           !((unsigned)properties->handleTypes & ~types) && !properties->win32SecurityAttributes &&
           !(properties->usage & ~CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS) &&
           memcmp(properties->reserved, none, sizeof(none)) == 0;
}

static void swap_pool_made(CUmemoryPool handle, const CUmemPoolProps *properties)
{
    guard_lock(&swap_state()->lock);
    add_pool(&(struct swap_pool){.handle = handle,
                                 .is_drivers = !can_serve(properties),
                                 .is_exportable = properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE,
                                 .is_for_decompress = properties->usage != 0,
                                 .device = properties->location.id,
                                 .most_bytes = properties->maxSize});
    guard_unlock(&swap_state()->lock);
}

static uint64_t swap_pool_engines_bytes(CUmemoryPool handle)
{
    guard_lock(&swap_state()->lock);
    const struct swap_pool *pool = find_pool(handle);
    uint64_t bytes = pool ? pool->blocks.present_bytes : 0;
    if (pool && !pool->is_drivers && !pool->is_exported)
        bytes = UINT64_MAX;
    guard_unlock(&swap_state()->lock);
    return bytes;
}

/* --- Memory that comes and goes: under the lock ----------------------------------------------------- */

static bool add_region(struct swap_pool *pool, uint64_t bytes)
{
    CUdeviceptr address;
    uint64_t region_bytes = bytes > REGION_BYTES / 2 ? bytes * 2 : REGION_BYTES;
    if (bytes > UINT64_MAX / 4 || real(cuMemAddressReserve)(&address, region_bytes, 0, 0, 0) != CUDA_SUCCESS)
        return false;
    if (blocks_add_region(blocks(), &pool->blocks, address, region_bytes)) {
        ranges_put(&state()->regions, (struct range){address, region_bytes, 0});
        return true;
    }
    real(cuMemAddressFree)(address, region_bytes);
    return false;
}

/* An absent block with room for what `bytes` still needs beside the free block before it. NULL: none. */
static struct block *find_absent(const struct swap_pool *pool, uint64_t bytes, uint64_t stream,
                                 uint64_t *missing_bytes)
{
    for (struct block *block = blocks_next_absent(blocks(), &pool->blocks, NULL); block;
         block = blocks_next_absent(blocks(), &pool->blocks, block)) {
        const struct block *left = blocks_free_left(blocks(), block, stream);
        GS_CHECK(!left || left->bytes < bytes); /* or blocks_find_free() would have found it */
        uint64_t missing = bytes - (left ? left->bytes : 0);
        missing = (missing + SWAP_GRANULARITY_BYTES - 1) & ~(SWAP_GRANULARITY_BYTES - 1);
        if (block->bytes < missing)
            continue;
        *missing_bytes = missing;
        return block;
    }
    return NULL;
}

/* Bring memory for `bytes`, which no free block has. */
static struct block *grow(struct swap_pool *pool, uint64_t bytes, uint64_t stream, CUresult *result)
{
    uint64_t missing_bytes;
    struct block *absent = find_absent(pool, bytes, stream, &missing_bytes);
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!absent && (!add_region(pool, bytes) || !(absent = find_absent(pool, bytes, stream, &missing_bytes))))
        return NULL;
    uint64_t address = absent->address;
    *result = extents_make_at(pool->device, address, missing_bytes, pool->blocks.number);
    if (*result != CUDA_SUCCESS)
        return NULL;
    struct block *block = blocks_bring(blocks(), &pool->blocks, absent, missing_bytes, stream);
    if (!block) {
        *result = CUDA_ERROR_OUT_OF_MEMORY;
        extents_end_at(address, missing_bytes);
    }
    if (pool->blocks.present_bytes > pool->present_high_bytes)
        pool->present_high_bytes = pool->blocks.present_bytes;
    return block;
}

/* An extent that lies in this free block as a whole; NULL: none. */
static struct extent *whole_extent(const struct block *block)
{
    struct extents *extents = &swap_state()->extents;
    uint64_t end = block->address + block->bytes;
    for (uint64_t at = block->address; at < end;) {
        struct extent *extent = extents_find(extents, at);
        GS_CHECK(extent);
        if (extent->address >= block->address && extent->address + extent->bytes <= end)
            return extent;
        at = extent->address + extent->bytes;
    }
    return NULL;
}

/* Give back one extent that nobody uses, if at least `keep_bytes` remain without it. */
static bool send_one(struct swap_pool *pool, uint64_t keep_bytes)
{
    for (struct block *block = blocks_next_idle(blocks(), &pool->blocks, NULL); block;
         block = blocks_next_idle(blocks(), &pool->blocks, block)) {
        struct extent *extent = whole_extent(block);
        if (!extent || pool->blocks.present_bytes - extent->bytes < keep_bytes)
            continue;
        uint64_t address = extent->address, bytes = extent->bytes;
        return blocks_send(blocks(), &pool->blocks, block, address, bytes) &&
               extent_end(extent) == CUDA_SUCCESS;
    }
    return false;
}

static bool trim(struct swap_pool *pool, uint64_t keep_bytes)
{
    bool any = false;
    blocks_settle(blocks(), &pool->blocks, orders_is_over);
    while (pool->blocks.present_bytes > keep_bytes && send_one(pool, keep_bytes))
        any = true;
    return any;
}

bool swap_pool_give_back(bool is_idle)
{
    bool any = false;
    for (struct swap_pool *pool = first_pool(); pool < end_of_pools(); pool++) {
        if (!pool->handle)
            continue;
        if (is_idle)
            blocks_settle(blocks(), &pool->blocks, orders_is_surely_over);
        any |= trim(pool, 0);
    }
    return any;
}

/* --- Allocating and freeing ------------------------------------------------------------------------ */

/* Memory that another stream has freed but may still use: `stream` is made to wait for that. */
static struct block *find_in_time(struct swap_pool *pool, uint64_t bytes, const struct stream *stream)
{
    struct block *block = pool->waits_for_others
                              ? blocks_find_free(blocks(), &pool->blocks, bytes, stream->number, true)
                              : NULL;
    if (!block || !block->order.event)
        return block;
    return orders_wait(stream, &block->order) == CUDA_SUCCESS ? block : NULL;
}

static struct block *find_block(struct swap_pool *pool, uint64_t bytes, const struct stream *stream,
                                CUresult *result)
{
    struct pool_blocks *all = &pool->blocks;
    struct block *block = blocks_find_free(blocks(), all, bytes, stream->number, false);
    if (!block && all->waiting && pool->is_opportunistic) {
        blocks_settle(blocks(), all, orders_is_over);
        block = blocks_find_free(blocks(), all, bytes, stream->number, false);
    }
    if (!block && all->waiting) {
        blocks_join(blocks(), all, stream->number);
        block = blocks_find_free(blocks(), all, bytes, stream->number, false);
    }
    if (!block)
        block = grow(pool, bytes, stream->number, result);
    if (!block && *result == CUDA_ERROR_OUT_OF_MEMORY)
        block = find_in_time(pool, bytes, stream);
    if (block || *result != CUDA_ERROR_OUT_OF_MEMORY)
        return block;
    swap_pool_give_back(false); /* which also finds out what work is over */
    block = blocks_find_free(blocks(), all, bytes, stream->number, false);
    return block ? block : grow(pool, bytes, stream->number, result);
}

static CUresult take(struct swap_pool *pool, uint64_t asked_bytes, const struct stream *stream,
                     CUdeviceptr *address)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t bytes = (asked_bytes + BLOCK_GRAIN_BYTES - 1) & ~(BLOCK_GRAIN_BYTES - 1);
    uint64_t most_bytes = (pool->most_bytes + SWAP_GRANULARITY_BYTES - 1) & ~(SWAP_GRANULARITY_BYTES - 1);
    if (asked_bytes > UINT64_MAX / 4 || (most_bytes && pool->blocks.taken_bytes + bytes > most_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = find_block(pool, bytes, stream, &result);
    if (!block)
        return result;
    if (!blocks_take(blocks(), &pool->blocks, block, bytes, asked_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (pool->blocks.taken_bytes > pool->taken_high_bytes)
        pool->taken_high_bytes = pool->blocks.taken_bytes;
    block->allocation = ++state()->allocations;
    block->handed_out_as = 0;
    *address = block->address;
    return CUDA_SUCCESS;
}

/* In a program that has captured, the driver may refuse what is to happen in a stream's order: find out. */
static CUresult check_stream(const struct stream *stream)
{
    struct order order;
    CUresult result = own_calls_has_captured() ? orders_begin(stream, &order) : CUDA_SUCCESS;
    if (own_calls_has_captured())
        orders_drop(&order);
    return result;
}

CUresult swap_pool_allocate(const struct allocation *wanted)
{
    struct stream stream;
    guard_lock(&swap_state()->lock);
    bool is_served = served_pool(wanted->pooled.pool) != NULL;
    guard_unlock(&swap_state()->lock);
    if (!is_served)
        return plain_allocate(wanted);
    CUresult result = orders_find_stream(&stream, wanted->pooled.stream, wanted->pooled.is_per_thread);
    if (result == CUDA_SUCCESS)
        result = check_stream(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct own_calls calls;
    lock_for_own_calls(&calls);
    struct swap_pool *pool = served_pool(wanted->pooled.pool);
    result = pool ? take(pool, wanted->bytes, &stream, wanted->got) : CUDA_ERROR_INVALID_VALUE;
    unlock_after(&calls);
    return result;
}

/* Free in the order of a stream. cuMemFree need not have waited, so then the memory is kept for as long as work of the
 * current context goes on. While the process is evicted, no work uses the memory. */
CUresult swap_pool_free(enum release_way way, CUdeviceptr address, CUstream handle)
{
    struct order order = {0};
    struct stream stream;
    CUresult result = CUDA_SUCCESS;
    if (way != RELEASE_cuMemFree_v2) {
        result = orders_find_stream(&stream, handle, way == RELEASE_cuMemFreeAsync_ptsz);
        if (result == CUDA_SUCCESS)
            result = orders_begin(&stream, &order);
    } else if (!swap_state()->is_evicted) {
        quiet_order(&order);
    }
    guard_lock(&swap_state()->lock);
    struct block *block = result == CUDA_SUCCESS ? swap_pool_block(address) : NULL;
    if (result == CUDA_SUCCESS && !block)
        result = CUDA_ERROR_INVALID_VALUE;
    if (order.event && (!block || swap_state()->is_evicted)) {
        orders_keep_event(&order);
        order.event = NULL;
    }
    if (block && block->handed_out_as)
        descriptors_remove(block->handed_out_as);
    if (block)
        blocks_free(blocks(), &first_pool()[block->pool - 1].blocks, block, &order);
    guard_unlock(&swap_state()->lock);
    return result;
}

/* --- Pools ----------------------------------------------------------------------------------------- */

/* Our number for an attribute that is the sum of two: the driver's, for what it has given out of the pool itself, and
 * ours. */
static uint64_t *own_number(struct swap_pool *pool, CUmemPool_attribute which)
{
    switch (which) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->blocks.present_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->present_high_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->blocks.taken_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->taken_high_bytes;
    default:
        return NULL;
    }
}

static CUresult swap_pool_get_attribute(CUmemoryPool handle, CUmemPool_attribute which, void *value)
{
    CUresult result = real(cuMemPoolGetAttribute)(handle, which, value);
    if (result != CUDA_SUCCESS)
        return result;
    guard_lock(&swap_state()->lock);
    struct swap_pool *pool = find_pool(handle);
    const uint64_t *own = pool && !pool->is_drivers ? own_number(pool, which) : NULL;
    uint64_t sum;
    if (own) {
        memcpy(&sum, value, sizeof(sum));
        sum += *own;
        memcpy(value, &sum, sizeof(sum));
    }
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult swap_pool_set_attribute(CUmemoryPool handle, CUmemPool_attribute which, void *value)
{
    CUresult result = real(cuMemPoolSetAttribute)(handle, which, value);
    if (result != CUDA_SUCCESS)
        return result;
    guard_lock(&swap_state()->lock);
    struct swap_pool *pool = own_pool(handle);
    int on = 0;
    if (pool && (which == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
                 which == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)) {
        memcpy(&on, value, sizeof(on));
        *(which == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ? &pool->is_opportunistic
                                                             : &pool->waits_for_others) = on != 0;
    } else if (pool && which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(&pool->threshold_bytes, value, sizeof(pool->threshold_bytes));
    } else if (pool && which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
        pool->present_high_bytes = pool->blocks.present_bytes;
    } else if (pool && which == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        pool->taken_high_bytes = pool->blocks.taken_bytes;
    }
    guard_unlock(&swap_state()->lock);
    return result;
}

static CUresult swap_pool_set_access(CUmemoryPool handle, const CUmemAccessDesc *access, size_t count)
{
    CUresult result = real(cuMemPoolSetAccess)(handle, access, count);
    if (result != CUDA_SUCCESS)
        return result;
    struct own_calls calls;
    lock_for_own_calls(&calls);
    struct extents *extents = &swap_state()->extents;
    struct swap_pool *pool = own_pool(handle);
    for (size_t i = 0; pool && i < count; i++)
        if (access[i].location.id >= 0 && access[i].location.id < (int)LEDGER_GPUS)
            pool->access[access[i].location.id] = (uint8_t)access[i].flags;
    for (struct extent *extent = pool ? extents_next(extents, NULL) : NULL; extent;
         extent = extents_next(extents, extent))
        if (extent->pool == pool->blocks.number && extent_is_on_card(extent))
            real(cuMemSetAccess)(extent->address, extent->bytes, access, count);
    unlock_after(&calls);
    return result;
}

static CUresult swap_pool_trim(CUmemoryPool handle, size_t keep_bytes)
{
    CUresult result = real(cuMemPoolTrimTo)(handle, keep_bytes);
    struct own_calls calls;
    lock_for_own_calls(&calls);
    struct swap_pool *pool = result == CUDA_SUCCESS ? find_pool(handle) : NULL;
    if (pool)
        trim(pool, keep_bytes);
    unlock_after(&calls);
    return result;
}

/* The program has waited for work: give back what is above the threshold. Of an exported pool all that is free, as
 * nothing is allocated there any more. */
static void swap_pool_waited(void)
{
    struct own_calls calls;
    if (swap_state()->dying_count)
        dying_end_all(false, 0);
    lock_for_own_calls(&calls);
    for (struct swap_pool *pool = first_pool(); pool < end_of_pools(); pool++) {
        uint64_t keep_bytes = pool->is_exported ? 0 : pool->threshold_bytes;
        if (pool->handle && pool->blocks.present_bytes > keep_bytes &&
            pool->blocks.present_bytes - pool->blocks.taken_bytes >= SWAP_GRANULARITY_BYTES)
            trim(pool, keep_bytes);
    }
    unlock_after(&calls);
}

static CUresult swap_pool_export(void *shareable, CUmemoryPool handle, CUmemAllocationHandleType type,
                                 unsigned long long flags)
{
    struct own_calls calls;
    lock_for_own_calls(&calls);
    CUresult result = real(cuMemPoolExportToShareableHandle)(shareable, handle, type, flags);
    struct swap_pool *pool = result == CUDA_SUCCESS ? own_pool(handle) : NULL;
    if (pool) {
        pool->is_exported = true;
        trim(pool, 0);
    }
    unlock_after(&calls);
    return result;
}

/* What a stream has freed is in use until the stream's work has reached the free (cuda.h 13.0, cuMemPoolDestroy). */
static bool swap_pool_is_in_use(CUmemoryPool handle)
{
    struct own_calls calls;
    lock_for_own_calls(&calls);
    struct swap_pool *pool = find_pool(handle);
    if (pool)
        blocks_settle(blocks(), &pool->blocks, orders_is_over);
    bool is_in_use = pool && (pool->blocks.taken_bytes || pool->blocks.waiting);
    unlock_after(&calls);
    return is_in_use;
}

static CUresult swap_pool_destroy(CUmemoryPool handle)
{
    uint64_t address, bytes;
    CUresult result = real(cuMemPoolDestroy)(handle);
    struct own_calls calls;
    lock_for_own_calls(&calls);
    struct swap_pool *pool = result == CUDA_SUCCESS ? find_pool(handle) : NULL;
    if (pool) {
        GS_CHECK(!pool->blocks.taken_bytes && !pool->blocks.waiting);
        trim(pool, 0);
        while (!pool->blocks.present_bytes &&
               blocks_remove_region(blocks(), &pool->blocks, &address, &bytes)) {
            ranges_remove(&state()->regions, address, 0);
            real(cuMemAddressFree)(address, bytes);
        }
        pool->handle = NULL;
    }
    unlock_after(&calls);
    return result;
}

/* The context whose orders is_gone() finds. Under the lock. */
static CUcontext gone;

/* The events of these orders are gone with their context. */
static void forget_nothing(const struct order *order)
{
    (void)order;
}

static bool is_gone(const struct order *order)
{
    return order->context == gone;
}

void swap_pool_forget_context(CUcontext context)
{
    gone = context;
    blocks()->forget = forget_nothing;
    for (struct swap_pool *pool = first_pool(); pool < end_of_pools(); pool++)
        if (pool->handle)
            blocks_settle(blocks(), &pool->blocks, is_gone);
    blocks()->forget = orders_keep_event;
    orders_forget_context(context);
}

const struct engine_pools swap_pools = {
    .get_attribute = swap_pool_get_attribute,
    .set_attribute = swap_pool_set_attribute,
    .set_access = swap_pool_set_access,
    .trim = swap_pool_trim,
    .destroy = swap_pool_destroy,
    .export = swap_pool_export,
    .export_pointer = swap_pool_export_pointer,
    .engines_bytes = swap_pool_engines_bytes,
    .is_in_use = swap_pool_is_in_use,
    .made = swap_pool_made,
    .waited = swap_pool_waited,
};
