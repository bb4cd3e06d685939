/* batches.c - moves one context's extents, batch by batch (move.h). */
#include "base/clock.h"
#include "intercept/memory/engine/swap/extents/access.h"
#include "intercept/memory/engine/swap/move/move.h"
#include "intercept/memory/engine/swap/program/mappings.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

#define DIGESTER_TRIES 4u /* by the fourth batch, the first extent has left */
/* Of one copy. The first ones of a move are small: the link starts while the next copy is submitted. Later ones are of a
 * whole piece of the arena, since each costs a call. */
#define COPY_FIRST_BYTES (UINT64_C(2) << 20)

#define GROUP_BYTES (UINT64_C(64) << 20)

#define BATCH_PART 32 /* batches begin as this part of the whole */
#define BATCH_LEAST_BYTES (UINT64_C(4) << 20)
#define BATCH_LARGE_BYTES (UINT64_C(128) << 20)
#define BATCH_LARGE_PART 8
#define BATCH_SHORT_NS UINT64_C(8000000)

void move_size_batches(struct move *move, uint64_t all_bytes)
{
    uint64_t part = all_bytes / BATCH_PART, large = all_bytes / BATCH_LARGE_PART;
    move->batch_bytes = part > BATCH_LEAST_BYTES ? part : BATCH_LEAST_BYTES;
    move->batch_most_bytes = large > BATCH_LARGE_BYTES ? large : BATCH_LARGE_BYTES;
}

/* Called when a batch's copies are done. Extents that were not copied say nothing about how long copies take, so a
 * batch of mostly those does not count. */
static void resize_batches(struct move *move, const struct batch *batch)
{
    uint64_t now_ns = monotonic_ns();
    bool was_short = move->batch_done_ns && now_ns - move->batch_done_ns < BATCH_SHORT_NS;
    if (was_short && batch->copied_bytes >= batch->bytes / 2 && move->batch_bytes < move->batch_most_bytes)
        move->batch_bytes *= 2;
    move->batch_done_ns = now_ns;
}

CUresult move_open(struct extent *extent)
{
    return extent->address || extent->program.window ? CUDA_SUCCESS : mapping_open(extent);
}

CUdeviceptr move_address(const struct extent *extent)
{
    return extent->address ? extent->address : extent->program.window;
}

/* Page-lock what of the arena is not yet, while the copies before run: a piece each time, so that the move, which holds its
 * locks, takes no longer for it unless the driver page-locks more slowly than the link copies. Where the driver refuses, it
 * copies all the same, more slowly. */
static void lock_pages(struct move *move, uint64_t place, uint64_t bytes)
{
    struct arena *arena = &move->swap->arena;
    for (uint64_t at = place, piece; arena_find_unlocked(arena, at, place + bytes, &piece);
         at = piece + ARENA_PIECE_BYTES)
        if (arena_lock_piece(arena, piece))
            arena_note_locked(arena, piece, move->way->context);
}

static uint64_t next_copy_bytes(const struct move *move, uint64_t place, uint64_t left)
{
    uint64_t most_bytes = move->copied_bytes < ARENA_PIECE_BYTES ? COPY_FIRST_BYTES : ARENA_PIECE_BYTES;
    return arena_in_one_piece(place, left < most_bytes ? left : most_bytes);
}

CUresult move_copy(struct move *move, struct extent *extent, bool is_out)
{
    const struct arena *arena = &move->swap->arena;
    CUresult result = move_open(extent);
    CUdeviceptr from = move_address(extent);
    for (uint64_t at = 0, bytes; at < extent->bytes && result == CUDA_SUCCESS; at += bytes) {
        uint64_t place = extent->place + at;
        bytes = next_copy_bytes(move, place, extent->bytes - at);
        lock_pages(move, place, bytes);
        void *host = arena->base + place;
        result = is_out ? real(cuMemcpyDtoHAsync_v2)(host, from + at, bytes, move->tools->copies)
                        : real(cuMemcpyHtoDAsync_v2)(from + at, host, bytes, move->tools->copies);
        move->copied_bytes += bytes;
    }
    return result;
}

bool move_takes(const struct move *move, const struct direction *direction, uint32_t index)
{
    const struct extent *extent = &move->swap->extents.table[index];
    return extent->is_used && move_goes_this_way(move, extent) && direction->is_to_move(extent);
}

/* The kernel of digests needs a little memory on the card. If the card is full, there is some once the first extent has
 * left. So batches are of one extent each until it is loaded, or that was tried often enough. */
static void try_digester(struct move *move, const struct direction *direction)
{
    if (!direction->prepare || move->takes_digests || !move->digester_tries)
        return;
    move->takes_digests = digester_load(move->tools);
    move->digester_tries = move->takes_digests ? 0 : move->digester_tries - 1;
}

/* The next extents behind `last` that move, up to the batch's size. What they need before their copies is done here,
 * while the copies of `last` still run. */
static struct batch next_batch(struct move *move, const struct direction *direction, const struct batch *last)
{
    const struct extents *extents = &move->swap->extents;
    struct batch batch = {.begin = last->end, .end = last->end};
    try_digester(move, direction);
    uint64_t most_bytes = direction->prepare && move->digester_tries ? 1 : move->batch_bytes;
    for (; batch.end < extents->end && batch.bytes < most_bytes; batch.end++)
        if (move_takes(move, direction, batch.end))
            batch.bytes += extents->table[batch.end].bytes;
    if (direction->prepare && batch.bytes)
        direction->prepare(move, &batch);
    return batch;
}

/* Extents of a batch are made and opened in groups: a call that opens many costs no more than one that opens one, but the
 * copies of the first wait for it. So the first extent of a move is a group by itself. */
static uint32_t end_of_group(const struct move *move, const struct direction *direction,
                             const struct batch *batch, uint32_t begin)
{
    const struct extent *table = move->swap->extents.table;
    uint64_t bytes = 0, most_bytes = move->copied_bytes ? GROUP_BYTES : 1;
    uint32_t end = begin;
    for (; end < batch->end && bytes < most_bytes; end++)
        bytes += move_takes(move, direction, end) ? table[end].bytes : 0;
    return end;
}

static CUresult make_group(struct move *move, const struct direction *direction, uint32_t begin, uint32_t end)
{
    struct opener opener;
    CUresult result = CUDA_SUCCESS;
    if (!direction->make)
        return CUDA_SUCCESS;
    opener_begin(&opener);
    for (uint32_t i = begin; i < end && result == CUDA_SUCCESS; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (!move_takes(move, direction, i))
            continue;
        result = direction->make(extent);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && digester_unload(move->tools))
            result = direction->make(extent);
        if (result == CUDA_SUCCESS)
            opener_add(&opener, extent);
    }
    return result == CUDA_SUCCESS ? opener_end(&opener) : result;
}

static CUresult submit_batch(struct move *move, const struct direction *direction, struct batch *batch,
                             unsigned turn)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t copied_bytes = move->copied_bytes;
    batch->is_timed = direction->prepare &&
                      real(cuEventRecord)(move->tools->begun[turn], move->tools->copies) == CUDA_SUCCESS;
    for (uint32_t i = batch->begin, end; i < batch->end && result == CUDA_SUCCESS; i = end) {
        end = end_of_group(move, direction, batch, i);
        result = make_group(move, direction, i, end);
        for (uint32_t at = i; at < end && result == CUDA_SUCCESS; at++)
            if (move_takes(move, direction, at))
                result = direction->submit(move, &move->swap->extents.table[at]);
    }
    batch->copied_bytes = move->copied_bytes - copied_bytes;
    if (result == CUDA_SUCCESS)
        result = real(cuEventRecord)(move->tools->done[turn], move->tools->copies);
    if (result == CUDA_SUCCESS && direction->go_on)
        direction->go_on(move, batch);
    return result;
}

static CUresult finish_batch(struct move *move, const struct direction *direction, const struct batch *batch,
                             unsigned turn)
{
    struct swap_tools *tools = move->tools;
    CUresult result = real(cuEventSynchronize)(tools->done[turn]);
    if (result == CUDA_SUCCESS && batch->is_timed)
        pace_add(&tools->pace, batch->copied_bytes, tools->begun[turn], tools->done[turn]);
    resize_batches(move, batch);
    for (uint32_t i = batch->begin; i < batch->end && result == CUDA_SUCCESS; i++) {
        if (move_takes(move, direction, i))
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
        result = submit_batch(move, direction, &batch, number % 2);
        if (result != CUDA_SUCCESS)
            break;
        next = next_batch(move, direction, &batch);
        if (last.bytes)
            result = finish_batch(move, direction, &last, (number + 1) % 2);
        last = batch;
        batch = next;
    }
    return result;
}

/* Move by one way. When this returns, no copy goes on. */
static CUresult go(struct move *move, const struct direction *direction)
{
    CUresult result = tools_find(move->way->context, &move->tools), ended;
    if (result != CUDA_SUCCESS)
        return result;
    move->takes_digests = false;
    move->digester_tries = move->swap->clean_mode == CLEAN_COPY ? 0 : DIGESTER_TRIES;
    if (direction->prepare && move->digester_tries && !clean_begin_move(move->tools))
        move->digester_tries = 0;
    result = move_batches(move, direction);
    if (direction->prepare)
        clean_end_move(move->tools);
    ended = real(cuStreamSynchronize)(move->tools->copies);
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent))
        mapping_close(extent); /* those that were left open by a failure */
    return result == CUDA_SUCCESS ? ended : result;
}

static bool has_something(struct move *move, const struct direction *direction)
{
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent))
        if (move_goes_this_way(move, extent) && direction->is_to_move(extent))
            return true;
    return false;
}

CUresult move_all(struct move *move, const struct direction *direction)
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
