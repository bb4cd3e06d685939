/* swap_move.c - memory of the swap engine leaves the card, and comes back. */
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap_parts.h"

/* Where the extent's copy is in the arena. */
static void *place_of(const struct extent *extent)
{
    return swap_state()->arena.base + extent->arena_offset;
}

/* --- Copying: what is submitted to one stream for all extents of a context ------------------------- */

typedef CUresult extent_step(struct extent *extent, CUstream stream);

static CUresult copy_out(struct extent *extent, CUstream stream)
{
    return real(cuMemcpyDtoHAsync_v2)(place_of(extent), extent->address, extent->bytes, stream);
}

/* The card has its memory made while the copies before it go on. */
static CUresult copy_in(struct extent *extent, CUstream stream)
{
    extent->is_returning = !extent->is_resident;
    CUresult result = extent->is_returning ? swap_make_resident(extent) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && extent->has_copy)
        result = real(cuMemcpyHtoDAsync_v2)(extent->address, place_of(extent), extent->bytes, stream);
    return result;
}

/* In its context, for those that were not yet. When this returns, nothing of it goes on. */
static CUresult do_context(struct swap *swap, CUcontext context, extent_step *step)
{
    struct own_calls calls;
    CUstream stream;
    if (!own_calls_begin(&calls, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        for (struct extent *extent = extents_next(&swap->extents, NULL); extent && result == CUDA_SUCCESS;
             extent = extents_next(&swap->extents, extent)) {
            if (extent->context != context)
                continue;
            extent->is_stepped = true;
            result = step(extent, stream);
        }
        CUresult ended = real(cuStreamSynchronize)(stream);
        result = result == CUDA_SUCCESS ? ended : result;
        real(cuStreamDestroy_v2)(stream);
    }
    own_calls_end(&calls);
    return result;
}

static CUresult do_all(struct swap *swap, extent_step *step)
{
    CUresult result = CUDA_SUCCESS;
    struct extent *extent = NULL;
    while ((extent = extents_next(&swap->extents, extent)))
        extent->is_stepped = false;
    while (result == CUDA_SUCCESS && (extent = extents_next(&swap->extents, extent)))
        if (!extent->is_stepped)
            result = do_context(swap, extent->context, step);
    return result;
}

/* --- Out and in ------------------------------------------------------------------------------------ */

/* Give each extent its place in the arena, and have memory there. Those that are kept empty go. */
static bool make_room(struct swap *swap)
{
    uint64_t bytes = 0;
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent))
        if (extent->is_shared && extent_is_empty(extent))
            swap_end_extent(extent);
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent)) {
        extent->arena_offset = bytes;
        bytes += extent->bytes;
    }
    return arena_grow(&swap->arena, bytes);
}

/* What was returning is on the card, and needs its copy no more; or it leaves again, and its copy holds. */
static void end_return(struct swap *swap, bool is_back)
{
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent)) {
        if (is_back)
            extent->has_copy = false;
        else if (extent->is_returning && extent->is_resident)
            swap_leave_card(extent);
        extent->is_returning = false;
    }
    swap->is_evicted = !is_back;
}

static CUresult restore(struct swap *swap)
{
    CUresult result = do_all(swap, copy_in);
    end_return(swap, result == CUDA_SUCCESS);
    return result;
}

/* Where physical memory cannot be given back half-way, what has gone returns. If even that fails, the process is evicted
 * with what has gone in the arena, and the rest comes through the next restore where it is. */
static CUresult evict(struct swap *swap)
{
    CUresult result = make_room(swap) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    struct extent *extent = NULL;
    if (result == CUDA_SUCCESS)
        result = do_all(swap, copy_out);
    if (result != CUDA_SUCCESS)
        return result; /* all is on the card still */
    while (result == CUDA_SUCCESS && (extent = extents_next(&swap->extents, extent))) {
        result = swap_leave_card(extent);
        extent->has_copy = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        swap->is_evicted = true;
    else
        restore(swap);
    return result;
}

CUresult swap_evict(void)
{
    struct swap *swap = swap_state();
    pthread_mutex_lock(&swap->lock);
    CUresult result = swap->is_evicted ? CUDA_SUCCESS : evict(swap);
    pthread_mutex_unlock(&swap->lock);
    return result;
}

CUresult swap_restore(void)
{
    struct swap *swap = swap_state();
    pthread_mutex_lock(&swap->lock);
    CUresult result = swap->is_evicted ? restore(swap) : CUDA_SUCCESS;
    pthread_mutex_unlock(&swap->lock);
    return result;
}

struct swap_bytes swap_bytes(void)
{
    struct swap *swap = swap_state();
    struct swap_bytes bytes = {0};
    pthread_mutex_lock(&swap->lock);
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent))
        *(extent->is_resident ? &bytes.resident_bytes : &bytes.evicted_bytes) += extent->bytes;
    pthread_mutex_unlock(&swap->lock);
    return bytes;
}
