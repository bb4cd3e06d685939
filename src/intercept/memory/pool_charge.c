#include "intercept/memory/pool_charge.h"

#include "cuda/driver_more.h"
#include "intercept/memory/charge.h"
#include "intercept/resolve/real.h"

/* A place in the table whose pool is gone: free, but the search goes on behind it. */
#define GONE ((void *)1)

#define GRAPH_STEP_BYTES (UINT64_C(2) << 20) /* what graphs reserve more is whole pages of this (measure) */

void pool_charge_calls_begin(CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    charge_enter();
    if (real(cuThreadExchangeStreamCaptureMode))
        real(cuThreadExchangeStreamCaptureMode)(mode);
}

void pool_charge_calls_end(CUstreamCaptureMode *mode)
{
    if (real(cuThreadExchangeStreamCaptureMode))
        real(cuThreadExchangeStreamCaptureMode)(mode);
    charge_leave();
}

static void *handle_of(struct pool *pool)
{
    return atomic_load_explicit(&pool->handle, memory_order_acquire); /* pool_charge_get() */
}

/* The pools of this process, up to the first place that was never used: `pool` itself, or NULL. */
static struct pool *pool_if_any(struct pool *pool)
{
    return pool < private_get()->pools + POOLS_MAX && handle_of(pool) ? pool : NULL;
}

static struct pool *first_pool(void)
{
    return pool_if_any(private_get()->pools);
}

static struct pool *next_pool(struct pool *pool)
{
    return pool_if_any(pool + 1);
}

struct pool *pool_charge_find(CUmemoryPool handle)
{
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool))
        if (handle_of(pool) == (void *)handle)
            return pool;
    return NULL;
}

static struct pool *get(CUmemoryPool handle, uint32_t gpu, struct pool kind)
{
    struct private_area *area = private_get();
    struct pool *found = pool_charge_find(handle);
    if (found)
        return found;
    pthread_mutex_lock(&area->pool_charge_turn);
    found = pool_charge_find(handle);
    for (struct pool *pool = area->pools; !found && pool < area->pools + POOLS_MAX; pool++) {
        void *there = handle_of(pool);
        if (there && there != GONE)
            continue;
        pthread_mutex_lock(&pool->turn);
        pool->gpu = gpu;
        pool->charged_bytes = 0;
        pool->made = kind.made;
        pool->managed = kind.managed;
        pool->graphs = kind.graphs;
        pool->device = kind.device;
        pool->mapped_by = 0;
        pool->asleep = false;
        atomic_store_explicit(&pool->dying, false, memory_order_relaxed);
        atomic_store_explicit(&pool->handle, handle, memory_order_release); /* handle_of() */
        pthread_mutex_unlock(&pool->turn);
        found = pool;
    }
    atomic_store_explicit(&area->pool_charge_used, true, memory_order_relaxed);
    pthread_mutex_unlock(&area->pool_charge_turn);
    return found;
}

struct pool *pool_charge_get(CUmemoryPool handle, uint32_t gpu, bool managed)
{
    return get(handle, gpu, (struct pool){.managed = managed});
}

struct pool *pool_charge_get_made(CUmemoryPool handle, CUdevice device, uint32_t gpu, bool managed)
{
    return get(handle, gpu, (struct pool){.made = true, .managed = managed, .device = device});
}

bool pool_charge_is_dying(CUmemoryPool handle)
{
    struct pool *pool = charge_holds() ? pool_charge_find(handle) : NULL;
    return pool && atomic_load_explicit(&pool->dying, memory_order_relaxed);
}

/* No pool's handle: those are aligned. */
static CUmemoryPool handle_of_graphs(CUdevice device)
{
    return (CUmemoryPool)((uintptr_t)(unsigned)device << 2 | 3);
}

struct pool *pool_charge_get_graphs(CUdevice device, uint32_t gpu)
{
    return get(handle_of_graphs(device), gpu, (struct pool){.graphs = true, .device = device});
}

struct pool *pool_charge_find_graphs(CUdevice device)
{
    return pool_charge_find(handle_of_graphs(device));
}

/* --- Under the pool's turn ------------------------------------------------------------------------- */

/* The driver's handle, while it may be asked about the pool. */
static CUmemoryPool awake(struct pool *pool)
{
    void *handle = handle_of(pool);
    return handle == GONE || pool->asleep ? NULL : handle;
}

static bool attribute(struct pool *pool, CUmemPool_attribute which, uint64_t *bytes)
{
    cuuint64_t value = 0;
    CUmemoryPool handle = awake(pool);
    if (handle && pool->graphs) {
        CUgraphMem_attribute of_graphs = which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
                                             ? CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
                                             : CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
        if (!real(cuDeviceGetGraphMemAttribute) ||
            real(cuDeviceGetGraphMemAttribute)(pool->device, of_graphs, &value) != CUDA_SUCCESS)
            return false;
        *bytes = value;
        return true;
    }
    if (!handle || !real(cuMemPoolGetAttribute) ||
        real(cuMemPoolGetAttribute)(handle, which, &value) != CUDA_SUCCESS)
        return false;
    *bytes = value;
    return true;
}

/* The ledger holds `bytes` more for the pool, or it shall hold as many less. */
static void grown(struct pool *pool, uint64_t bytes)
{
    pool->charged_bytes += bytes;
    if (pool->managed)
        ledger_hide(session_slot(), pool->gpu, bytes);
}

static void shrink(struct pool *pool, uint64_t bytes)
{
    if (pool->managed)
        ledger_unhide(session_slot(), pool->gpu, bytes);
    charge_release(pool->gpu, bytes);
    pool->charged_bytes -= bytes;
}

/* Set the charge to what the pool reserves. What the driver took unasked is charged whether it fits or not.
 */
static void set_charge(struct pool *pool)
{
    uint64_t reserved;
    if (!attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
        return;
    if (reserved < pool->charged_bytes) {
        shrink(pool, pool->charged_bytes - reserved);
    } else if (reserved > pool->charged_bytes) {
        uint64_t growth = reserved - pool->charged_bytes;
        ledger_charge(session_slot(), pool->gpu, growth);
        grown(pool, growth);
    }
}

static bool trim(struct pool *pool)
{
    CUmemoryPool handle = awake(pool);
    uint64_t before = pool->charged_bytes;
    if (handle && pool->graphs && real(cuDeviceGraphMemTrim))
        real(cuDeviceGraphMemTrim)(pool->device);
    else if (handle && !pool->graphs && real(cuMemPoolTrimTo))
        real(cuMemPoolTrimTo)(handle, 0);
    set_charge(pool);
    if (pool->charged_bytes == before)
        return false;
    pool->mapped_by = 0;
    return true;
}

/* Reserve what the pool's unused part does not cover. */
static bool reserve_growth(struct pool *pool, uint64_t bytes)
{
    uint64_t used = 0;
    set_charge(pool);
    if (!attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
        used = pool->charged_bytes;
    uint64_t unused = pool->charged_bytes > used ? pool->charged_bytes - used : 0;
    uint64_t growth = bytes > unused ? bytes - unused : 0;
    if (pool->graphs && __builtin_add_overflow(growth, GRAPH_STEP_BYTES - 1, &growth))
        return false;
    if (pool->graphs)
        growth &= ~(GRAPH_STEP_BYTES - 1);
    if (!ledger_reserve(session_slot(), pool->gpu, growth))
        return false;
    grown(pool, growth);
    return true;
}

/* What is more than the limit does not fit whatever is given back. */
static bool is_hopeless(uint32_t gpu, uint64_t bytes)
{
    const struct ledger_policy *policy = session_slot()->ledger.policy;
    return bytes > atomic_load_explicit(&policy->gpus[gpu].limit_bytes, memory_order_relaxed);
}

/* Trim all pools of a GPU. `held` is the one whose turn this thread has: others are then left out while busy,
 * as their turn may be held by a thread that waits for ours. */
static bool trim_all(uint32_t gpu, struct pool *held)
{
    bool any = false;
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool)) {
        if (pool != held &&
            (held ? pthread_mutex_trylock(&pool->turn) : pthread_mutex_lock(&pool->turn)) != 0)
            continue;
        if (pool->gpu == gpu)
            any |= trim(pool);
        if (pool != held)
            pthread_mutex_unlock(&pool->turn);
    }
    return any;
}

/* --- Allocation ------------------------------------------------------------------------------------ */

bool pool_charge_prepare(struct pool *pool, uint64_t bytes)
{
    return pool_charge_prepare_graph(pool, bytes, 0);
}

bool pool_charge_prepare_graph(struct pool *pool, uint64_t bytes, uint64_t exec)
{
    CUstreamCaptureMode mode;
    pthread_mutex_lock(&pool->turn);
    pool->asleep = false;
    if (exec && pool->mapped_by == exec)
        return true;
    pool_charge_calls_begin(&mode);
    bool fits = reserve_growth(pool, bytes) ||
                (!is_hopeless(pool->gpu, bytes) && trim_all(pool->gpu, pool) && reserve_growth(pool, bytes));
    pool_charge_calls_end(&mode);
    if (!fits)
        pthread_mutex_unlock(&pool->turn);
    return fits;
}

bool pool_charge_settle(struct pool *pool)
{
    CUstreamCaptureMode mode;
    uint64_t reserved;
    bool fits = true;
    pool_charge_calls_begin(&mode);
    if (attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) && reserved > pool->charged_bytes) {
        uint64_t growth = reserved - pool->charged_bytes;
        fits = ledger_reserve(session_slot(), pool->gpu, growth);
        if (fits)
            grown(pool, growth);
    } else {
        set_charge(pool);
    }
    pool_charge_calls_end(&mode);
    return fits;
}

void pool_charge_done(struct pool *pool)
{
    pthread_mutex_unlock(&pool->turn);
}

void pool_charge_give_up(struct pool *pool)
{
    CUstreamCaptureMode mode;
    pool_charge_calls_begin(&mode);
    trim(pool);
    pool_charge_calls_end(&mode);
    pthread_mutex_unlock(&pool->turn);
}

void pool_charge_accept(struct pool *pool)
{
    CUstreamCaptureMode mode;
    pool_charge_calls_begin(&mode);
    set_charge(pool);
    pool_charge_calls_end(&mode);
    pthread_mutex_unlock(&pool->turn);
}

/* --- Giving back ----------------------------------------------------------------------------------- */

bool pool_charge_trim(uint32_t gpu, uint64_t bytes)
{
    struct private_area *area = private_get();
    CUstreamCaptureMode mode;
    if (is_hopeless(gpu, bytes) || !atomic_load_explicit(&area->pool_charge_used, memory_order_relaxed))
        return false;
    pool_charge_calls_begin(&mode);
    bool any = trim_all(gpu, NULL);
    pool_charge_calls_end(&mode);
    return any;
}

CUresult pool_charge_trim_graphs(CUdevice device)
{
    struct pool *pool = charge_holds() ? pool_charge_find_graphs(device) : NULL;
    CUstreamCaptureMode mode;
    if (!pool)
        return real(cuDeviceGraphMemTrim)(device);
    pthread_mutex_lock(&pool->turn);
    CUresult result = real(cuDeviceGraphMemTrim)(device);
    uint64_t before = pool->charged_bytes;
    pool_charge_calls_begin(&mode);
    set_charge(pool);
    pool_charge_calls_end(&mode);
    if (pool->charged_bytes != before)
        pool->mapped_by = 0;
    pthread_mutex_unlock(&pool->turn);
    return result;
}

void pool_charge_refresh_graphs(void)
{
    CUstreamCaptureMode mode;
    pool_charge_calls_begin(&mode);
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool)) {
        pthread_mutex_lock(&pool->turn);
        if (pool->graphs) {
            pool->asleep = false;
            set_charge(pool);
        }
        pthread_mutex_unlock(&pool->turn);
    }
    pool_charge_calls_end(&mode);
}

void pool_charge_forget_exec(CUdevice device, uint64_t exec)
{
    struct pool *pool = pool_charge_find_graphs(device);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->turn);
    if (pool->mapped_by == exec)
        pool->mapped_by = 0;
    pthread_mutex_unlock(&pool->turn);
}

/* Destroying the current pool of a device makes its default one current (CUDA driver API, cuMemPoolDestroy).
 */
static void leave_current(struct pool *pool)
{
    CUmemoryPool current, standard;
    if (real(cuDeviceGetMemPool) && real(cuDeviceGetDefaultMemPool) && real(cuDeviceSetMemPool) &&
        real(cuDeviceGetMemPool)(&current, pool->device) == CUDA_SUCCESS &&
        (void *)current == handle_of(pool) &&
        real(cuDeviceGetDefaultMemPool)(&standard, pool->device) == CUDA_SUCCESS)
        real(cuDeviceSetMemPool)(pool->device, standard);
}

/* Under the pool's turn: let a pool without allocations go. */
static CUresult destroy_empty(struct pool *pool)
{
    CUresult result = real(cuMemPoolDestroy)((CUmemoryPool)handle_of(pool));
    if (result == CUDA_SUCCESS)
        pool_charge_forget(pool);
    return result;
}

static bool has_allocations(struct pool *pool)
{
    uint64_t used;
    return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && used;
}

CUresult pool_charge_destroy(struct pool *pool)
{
    CUstreamCaptureMode mode;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pool->turn);
    pool_charge_calls_begin(&mode);
    if (atomic_load_explicit(&pool->dying, memory_order_relaxed)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!pool->made || !has_allocations(pool)) {
        result = destroy_empty(pool); /* the driver refuses for a device's own */
    } else {
        cuuint64_t keep_bytes = 0;
        atomic_store_explicit(&pool->dying, true, memory_order_relaxed);
        leave_current(pool);
        if (real(cuMemPoolSetAttribute))
            real(cuMemPoolSetAttribute)((CUmemoryPool)handle_of(pool), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                        &keep_bytes);
        trim(pool);
    }
    pool_charge_calls_end(&mode);
    pthread_mutex_unlock(&pool->turn);
    return result;
}

void pool_charge_forget(struct pool *pool)
{
    shrink(pool, pool->charged_bytes);
    atomic_store_explicit(&pool->handle, GONE, memory_order_release); /* handle_of() */
    atomic_store_explicit(&pool->dying, false, memory_order_relaxed);
}

void pool_charge_forget_gpu(uint32_t gpu)
{
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool)) {
        pthread_mutex_lock(&pool->turn);
        bool is_dying = atomic_load_explicit(&pool->dying, memory_order_relaxed);
        if (pool->gpu == gpu && is_dying) {
            real(cuMemPoolDestroy)((CUmemoryPool)handle_of(pool)); /* nothing of it is left to be freed */
            pool_charge_forget(pool);
        } else if (pool->gpu == gpu) {
            /* Still known: it may be asked for next where another device works, and would be taken for none
             * of ours. */
            shrink(pool, pool->charged_bytes);
            pool->mapped_by = 0;
            pool->asleep = true;
        }
        pthread_mutex_unlock(&pool->turn);
    }
}

void pool_charge_refresh_all(void)
{
    CUstreamCaptureMode mode;
    if (!charge_holds())
        return;
    pool_charge_calls_begin(&mode);
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool)) {
        pthread_mutex_lock(&pool->turn);
        if (atomic_load_explicit(&pool->dying, memory_order_relaxed) && !has_allocations(pool))
            destroy_empty(pool);
        else
            set_charge(pool);
        pthread_mutex_unlock(&pool->turn);
    }
    pool_charge_calls_end(&mode);
}
