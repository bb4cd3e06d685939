#include "intercept/memory/engine/unmovable.h"

#include "intercept/memory/area.h"
#include "intercept/memory/engine/engine.h"

static void add_unmovable(const struct record *record, void *argument)
{
    uint64_t *bytes = argument;
    if (record_is_charged(record->kind) && !(record->flags & RECORD_MOVES))
        *bytes += record->charged.bytes;
}

/* As it is at this moment; read without the pool's lock. */
static uint64_t bytes_of_pool(struct pool *pool)
{
    CUmemoryPool handle = (CUmemoryPool)atomic_load_explicit(&pool->handle, memory_order_relaxed);
    return !pool->is_of_graphs && engine_pools()->moves(handle) ? 0 : pool->charged_bytes;
}

uint64_t unmovable_bytes(void)
{
    struct memory_area *area = memory_area();
    uint64_t bytes = 0;
    records_each(&area->records, add_unmovable, &bytes);
    for (unsigned i = 0; i < POOLS_MAX && atomic_load_explicit(&area->pools[i].handle, memory_order_relaxed);
         i++)
        bytes += bytes_of_pool(&area->pools[i]);
    return bytes;
}
