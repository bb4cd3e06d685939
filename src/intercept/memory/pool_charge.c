#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/guard.h"

#include "base/check.h"
#include "cuda/driver_more.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/resolve/real.h"

/* Marks a place in the table whose pool is gone. The place is free, but a search goes on behind it. */
#define GONE ((void *)1)

#define GRAPH_STEP_BYTES (UINT64_C(2) << 20) /* graphs reserve more in multiples of this (measure) */

static void *handle_of(struct pool *pool)
{
    return atomic_load_explicit(&pool->handle, memory_order_acquire); /* pool_charge_get() */
}

/* `pool` itself; NULL from the first place on that was never used, where the process's pools end. */
static struct pool *pool_if_any(struct pool *pool)
{
    return pool < memory_area()->pools + POOLS_MAX && handle_of(pool) ? pool : NULL;
}

static struct pool *first_pool(void)
{
    return pool_if_any(memory_area()->pools);
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
    struct memory_area *area = memory_area();
    struct pool *found = pool_charge_find(handle);
    if (found)
        return found;
    guard_lock(&area->pools_lock);
    found = pool_charge_find(handle);
    for (struct pool *pool = area->pools; !found && pool < area->pools + POOLS_MAX; pool++) {
        void *there = handle_of(pool);
        if (there && there != GONE)
            continue;
        guard_lock(&pool->lock);
        pool->gpu = gpu;
        pool->charged_bytes = 0;
        pool->is_made = kind.is_made;
        pool->is_managed = kind.is_managed;
        pool->is_of_graphs = kind.is_of_graphs;
        pool->is_of_host = kind.is_of_host;
        pool->device = kind.device;
        pool->mapped_by = 0;
        atomic_store_explicit(&pool->is_shared, false, memory_order_relaxed);
        atomic_store_explicit(&pool->is_dying, false, memory_order_relaxed);
        atomic_store_explicit(&pool->handle, handle, memory_order_release); /* handle_of() */
        guard_unlock(&pool->lock);
        found = pool;
    }
    charge_on_shortage(pool_charge_trim);
    atomic_store_explicit(&area->uses_pools, true, memory_order_relaxed);
    guard_unlock(&area->pools_lock);
    return found;
}

struct pool *pool_charge_get(CUmemoryPool handle, uint32_t gpu, bool managed)
{
    return get(handle, gpu, (struct pool){.is_managed = managed});
}

struct pool *pool_charge_get_made(CUmemoryPool handle, CUdevice device, uint32_t gpu, bool managed)
{
    return get(handle, gpu, (struct pool){.is_made = true, .is_managed = managed, .device = device});
}

void pool_charge_note_export(CUmemoryPool handle)
{
    struct pool *pool = charge_has_any() ? pool_charge_find(handle) : NULL;
    if (pool)
        atomic_store_explicit(&pool->is_shared, true, memory_order_relaxed);
}

void pool_charge_note_host(CUmemoryPool handle)
{
    get(handle, 0, (struct pool){.is_of_host = true});
}

bool pool_charge_is_dying(CUmemoryPool handle)
{
    struct pool *pool = charge_has_any() ? pool_charge_find(handle) : NULL;
    return pool && atomic_load_explicit(&pool->is_dying, memory_order_relaxed);
}

/* Not a handle of any pool, since those are aligned. */
static CUmemoryPool handle_of_graphs(CUdevice device)
{
    return (CUmemoryPool)((uintptr_t)(unsigned)device << 2 | 3);
}

struct pool *pool_charge_get_graphs(CUdevice device, uint32_t gpu)
{
    return get(handle_of_graphs(device), gpu, (struct pool){.is_of_graphs = true, .device = device});
}

struct pool *pool_charge_find_graphs(CUdevice device)
{
    return pool_charge_find(handle_of_graphs(device));
}

/* --- Under the pool's lock ------------------------------------------------------------------------- */

/* The driver's handle; NULL if the pool is gone. */
static CUmemoryPool living(struct pool *pool)
{
    void *handle = handle_of(pool);
    return handle == GONE ? NULL : handle;
}

static bool attribute(struct pool *pool, CUmemPool_attribute which, uint64_t *bytes)
{
    cuuint64_t value = 0;
    CUmemoryPool handle = living(pool);
    if (pool->is_of_host)
        return false;
    if (handle && pool->is_of_graphs) {
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
        engine_pools()->get_attribute(handle, which, &value) != CUDA_SUCCESS)
        return false;
    *bytes = value;
    return true;
}

/* The ledger has `bytes` more for the pool; give `bytes` back to the ledger. */
static void grown(struct pool *pool, uint64_t bytes)
{
    pool->charged_bytes += bytes;
    if (pool->is_managed)
        ledger_hide(session_slot(), pool->gpu, bytes);
}

static void shrink(struct pool *pool, uint64_t bytes)
{
    GS_CHECK(bytes <= pool->charged_bytes);
    if (pool->is_managed)
        ledger_unhide(session_slot(), pool->gpu, bytes);
    if (atomic_load_explicit(&pool->is_shared, memory_order_relaxed))
        charge_let_go(pool->gpu, bytes);
    charge_release(pool->gpu, bytes);
    pool->charged_bytes -= bytes;
}

/* Set the charge to what the pool reserves. What the driver took without being asked is charged whether it fits or not. */
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

/* The same, where memory that a graph had may be gone. Returns whether the charge has changed. */
static bool follow(struct pool *pool)
{
    uint64_t before = pool->charged_bytes;
    set_charge(pool);
    if (pool->charged_bytes == before)
        return false;
    pool->mapped_by = 0;
    return true;
}

static bool trim(struct pool *pool)
{
    CUmemoryPool handle = living(pool);
    if (handle && pool->is_of_graphs && real(cuDeviceGraphMemTrim))
        real(cuDeviceGraphMemTrim)(pool->device);
    else if (handle && !pool->is_of_graphs && !pool->is_of_host && real(cuMemPoolTrimTo))
        engine_pools()->trim(handle, 0);
    return follow(pool);
}

static bool reserve_now(uint32_t gpu, uint64_t bytes)
{
    return ledger_reserve(session_slot(), gpu, bytes);
}

/* Reserve what the pool's unused part does not cover of `bytes`. */
static bool reserve_growth_by(bool (*reserve)(uint32_t gpu, uint64_t bytes), struct pool *pool,
                              uint64_t bytes)
{
    uint64_t used = 0;
    set_charge(pool);
    if (!attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
        used = pool->charged_bytes;
    uint64_t unused = pool->charged_bytes > used ? pool->charged_bytes - used : 0;
    uint64_t growth = bytes > unused ? bytes - unused : 0;
    if (pool->is_of_graphs && __builtin_add_overflow(growth, GRAPH_STEP_BYTES - 1, &growth))
        return false;
    if (pool->is_of_graphs)
        growth &= ~(GRAPH_STEP_BYTES - 1);
    if (!reserve(pool->gpu, growth))
        return false;
    grown(pool, growth);
    return true;
}

static bool reserve_growth(struct pool *pool, uint64_t bytes)
{
    return reserve_growth_by(reserve_now, pool, bytes);
}

/* More than the limit does not fit, whatever is given back. */
static bool is_hopeless(uint32_t gpu, uint64_t bytes)
{
    const struct ledger_policy *policy = session_slot()->ledger.policy;
    return bytes > atomic_load_explicit(&policy->gpus[gpu].limit_bytes, memory_order_relaxed);
}

/* Trim all pools of a GPU. `own` is the pool whose lock this thread has, or NULL. With `own`, pools that are busy are
 * left out, and `*left_out` says whether there were any: a thread that has another pool's lock may wait for ours. */
static bool trim_all(uint32_t gpu, struct pool *own, bool *left_out)
{
    bool any = false;
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool)) {
        if (own && pool != own && !guard_trylock(&pool->lock)) {
            *left_out = true;
            continue;
        }
        if (!own)
            guard_lock(&pool->lock);
        if (pool->gpu == gpu)
            any |= trim(pool);
        if (pool != own)
            guard_unlock(&pool->lock);
    }
    return any;
}

/* --- Allocation ------------------------------------------------------------------------------------ */

/* Under the pool's lock: reserve after trimming the others. Pools that other threads are at are waited for without the
 * lock, and where this pool is gone then, so is the request. A launch of a graph on several GPUs has the lock of each
 * GPU's graph memory, so it waits for nobody. */
static bool reserve_by_trimming(struct pool *pool, uint64_t bytes)
{
    bool left_out = false;
    void *handle = handle_of(pool);
    trim_all(pool->gpu, pool, &left_out);
    if (reserve_growth(pool, bytes))
        return true;
    if (!left_out || pool->is_of_graphs)
        return false;
    guard_unlock(&pool->lock);
    trim_all(pool->gpu, NULL, NULL);
    guard_lock(&pool->lock);
    return handle_of(pool) == handle && reserve_growth(pool, bytes);
}

bool pool_charge_prepare(struct pool *pool, uint64_t bytes)
{
    return pool_charge_prepare_graph(pool, bytes, 0);
}

bool pool_charge_prepare_graph(struct pool *pool, uint64_t bytes, uint64_t exec)
{
    struct own_calls calls;
    guard_lock(&pool->lock);
    if (exec && pool->mapped_by == exec)
        return true;
    own_calls_begin(&calls, NULL);
    bool fits =
        reserve_growth(pool, bytes) ||
        (!is_hopeless(pool->gpu, bytes) &&
         (reserve_by_trimming(pool, bytes) || reserve_growth_by(charge_reserve_once_seen_gone, pool, bytes)));
    own_calls_end(&calls);
    if (!fits)
        guard_unlock(&pool->lock);
    return fits;
}

bool pool_charge_correct(struct pool *pool)
{
    struct own_calls calls;
    uint64_t reserved;
    bool fits = true;
    own_calls_begin(&calls, NULL);
    if (attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) && reserved > pool->charged_bytes) {
        uint64_t growth = reserved - pool->charged_bytes;
        fits = ledger_reserve(session_slot(), pool->gpu, growth);
        if (fits)
            grown(pool, growth);
    } else {
        set_charge(pool);
    }
    own_calls_end(&calls);
    return fits;
}

void pool_charge_done(struct pool *pool)
{
    guard_unlock(&pool->lock);
}

void pool_charge_give_up(struct pool *pool)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    trim(pool);
    own_calls_end(&calls);
    guard_unlock(&pool->lock);
}

void pool_charge_accept(struct pool *pool)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    set_charge(pool);
    own_calls_end(&calls);
    guard_unlock(&pool->lock);
}

/* --- Giving back ----------------------------------------------------------------------------------- */

bool pool_charge_trim(uint32_t gpu, uint64_t bytes)
{
    struct memory_area *area = memory_area();
    struct own_calls calls;
    if (is_hopeless(gpu, bytes) || !atomic_load_explicit(&area->uses_pools, memory_order_relaxed))
        return false;
    own_calls_begin(&calls, NULL);
    bool any = trim_all(gpu, NULL, NULL);
    own_calls_end(&calls);
    return any;
}

CUresult pool_charge_trim_graphs(CUdevice device)
{
    struct pool *pool = charge_has_any() ? pool_charge_find_graphs(device) : NULL;
    struct own_calls calls;
    if (!pool)
        return real(cuDeviceGraphMemTrim)(device);
    guard_lock(&pool->lock);
    CUresult result = real(cuDeviceGraphMemTrim)(device);
    own_calls_begin(&calls, NULL);
    follow(pool);
    own_calls_end(&calls);
    guard_unlock(&pool->lock);
    return result;
}

void pool_charge_forget_exec(CUdevice device, uint64_t exec)
{
    struct pool *pool = pool_charge_find_graphs(device);
    if (!pool)
        return;
    guard_lock(&pool->lock);
    if (pool->mapped_by == exec)
        pool->mapped_by = 0;
    guard_unlock(&pool->lock);
}

/* Destroying a device's current pool makes its default pool current (CUDA driver API, cuMemPoolDestroy). */
static void leave_current(struct pool *pool)
{
    CUmemoryPool current, standard;
    if (real(cuDeviceGetMemPool) && real(cuDeviceGetDefaultMemPool) && real(cuDeviceSetMemPool) &&
        real(cuDeviceGetMemPool)(&current, pool->device) == CUDA_SUCCESS &&
        (void *)current == handle_of(pool) &&
        real(cuDeviceGetDefaultMemPool)(&standard, pool->device) == CUDA_SUCCESS)
        real(cuDeviceSetMemPool)(pool->device, standard);
}

/* Under the pool's lock: destroy a pool whose memory is not in use. */
static CUresult destroy_empty(struct pool *pool)
{
    CUresult result = engine_pools()->destroy((CUmemoryPool)handle_of(pool));
    if (result == CUDA_SUCCESS)
        pool_charge_forget(pool);
    return result;
}

/* Whether the program, or its work, still has memory of the pool. */
static bool is_in_use(struct pool *pool)
{
    uint64_t used;
    CUmemoryPool handle = living(pool);
    return (attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && used) ||
           (handle && engine_pools()->is_in_use(handle));
}

/* Only pools that a program makes can be exported. Without any, nothing that the process is charged for is in others'
 * hands, so nothing of that can be left when it ends. Takes the lock for adding pools: call it without any pool's. */
static void forget_exports_if_none(void)
{
    struct memory_area *area = memory_area();
    bool has_any = atomic_load_explicit(&area->notes_for_good, memory_order_relaxed);
    guard_lock(&area->pools_lock);
    for (struct pool *pool = first_pool(); pool && !has_any; pool = next_pool(pool))
        has_any = living(pool) && pool->is_made;
    if (!has_any)
        ledger_forget_exports(session_slot());
    guard_unlock(&area->pools_lock);
}

CUresult pool_charge_destroy(struct pool *pool)
{
    struct own_calls calls;
    CUresult result = CUDA_SUCCESS;
    guard_lock(&pool->lock);
    own_calls_begin(&calls, NULL);
    if (atomic_load_explicit(&pool->is_dying, memory_order_relaxed)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!pool->is_made || !is_in_use(pool)) {
        result = destroy_empty(pool); /* for a device's own pool the driver refuses */
    } else {
        cuuint64_t keep_bytes = 0;
        atomic_store_explicit(&pool->is_dying, true, memory_order_relaxed);
        leave_current(pool);
        if (real(cuMemPoolSetAttribute))
            engine_pools()->set_attribute((CUmemoryPool)handle_of(pool), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                          &keep_bytes);
        trim(pool);
    }
    own_calls_end(&calls);
    guard_unlock(&pool->lock);
    if (result == CUDA_SUCCESS)
        forget_exports_if_none();
    return result;
}

void pool_charge_forget(struct pool *pool)
{
    shrink(pool, pool->charged_bytes);
    atomic_store_explicit(&pool->handle, GONE, memory_order_release); /* handle_of() */
    atomic_store_explicit(&pool->is_dying, false, memory_order_relaxed);
}

void pool_charge_refresh_all(void)
{
    struct own_calls calls;
    bool any_ended = false;
    if (!charge_has_any())
        return;
    own_calls_begin(&calls, NULL);
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool)) {
        guard_lock(&pool->lock);
        if (atomic_load_explicit(&pool->is_dying, memory_order_relaxed) && !is_in_use(pool))
            any_ended |= destroy_empty(pool) == CUDA_SUCCESS;
        else
            follow(pool);
        guard_unlock(&pool->lock);
    }
    own_calls_end(&calls);
    if (any_ended)
        forget_exports_if_none();
}

void pool_charge_after_leaving(void)
{
    struct own_calls calls;
    if (!atomic_load_explicit(&memory_area()->uses_pools, memory_order_relaxed))
        return;
    own_calls_begin(&calls, NULL);
    for (struct pool *pool = first_pool(); pool; pool = next_pool(pool))
        if (guard_trylock(&pool->lock)) {
            follow(pool);
            guard_unlock(&pool->lock);
        }
    own_calls_end(&calls);
}

void pool_charge_waited_for_work(void)
{
    if (!charge_has_any())
        return;
    engine_pools()->waited();
    pool_charge_refresh_all();
}
