/* pool_charge.h - charging memory pools of stream-ordered allocation. A pool is charged for what it reserves of the
 * GPU, not for what the program has of it: a stream-ordered free gives nothing back until the pool does.
 *
 * At their first use, pools register how they are trimmed for a request that did not fit (charge_on_shortage()). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/memory/area.h"

/* The pool with this handle; if it is new, it is added for `gpu`. `managed`: its memory is managed memory. NULL if
 * there are too many pools. Call it inside own calls. */
struct pool *pool_charge_get(CUmemoryPool handle, uint32_t gpu, bool managed);
struct pool *pool_charge_find(CUmemoryPool handle);

/* The same for a pool that the program made: it is forgotten when the program destroys it, not before. */
struct pool *pool_charge_get_made(CUmemoryPool handle, CUdevice device, uint32_t gpu, bool managed);

/* The same for what the graphs of a device reserve for their memory nodes: that is treated as one more pool. */
struct pool *pool_charge_get_graphs(CUdevice device, uint32_t gpu);
struct pool *pool_charge_find_graphs(CUdevice device);

/* The pool was exported: what it gives back counts until the card shows it gone, as others may keep it. */
void pool_charge_note_export(CUmemoryPool handle);

/* The pool has memory of the host, for which nothing is charged. */
void pool_charge_note_host(CUmemoryPool handle);

/* A thread calls these before and after the driver allocates `bytes` from a pool, in this order, and holds the pool's
 * lock in between. pool_charge_prepare() takes the lock and reserves what the pool would have to grow by; it returns
 * false, without the lock, if that does not fit. pool_charge_correct() sets the charge to what the pool reserves now;
 * it returns false if the pool grew beyond what fits, and then the caller frees what it got and calls
 * pool_charge_give_up(). pool_charge_done() or pool_charge_give_up() gives the lock back. */
bool pool_charge_prepare(struct pool *pool, uint64_t bytes);
/* The same for a launch of the graph `exec`. It reserves nothing if `exec` was launched last and its memory is still
 * there (`mapped_by`, which the caller sets once the driver has mapped that memory). */
bool pool_charge_prepare_graph(struct pool *pool, uint64_t bytes, uint64_t exec);
bool pool_charge_correct(struct pool *pool);
void pool_charge_done(struct pool *pool);
void pool_charge_give_up(struct pool *pool);
/* In place of pool_charge_done(), where the allocation cannot be undone: charge what the pool grew by whether it fits
 * or not. */
void pool_charge_accept(struct pool *pool);

/* Give back what this process's pools on `gpu` reserve and do not use, for a request of `bytes` that did not fit.
 * Returns whether that changed anything; does nothing if `bytes` are more than the limit. */
bool pool_charge_trim(uint32_t gpu, uint64_t bytes);

/* The program trims a device's graph memory. Returns the driver's answer. */
CUresult pool_charge_trim_graphs(CUdevice device);
/* The driver has reused this graph's handle for another graph. */
void pool_charge_forget_exec(CUdevice device, uint64_t exec);

/* The program destroys a pool. If it still has allocations, or work still uses what was freed, that memory stays, but
 * the driver would not tell of it any more. So the driver's pool is kept, hidden from the program, until none of its
 * memory is in use. */
CUresult pool_charge_destroy(struct pool *pool);

/* Whether the program has destroyed this pool, while the driver's pool still exists. */
bool pool_charge_is_dying(CUmemoryPool handle);

/* A pool was destroyed: give back all that it was charged. Called under the pool's lock, taken before the driver was
 * asked, so that nobody looks at a pool that no longer exists. */
void pool_charge_forget(struct pool *pool);

/* Set the charge of every pool to what it reserves now. */
void pool_charge_refresh_all(void);

/* The same after memory has left the card, and with it what pools only kept for later. Does not wait: a pool that
 * another thread is at has its charge set by that thread. */
void pool_charge_after_leaving(void);

/* After a call in which the program waited for work. */
void pool_charge_waited_for_work(void);

/* After a call that may have made pools smaller. Costs one load if the process uses no pools. */
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
