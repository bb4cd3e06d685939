/* ways.c - finds the contexts whose extents move (move.h). */
#include "intercept/memory/charge.h"
#include "intercept/memory/context_locks.h"
#include "intercept/memory/engine/swap/move/move.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

static void add_context(const struct record *record, void *argument)
{
    struct move *move = argument;
    CUcontext context = (CUcontext)(uintptr_t)record->key;
    if (record->kind == RECORD_CONTEXT && record->charged.context == record->key &&
        move->way_count < WAYS_MAX)
        move->ways[move->way_count++] = (struct way){.context = context};
}

void move_find_ways(struct move *move)
{
    uint32_t count = 0;
    records_each(memory_records(), add_context, move);
    for (uint32_t i = 0; i < move->way_count; i++) {
        struct way way = move->ways[i];
        struct own_calls calls;
        if (!own_calls_begin(&calls, way.context))
            continue;
        if (real(cuCtxGetDevice)(&way.device) == CUDA_SUCCESS)
            move->ways[count++] = way;
        own_calls_end(&calls);
    }
    move->way_count = count;
}

void move_add_own_ways(struct move *move)
{
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent)) {
        struct way way = {.device = extent->device, .is_own = true};
        bool has_way = extent->context || extent_is_on_card(extent);
        for (uint32_t i = 0; i < move->way_count && !has_way; i++)
            has_way = move->ways[i].device == extent->device;
        if (!has_way && move->way_count < WAYS_MAX &&
            real(cuCtxCreate_v2)(&way.context, 0, way.device) == CUDA_SUCCESS) {
            own_calls_pop();
            move->ways[move->way_count++] = way;
        }
    }
}

void move_end_own_ways(struct move *move)
{
    for (uint32_t i = 0; i < move->way_count; i++) {
        if (!move->ways[i].is_own)
            continue;
        arena_forget_context(&move->swap->arena, move->ways[i].context);
        tools_forget_context(move->ways[i].context);
        real(cuCtxDestroy_v2)(move->ways[i].context);
    }
}

bool move_goes_this_way(const struct move *move, const struct extent *extent)
{
    if (extent->context)
        return extent->context == move->way->context;
    const struct way *first = move->ways;
    while (first->device != extent->device && first < move->way)
        first++;
    return first == move->way && first->device == extent->device;
}

void move_lock_all(struct swap *swap)
{
    uint32_t count = session_slot()->ledger.policy->gpu_count;
    for (uint32_t gpu = 0; gpu < count && gpu < LEDGER_GPUS; gpu++)
        context_lock(gpu);
    guard_lock(&swap->lock);
}

void move_unlock_all(struct swap *swap)
{
    uint32_t count = session_slot()->ledger.policy->gpu_count;
    guard_unlock(&swap->lock);
    for (uint32_t gpu = count < LEDGER_GPUS ? count : LEDGER_GPUS; gpu-- > 0;)
        context_unlock(gpu);
}
