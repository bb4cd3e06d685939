/* swap_move.c - memory of the swap engine leaves the card, and comes back.
 *
 * way     a context whose extents move, with a stream for the copies
 * batch   extents that follow each other in the table, of BATCH_BYTES or a BATCH_PART-th of all: when its copies are
 *         done, and those of the next one run, its memory is given back (or told of as restored)
 *
 * cuMemUnmap may wait for all that runs in the context (measure): then the link is idle from the end of the next
 * batch's copies until those of the one after are submitted. So batches are large, and that is short beside them. */
#include <string.h>

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/contexts.h"
#include "intercept/memory/engine/swap_parts.h"
#include "intercept/resolve/guard.h"

#define BATCH_BYTES (UINT64_C(128) << 20)
#define BATCH_PART 8
#define PIECE_BYTES (UINT64_C(8) << 20) /* of one copy: the link begins while the next is submitted */
#define WAYS_MAX 64u

struct way {
    CUcontext context;
    CUdevice device;
    bool is_retained; /* for this move alone: a primary context */
};

struct move {
    struct swap *swap;
    void (*progress)(void);
    struct way ways[WAYS_MAX];
    uint32_t way_count;
    uint64_t batch_bytes;
    /* The way that is gone at present. */
    const struct way *way;
    CUstream stream;
    CUevent done[2]; /* a batch's copies, of every other one */
    struct digester digester;
};

/* Indices in the table, from `begin` up to `end`. */
struct batch {
    uint32_t begin, end;
    uint64_t bytes;
};

static struct extent *first_of(struct move *move)
{
    return extents_next(&move->swap->extents, NULL);
}

static struct extent *next_of(struct move *move, struct extent *extent)
{
    return extents_next(&move->swap->extents, extent);
}

/* --- Contexts -------------------------------------------------------------------------------------- */

static void add_context(const struct record *record, void *argument)
{
    struct move *move = argument;
    CUcontext context = (CUcontext)(uintptr_t)record->key;
    if (record->kind == RECORD_CONTEXT && record->charged.context == record->key &&
        move->way_count < WAYS_MAX)
        move->ways[move->way_count++] = (struct way){.context = context};
}

/* All contexts of the process, which live on while their locks are held. */
static void find_ways(struct move *move)
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

/* Physical memory of the program's outlives contexts; it comes back by one that is made for that, where there is none. */
static void add_primary_ways(struct move *move)
{
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent)) {
        struct way way = {.device = extent->device, .is_retained = true};
        bool has_way = extent->context || extent->is_resident;
        for (uint32_t i = 0; i < move->way_count && !has_way; i++)
            has_way = move->ways[i].device == extent->device;
        if (!has_way && move->way_count < WAYS_MAX &&
            real(cuDevicePrimaryCtxRetain)(&way.context, way.device) == CUDA_SUCCESS)
            move->ways[move->way_count++] = way;
    }
}

static void release_primary_ways(struct move *move)
{
    for (uint32_t i = 0; i < move->way_count; i++) {
        if (!move->ways[i].is_retained)
            continue;
        arena_forget_context(&move->swap->arena, move->ways[i].context);
        real(cuDevicePrimaryCtxRelease_v2)(move->ways[i].device);
    }
}

/* Whether the extent is copied by the way that is gone at present: its own context's, or the first of its device. */
static bool goes_this_way(const struct move *move, const struct extent *extent)
{
    if (extent->context)
        return extent->context == move->way->context;
    const struct way *first = move->ways;
    while (first->device != extent->device && first < move->way)
        first++;
    return first == move->way && first->device == extent->device;
}

/* The locks that keep contexts, and then the engine's. */
static void lock_all(struct swap *swap)
{
    uint32_t count = session_slot()->ledger.policy->gpu_count;
    for (uint32_t gpu = 0; gpu < count && gpu < LEDGER_GPUS; gpu++)
        context_lock(gpu);
    guard_lock(&swap->lock);
}

static void unlock_all(struct swap *swap)
{
    uint32_t count = session_slot()->ledger.policy->gpu_count;
    guard_unlock(&swap->lock);
    for (uint32_t gpu = count < LEDGER_GPUS ? count : LEDGER_GPUS; gpu-- > 0;)
        context_unlock(gpu);
}

static void begin(struct move *move, void (*progress)(void))
{
    struct swap *swap = swap_state();
    *move = (struct move){.swap = swap, .progress = progress};
    find_ways(move);
    uint64_t part = (atomic_load_explicit(&swap->resident_bytes, memory_order_relaxed) +
                     atomic_load_explicit(&swap->evicted_bytes, memory_order_relaxed)) /
                    BATCH_PART;
    move->batch_bytes = part > BATCH_BYTES ? part : BATCH_BYTES;
}

/* --- One context's extents, batch by batch --------------------------------------------------------- */

struct direction {
    bool (*is_to_move)(const struct extent *extent);
    /* Before its copies are submitted, while those of the batch before it go on; and while its own do. NULL: nothing. */
    void (*prepare)(struct move *move, const struct batch *batch);
    void (*go_on)(struct move *move, const struct batch *batch);
    /* Make it ready and submit its copies; and what follows when the batch's copies are done. */
    CUresult (*submit)(struct move *move, struct extent *extent);
    CUresult (*finish)(struct extent *extent);
};

/* Where it can be copied from and to. */
static CUresult open_for_copies(struct extent *extent)
{
    return extent->address || extent->program.window ? CUDA_SUCCESS : program_open(extent);
}

static CUdeviceptr copy_address(const struct extent *extent)
{
    return extent->address ? extent->address : extent->program.window;
}

static CUresult copy_pieces(struct move *move, struct extent *extent, bool is_out)
{
    const struct arena *arena = &move->swap->arena;
    CUresult result = open_for_copies(extent);
    CUdeviceptr from = copy_address(extent);
    for (uint64_t at = 0, bytes; at < extent->bytes && result == CUDA_SUCCESS; at += bytes) {
        uint64_t left = extent->bytes - at, place = extent->place + at;
        bytes = arena_in_one_chunk(arena, place, left < PIECE_BYTES ? left : PIECE_BYTES);
        void *host = arena->base + place;
        result = is_out ? real(cuMemcpyDtoHAsync_v2)(host, from + at, bytes, move->stream)
                        : real(cuMemcpyHtoDAsync_v2)(from + at, host, bytes, move->stream);
    }
    return result;
}

static bool is_in_it(const struct move *move, const struct direction *direction, uint32_t index)
{
    const struct extent *extent = &move->swap->extents.table[index];
    return extent->is_used && goes_this_way(move, extent) && direction->is_to_move(extent);
}

/* The extents behind `last` that move, up to the batch's size. What they need before their copies is done while those of
 * `last` still run. */
static struct batch next_batch(struct move *move, const struct direction *direction, const struct batch *last)
{
    const struct extents *extents = &move->swap->extents;
    struct batch batch = {.begin = last->end, .end = last->end};
    for (; batch.end < extents->end && batch.bytes < move->batch_bytes; batch.end++)
        if (is_in_it(move, direction, batch.end))
            batch.bytes += extents->table[batch.end].bytes;
    if (direction->prepare && batch.bytes)
        direction->prepare(move, &batch);
    return batch;
}

static CUresult submit_batch(struct move *move, const struct direction *direction, const struct batch *batch,
                             CUevent done)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = batch->begin; i < batch->end && result == CUDA_SUCCESS; i++)
        if (is_in_it(move, direction, i))
            result = direction->submit(move, &move->swap->extents.table[i]);
    if (result == CUDA_SUCCESS)
        result = real(cuEventRecord)(done, move->stream);
    if (result == CUDA_SUCCESS && direction->go_on)
        direction->go_on(move, batch);
    return result;
}

static CUresult finish_batch(struct move *move, const struct direction *direction, const struct batch *batch,
                             CUevent done)
{
    CUresult result = real(cuEventSynchronize)(done);
    for (uint32_t i = batch->begin; i < batch->end && result == CUDA_SUCCESS; i++) {
        if (is_in_it(move, direction, i))
            result = direction->finish(&move->swap->extents.table[i]);
    }
    if (result == CUDA_SUCCESS && move->progress)
        move->progress();
    return result;
}

static CUresult move_batches(struct move *move, const struct direction *direction)
{
    struct batch last = {0}, batch = next_batch(move, direction, &last), next;
    CUresult result = CUDA_SUCCESS;
    for (unsigned number = 0; result == CUDA_SUCCESS && (batch.bytes || last.bytes); number++) {
        result = submit_batch(move, direction, &batch, move->done[number % 2]);
        if (result != CUDA_SUCCESS)
            break;
        next = next_batch(move, direction, &batch);
        if (last.bytes)
            result = finish_batch(move, direction, &last, move->done[(number + 1) % 2]);
        last = batch;
        batch = next;
    }
    return result;
}

/* When this returns, nothing of it goes on. */
static CUresult go(struct move *move, const struct direction *direction)
{
    CUresult result = real(cuStreamCreate)(&move->stream, CU_STREAM_NON_BLOCKING), ended;
    if (result != CUDA_SUCCESS)
        return result;
    unsigned made = 0;
    while (made < 2 && result == CUDA_SUCCESS) {
        result = real(cuEventCreate)(&move->done[made], CU_EVENT_DISABLE_TIMING);
        made += result == CUDA_SUCCESS;
    }
    arena_lock_pages(&move->swap->arena, move->way->context);
    digester_begin(&move->digester, direction->prepare ? move->swap->extents.end : 0);
    if (result == CUDA_SUCCESS)
        result = move_batches(move, direction);
    digester_end(&move->digester);
    ended = real(cuStreamSynchronize)(move->stream);
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent))
        program_close(extent); /* where something failed */
    while (made-- > 0)
        real(cuEventDestroy_v2)(move->done[made]);
    real(cuStreamDestroy_v2)(move->stream);
    return result == CUDA_SUCCESS ? ended : result;
}

static bool has_something(struct move *move, const struct direction *direction)
{
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent))
        if (goes_this_way(move, extent) && direction->is_to_move(extent))
            return true;
    return false;
}

static CUresult move_all(struct move *move, const struct direction *direction)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < move->way_count && result == CUDA_SUCCESS; i++) {
        struct own_calls calls;
        move->way = &move->ways[i];
        if (!has_something(move, direction))
            continue;
        if (!own_calls_begin(&calls, move->way->context))
            return CUDA_ERROR_INVALID_CONTEXT;
        result = go(move, direction);
        own_calls_end(&calls);
    }
    return result;
}

/* --- In -------------------------------------------------------------------------------------------- */

static bool is_away(const struct extent *extent)
{
    return !extent->is_resident || extent->is_returning;
}

/* The card has its memory made while the copies before it go on. */
static CUresult submit_in(struct move *move, struct extent *extent)
{
    if (!extent->is_returning) {
        swap_count(extent, false);
        CUresult result = swap_make_resident(extent);
        swap_count(extent, true);
        if (result != CUDA_SUCCESS)
            return result;
        extent->is_returning = true;
    }
    return extent->has_copy ? copy_pieces(move, extent, false) : CUDA_SUCCESS;
}

static CUresult finish_in(struct extent *extent)
{
    program_close(extent);
    return CUDA_SUCCESS;
}

static const struct direction in = {.is_to_move = is_away, .submit = submit_in, .finish = finish_in};

void swap_give_up_place(struct extent *extent)
{
    if (extent->has_place)
        arena_give_back(&swap_state()->arena, extent->place, extent->bytes);
    extent->has_place = extent->has_copy = extent->has_digest = false;
}

/* It is on the card. Its copy stays where it is for as long as it may be the same. */
static void end_copy(struct extent *extent)
{
    extent->has_copy = false;
    if (!extent->has_digest)
        swap_give_up_place(extent);
}

/* What was returning is on the card, and needs its copy no more; or it leaves again, and its copy holds. */
static void end_return(struct move *move, bool is_back)
{
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent)) {
        if (is_back && extent->is_resident) {
            end_copy(extent);
        } else if (extent->is_returning) {
            swap_count(extent, false);
            swap_leave_card(extent);
            swap_count(extent, true);
        }
        extent->is_returning = false;
    }
    atomic_store_explicit(&move->swap->is_evicted, !is_back, memory_order_relaxed);
}

static bool are_all_back(struct move *move)
{
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent))
        if (!extent->is_resident)
            return false;
    return true;
}

static CUresult restore(struct move *move)
{
    add_primary_ways(move);
    CUresult result = move_all(move, &in);
    if (result == CUDA_SUCCESS && !are_all_back(move))
        result = CUDA_ERROR_INVALID_CONTEXT;
    end_return(move, result == CUDA_SUCCESS);
    release_primary_ways(move);
    return result;
}

/* --- Out ------------------------------------------------------------------------------------------- */

static bool is_to_leave(const struct extent *extent)
{
    return extent->is_resident && !extent->is_pinned;
}

static const struct direction out;

static bool is_same(const struct digest *one, const struct digest *other)
{
    return one->words[0] == other->words[0] && one->words[1] == other->words[1];
}

/* Take the digests of those extents of the batch that are to have one and whose copies have one, or have none. */
static void take_digests(struct move *move, const struct batch *batch, bool have_one)
{
    struct digester *digester = &move->digester;
    bool are_taken = digester_start(digester);
    for (uint32_t i = batch->begin; i < batch->end && are_taken; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (is_in_it(move, &out, i) && extent->digesting == DIGEST_NONE && extent->has_digest == have_one &&
            open_for_copies(extent) == CUDA_SUCCESS &&
            digester_add(digester, copy_address(extent), extent->bytes, &extent->digest_number))
            extent->digesting = DIGEST_ASKED;
    }
    are_taken = are_taken && digester_finish(digester);
    for (uint32_t i = batch->begin; i < batch->end; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (!is_in_it(move, &out, i) || extent->digesting != DIGEST_ASKED)
            continue;
        extent->digesting = are_taken ? DIGEST_SEEN : DIGEST_NONE;
        if (!are_taken)
            continue;
        const struct digest *seen = &digester->seen[extent->digest_number];
        extent->is_clean = have_one && is_same(seen, &extent->digest);
        extent->digest = *seen;
    }
}

/* Which are as their copies in the arena are: known before they would be copied. What is copied has a digest again once
 * its copy is whole: finish_out(). */
static void find_clean(struct move *move, const struct batch *batch)
{
    bool has_any = false;
    for (uint32_t i = batch->begin; i < batch->end; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (!is_in_it(move, &out, i))
            continue;
        extent->digesting = DIGEST_NONE;
        extent->is_clean = false;
        has_any |= extent->has_digest;
    }
    if (has_any)
        take_digests(move, batch, true);
    for (uint32_t i = batch->begin; i < batch->end; i++)
        if (is_in_it(move, &out, i))
            move->swap->extents.table[i].has_digest &= move->swap->extents.table[i].is_clean;
}

/* Of those that leave for the first time. */
static void take_first_digests(struct move *move, const struct batch *batch)
{
    bool has_any = false;
    for (uint32_t i = batch->begin; i < batch->end; i++)
        has_any |= is_in_it(move, &out, i) && move->swap->extents.table[i].digesting == DIGEST_NONE;
    if (has_any)
        take_digests(move, batch, false);
}

static CUresult submit_out(struct move *move, struct extent *extent)
{
    return extent->is_clean ? CUDA_SUCCESS : copy_pieces(move, extent, true);
}

/* Its copy is whole. */
static CUresult finish_out(struct extent *extent)
{
    extent->has_copy = true;
    extent->has_digest = extent->digesting == DIGEST_SEEN;
    program_close(extent);
    swap_count(extent, false);
    CUresult result = swap_leave_card(extent);
    extent->has_copy = result == CUDA_SUCCESS;
    swap_count(extent, true);
    return result;
}

static const struct direction out = {.is_to_move = is_to_leave,
                                     .prepare = find_clean,
                                     .go_on = take_first_digests,
                                     .submit = submit_out,
                                     .finish = finish_out};

/* Those that are kept empty go. */
static void end_empty_ones(struct move *move)
{
    struct extents *extents = &move->swap->extents;
    for (struct extent *extent = extents_next_shared(extents, NULL), *next; extent; extent = next) {
        next = extents_next_shared(extents, extent);
        if (extent_is_empty(extent))
            swap_end_extent(extent);
    }
}

static bool take_places(struct move *move)
{
    struct arena *arena = &move->swap->arena;
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent)) {
        if (!is_to_leave(extent) || extent->has_place)
            continue;
        extent->place = arena_take(arena, extent->bytes);
        if (extent->place == ARENA_NOWHERE)
            return false;
        extent->has_place = true;
    }
    return true;
}

static void give_up_places(struct move *move)
{
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent))
        if (extent->is_resident)
            swap_give_up_place(extent);
}

/* Give each extent its place in the arena, and have memory there. Where what is free lies in pieces that are too small,
 * those that are there for nothing go first. */
static bool make_room(struct move *move)
{
    uint64_t bytes = 0;
    end_empty_ones(move);
    for (struct extent *extent = first_of(move); extent; extent = next_of(move, extent))
        bytes += is_to_leave(extent) && !extent->has_place ? extent->bytes : 0;
    if (!arena_has_room(&move->swap->arena, bytes))
        return false;
    if (take_places(move))
        return true;
    give_up_places(move);
    if (take_places(move))
        return true;
    give_up_places(move);
    return false;
}

/* Where one cannot leave, what has left returns. If even that fails, the process is evicted with some of its memory on
 * the card, and the rest comes back with the next restore. */
static CUresult evict(struct move *move)
{
    if (!make_room(move))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = move_all(move, &out);
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&move->swap->is_evicted, true, memory_order_relaxed);
    else
        restore(move);
    return result;
}

/* --- For everyone ---------------------------------------------------------------------------------- */

CUresult swap_evict(void (*progress)(void))
{
    struct swap *swap = swap_state();
    struct move move;
    CUresult result = CUDA_SUCCESS;
    lock_all(swap);
    if (!swap->is_evicted || atomic_load_explicit(&swap->resident_bytes, memory_order_relaxed)) {
        begin(&move, progress);
        result = evict(&move);
    }
    unlock_all(swap);
    return result;
}

CUresult swap_restore(void (*progress)(void))
{
    struct swap *swap = swap_state();
    struct move move;
    CUresult result = CUDA_SUCCESS;
    lock_all(swap);
    if (swap->is_evicted) {
        begin(&move, progress);
        result = restore(&move);
    }
    unlock_all(swap);
    return result;
}

void swap_lock_pages(void)
{
    struct swap *swap = swap_state();
    struct move move;
    struct own_calls calls;
    lock_all(swap);
    begin(&move, NULL);
    if (move.way_count && own_calls_begin(&calls, move.ways[0].context)) {
        arena_lock_pages(&swap->arena, move.ways[0].context);
        own_calls_end(&calls);
    }
    unlock_all(swap);
}

struct swap_bytes swap_bytes(void)
{
    const struct swap *swap = swap_state();
    return (struct swap_bytes){atomic_load_explicit(&swap->resident_bytes, memory_order_relaxed),
                               atomic_load_explicit(&swap->evicted_bytes, memory_order_relaxed)};
}
