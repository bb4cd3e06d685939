#include "intercept/memory/engine/swap/extents/dying.h"

#include "intercept/memory/engine/swap/extents/access.h"
#include "intercept/memory/engine/swap/extents/quiet.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/resolve/guard.h"

void dying_begin(struct extent *extent, struct dying *dying)
{
    struct swap *swap = swap_state();
    extent->died = ++swap->deaths;
    swap->dying_count++;
    *dying = (struct dying){.address = extent->address,
                            .number = extent->number,
                            .devices = extent_devices(extent),
                            .context = extent->context};
}

static void revive(struct extent *extent)
{
    extent->died = 0;
    swap_state()->dying_count--;
}

/* End what died by the death `last` and only these devices reach; what the driver refuses to unmap goes on dying. */
static bool end_those(uint64_t devices, uint64_t last)
{
    struct extents *extents = &swap_state()->extents;
    bool any = false;
    for (struct extent *extent = extents_next(extents, NULL); extent && swap_state()->dying_count;
         extent = extents_next(extents, extent))
        if (extent->died && extent->died <= last && !(extent_devices(extent) & ~devices))
            any |= extent_end(extent) == CUDA_SUCCESS;
    return any;
}

/* `quiet` is what quiet_wait() has answered. */
static CUresult end_one(struct extent *extent, CUresult quiet)
{
    uint64_t devices = extent_devices(extent), died = extent->died;
    bool is_alone = swap_state()->dying_count == 1, stays = quiet == CUDA_ERROR_NOT_READY;
    CUresult result = quiet == CUDA_SUCCESS ? extent_end(extent) : quiet;
    if (result == CUDA_SUCCESS && !is_alone)
        end_those(devices, died);
    else if (result != CUDA_SUCCESS && (!stays || extent->is_shared))
        revive(extent);
    return stays ? CUDA_SUCCESS : result;
}

CUresult dying_end(const struct dying *dying, uint64_t patience_ns)
{
    struct swap *swap = swap_state();
    CUresult result = quiet_wait(dying->devices, dying->context, patience_ns);
    guard_lock(&swap->lock);
    struct extent *extent = extents_find(&swap->extents, dying->address);
    if (extent && extent->number == dying->number && extent->died)
        result = end_one(extent, result);
    else
        result = CUDA_SUCCESS; /* it was ended meanwhile */
    guard_unlock(&swap->lock);
    return result;
}

static void add_empty_ones(void)
{
    struct extents *extents = &swap_state()->extents;
    struct dying dying;
    for (struct extent *extent = extents_next_shared(extents, NULL); extent;
         extent = extents_next_shared(extents, extent))
        if (extent_is_empty(extent) && !extent->died)
            dying_begin(extent, &dying);
}

/* Those that went on dying and are shared are used again. One that is not empty is dying because its context has gone: it
 * goes on, as nobody would end it later. */
static void revive_shared(uint64_t last)
{
    struct extents *extents = &swap_state()->extents;
    for (struct extent *extent = extents_next_shared(extents, NULL); extent;
         extent = extents_next_shared(extents, extent))
        if (extent->died && extent->died <= last && extent_is_empty(extent))
            revive(extent);
}

static uint64_t devices_of_all(void)
{
    uint64_t devices = 0;
    for (struct extent *extent = extents_next(&swap_state()->extents, NULL); extent;
         extent = extents_next(&swap_state()->extents, extent))
        devices |= extent->died ? extent_devices(extent) : 0;
    return devices;
}

bool dying_end_all(bool with_empty_ones, uint64_t patience_ns)
{
    struct swap *swap = swap_state();
    guard_lock(&swap->lock);
    if (!swap->dying_count)
        patience_ns = 0; /* empty extents are not worth waiting for */
    if (with_empty_ones)
        add_empty_ones();
    uint64_t last = swap->dying_count ? swap->deaths : 0, devices = last ? devices_of_all() : 0;
    guard_unlock(&swap->lock);
    if (!last)
        return false;
    CUresult result = quiet_wait(devices, NULL, patience_ns);
    guard_lock(&swap->lock);
    bool any = result == CUDA_SUCCESS && end_those(devices, last);
    revive_shared(last);
    guard_unlock(&swap->lock);
    return any;
}

void dying_end_drained(void)
{
    end_those(UINT64_MAX, UINT64_MAX);
}
