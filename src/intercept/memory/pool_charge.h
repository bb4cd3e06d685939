/* pool_charge.h - memory pools of stream-ordered allocation. A pool is charged by what it reserves of the GPU, not by
 * what programs have of it: a stream-ordered free gives nothing back until the pool does.
 *
 * At their first use, pools register how they are trimmed for a request that did not fit (charge_on_shortage()). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/area.h"

/* The pool with this handle; added, for `gpu`, when it is new: `managed` is whether its memory is. NULL when
 * there are too many. Call inside own calls. */
struct pool *pool_charge_get(CUmemoryPool handle, uint32_t gpu, bool managed);
struct pool *pool_charge_find(CUmemoryPool handle);

/* A pool that the program made: it is forgotten when the program destroys it, not before. */
struct pool *pool_charge_get_made(CUmemoryPool handle, CUdevice device, uint32_t gpu, bool managed);

/* What the graphs of a device reserve for their memory nodes, treated as one more pool. */
struct pool *pool_charge_get_graphs(CUdevice device, uint32_t gpu);
struct pool *pool_charge_find_graphs(CUdevice device);

/* Before and after the driver allocates `bytes` from a pool, in this order, in one thread, which has the pool's lock
 * in between. pool_charge_prepare() reserves what the pool would have to grow by. It returns false, without the lock,
 * if that does not fit. pool_charge_correct() sets the charge right. It returns false if the pool grew beyond what
 * fits: the caller then frees what it got and calls pool_charge_give_up(). pool_charge_done() or pool_charge_give_up()
 * ends it. */
bool pool_charge_prepare(struct pool *pool, uint64_t bytes);
/* The same for graphs and a launch of `exec`: nothing is asked if that was the last to be launched, and its
 * memory is still there (`mapped_by`, for the caller to set when the driver has mapped it). */
bool pool_charge_prepare_graph(struct pool *pool, uint64_t bytes, uint64_t exec);
bool pool_charge_correct(struct pool *pool);
void pool_charge_done(struct pool *pool);
void pool_charge_give_up(struct pool *pool);
/* Ends it where nothing can be taken back: what the pool grew by is charged whether it fits or not. */
void pool_charge_accept(struct pool *pool);

/* Give back what this process's pools on `gpu` reserve and do not use, for a request that did not fit.
 * Whether that was anything: nothing if `bytes` are more than the limit. */
bool pool_charge_trim(uint32_t gpu, uint64_t bytes);

/* The program trims a device's graph memory: the driver's answer. */
CUresult pool_charge_trim_graphs(CUdevice device);
/* A graph's handle means another one now. */
void pool_charge_forget_exec(CUdevice device, uint64_t exec);

/* The program destroys a pool. While allocations of it are left, the driver keeps their memory but would not
 * tell of it any more: so the driver's pool is kept, unseen, until the last of them is freed. */
CUresult pool_charge_destroy(struct pool *pool);

/* Whether the program has destroyed this pool, which still is there for the driver. */
bool pool_charge_is_dying(CUmemoryPool handle);

/* A pool was destroyed: give back all that was charged. Under the pool's lock, taken before the driver was asked: nobody
 * looks at a pool that is no more. */
void pool_charge_forget(struct pool *pool);

/* Set the charge of every pool to what it reserves now. */
void pool_charge_refresh_all(void);

/* After a call that waited for work. */
void pool_charge_waited_for_work(void);

/* After a call that may have made pools smaller. One load where the process uses no pools. */
static inline void pool_charge_refresh(void)
{
    struct memory_area *area = memory_area_if_any();
    if (area && atomic_load_explicit(&area->uses_pools, memory_order_relaxed))
        pool_charge_refresh_all();
}

static inline void pool_charge_waited(void)
{
    struct memory_area *area = memory_area_if_any();
    if (area && atomic_load_explicit(&area->uses_pools, memory_order_relaxed))
        pool_charge_waited_for_work();
}
