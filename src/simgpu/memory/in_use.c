#include "simgpu/memory/in_use.h"

#include <stdlib.h>

#include "simgpu/device/faults.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

struct use {
    CUcontext context;
    uint64_t address, bytes;
    struct timeline_marks until; /* what its work waits for, and the work itself */
};

/* By the GPU that does the work. Under execution_lock(). */
static struct uses {
    struct use *uses;
    size_t count, room;
} uses_of[DEVICE_GPUS];

static bool may_go_early(void)
{
    return !constant_whole(SIM_UNMAP_WAITS) || !constant_whole(SIM_FREE_BLOCK_WAITS);
}

/* Forget the work that is over. */
static void settle(unsigned gpu, struct uses *uses)
{
    size_t kept = 0;
    for (size_t i = 0; i < uses->count; i++)
        if (!execution_is_known_reached(gpu, &uses->uses[i].until))
            uses->uses[kept++] = uses->uses[i];
    uses->count = kept;
}

static bool make_room(unsigned gpu, struct uses *uses)
{
    if (uses->count == uses->room)
        settle(gpu, uses);
    if (uses->count < uses->room)
        return true;
    size_t room = uses->room ? uses->room * 2 : 64;
    struct use *more = realloc(uses->uses, room * sizeof(*more));
    if (!more)
        return false;
    uses->uses = more;
    uses->room = room;
    return true;
}

void in_use_add(CUcontext context, CUstream stream, uint64_t address, uint64_t bytes)
{
    unsigned gpu = context->gpu;
    struct uses *uses = &uses_of[gpu];
    if (!may_go_early())
        return;
    execution_lock(gpu);
    struct use use = {context, address, bytes, stream_marks(context, stream)};
    if (!execution_is_known_reached(gpu, &use.until) && make_room(gpu, uses))
        uses->uses[uses->count++] = use;
    execution_unlock(gpu);
}

static void gone_from(unsigned gpu, uint64_t address, uint64_t bytes)
{
    struct uses *uses = &uses_of[gpu];
    execution_lock(gpu);
    for (size_t i = 0; i < uses->count; i++) {
        const struct use *use = &uses->uses[i];
        if (use->address >= address + bytes || address >= use->address + use->bytes ||
            execution_is_reached(gpu, &use->until))
            continue;
        fault_page(use->context);
    }
    settle(gpu, uses);
    execution_unlock(gpu);
}

void in_use_gone(uint64_t address, uint64_t bytes)
{
    for (unsigned ordinal = 0; may_go_early() && ordinal < simulator.device_count; ordinal++)
        gone_from(simulator.visible[ordinal], address, bytes);
}
