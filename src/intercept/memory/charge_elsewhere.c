#include "intercept/memory/charge_elsewhere.h"

#include "intercept/memory/engine/engine.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"

static uint64_t key_of(CUdeviceptr base, uint32_t gpu)
{
    return base ^ ((uint64_t)gpu + 1) << 56;
}

/* The GPU on which the allocation is charged already. False: it is not managed memory of ours. `*context`: what it goes with. */
static bool home_of(CUdeviceptr base, uint32_t *gpu, CUcontext *context)
{
    struct record record;
    CUmemoryPool handle = NULL;
    *context = NULL;
    if (records_find(memory_records(), RECORD_POINTER, base, &record)) {
        *gpu = record.gpu;
        *context = (CUcontext)(uintptr_t)record.charged.context;
        return record.flags & RECORD_HIDDEN;
    }
    struct pool *pool =
        engine_plain.pointer_attribute(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, base) == CUDA_SUCCESS
            ? pool_charge_find(handle)
            : NULL;
    *gpu = pool ? pool->gpu : UINT32_MAX;
    return pool && pool->is_managed;
}

bool charge_elsewhere(CUdeviceptr address, uint32_t gpu)
{
    struct charge charge = {.gpu = gpu};
    struct record record;
    CUdeviceptr base;
    uint32_t home;
    if (engine_plain.address_range(&base, &charge.bytes, address) != CUDA_SUCCESS ||
        !home_of(base, &home, &charge.context) || home == gpu ||
        records_find(memory_records(), RECORD_ELSEWHERE, key_of(base, gpu), &record))
        return true;
    charge_begin_move();
    bool fits = charge_reserve(gpu, charge.bytes);
    if (fits) {
        charge_hide(&charge);
        atomic_store_explicit(&memory_area()->uses_elsewhere, true, memory_order_relaxed);
        fits = charge_keep(&charge, RECORD_ELSEWHERE, key_of(base, gpu), 0);
        if (!fits)
            charge_return(&charge);
    } else {
        refusal_by_limit(gpu, charge.bytes);
    }
    charge_end_move();
    return fits;
}

void charge_elsewhere_freed(CUdeviceptr base)
{
    struct memory_area *area = memory_area_if_any();
    struct record record;
    if (!area || !atomic_load_explicit(&area->uses_elsewhere, memory_order_relaxed))
        return;
    for (uint32_t gpu = 0; gpu < LEDGER_GPUS; gpu++)
        if (records_take(&area->records, RECORD_ELSEWHERE, key_of(base, gpu), &record))
            charge_release_record(&record);
}
