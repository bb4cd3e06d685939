#include "intercept/memory/engine/swap/move/swap_move.h"

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap/extents/dying.h"
#include "intercept/memory/engine/swap/extents/quiet.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/move/move.h"
#include "intercept/memory/engine/swap/pools/swap_pool.h"
#include "intercept/memory/engine/swap/program/mappings.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"

static void begin(struct move *move, void (*progress)(void))
{
    struct swap *swap = swap_state();
    *move = (struct move){.swap = swap, .progress = progress};
    move_find_ways(move);
    move_size_batches(move, atomic_load_explicit(&swap->resident_bytes, memory_order_relaxed) +
                                atomic_load_explicit(&swap->evicted_bytes, memory_order_relaxed));
}

/* --- In -------------------------------------------------------------------------------------------- */

static bool is_away(const struct extent *extent)
{
    return !extent_is_whole(extent);
}

/* The extent's memory is made while the copies before it run. */
static CUresult make_in(struct extent *extent)
{
    if (extent->residence == EXTENT_COMING)
        return CUDA_SUCCESS;
    extent_count(extent, false);
    CUresult result = extent_make_resident(extent);
    extent_count(extent, true);
    if (result == CUDA_SUCCESS)
        extent_set_residence(extent, EXTENT_COMING);
    return result;
}

static CUresult submit_in(struct move *move, struct extent *extent)
{
    return extent->has_copy ? move_copy(move, extent, false) : CUDA_SUCCESS;
}

static CUresult finish_in(struct extent *extent)
{
    mapping_close(extent);
    return CUDA_SUCCESS;
}

static const struct direction in = {
    .is_to_move = is_away, .make = make_in, .submit = submit_in, .finish = finish_in};

static bool is_called(const struct extent *extent)
{
    return extent->residence == EXTENT_CALLED || extent->residence == EXTENT_COMING;
}

static const struct direction in_part = {
    .is_to_move = is_called, .make = make_in, .submit = submit_in, .finish = finish_in};

/* The extent is on the card. Its copy stays in the arena for as long as its contents may still be the same. */
static void end_copy(struct extent *extent)
{
    extent->has_copy = false;
    if (!extent->has_digest)
        extent_give_up_place(extent);
}

/* Take an extent off the card whose copy holds. Where the driver refuses, it stays in the state that it is in. */
static CUresult drop(struct extent *extent)
{
    extent_count(extent, false);
    CUresult result = extent_leave_card(extent);
    extent_count(extent, true);
    return result;
}

/* The restore is over. If all is back, the extents do not need their copies any more; if not, what had returned
 * leaves again, and its copies hold. */
static void end_return(struct move *move, bool is_back)
{
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent)) {
        if (is_back) {
            extent_set_residence(extent, EXTENT_HERE);
            end_copy(extent);
        } else if (extent->residence == EXTENT_COMING) {
            drop(extent);
        }
    }
    atomic_store_explicit(&move->swap->is_evicted, !is_back, memory_order_relaxed);
}

static bool are_all_back(struct move *move)
{
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent))
        if (!extent_is_on_card(extent))
            return false;
    return true;
}

static CUresult restore(struct move *move)
{
    move_add_own_ways(move);
    CUresult result = move_all(move, &in);
    if (result == CUDA_SUCCESS && !are_all_back(move))
        result = CUDA_ERROR_INVALID_CONTEXT;
    end_return(move, result == CUDA_SUCCESS);
    move_end_own_ways(move);
    return result;
}

/* What a partial restore brings, while the rest stays away. */
struct part {
    CUdevice device;
    uint64_t most_bytes;
};

/* Mark extents of at most `most_bytes` together, in the order of the table, in which they would come anyway. */
static void call_part(struct move *move, const struct part *part)
{
    uint64_t most_bytes = part->most_bytes;
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent)) {
        if (extent->residence != EXTENT_AWAY || extent->device != part->device || extent->bytes > most_bytes)
            continue;
        extent_set_residence(extent, EXTENT_CALLED);
        most_bytes -= extent->bytes;
    }
}

/* The marked extents are on the card, and wait for the others; or they leave again. */
static void end_part(struct move *move, bool are_there)
{
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent)) {
        if (extent->residence == EXTENT_CALLED)
            extent_set_residence(extent, EXTENT_AWAY);
        else if (extent->residence == EXTENT_COMING && are_there)
            extent_set_residence(extent, EXTENT_AHEAD);
        else if (extent->residence == EXTENT_COMING)
            drop(extent);
    }
}

static CUresult restore_part(struct move *move, const struct part *part)
{
    move_add_own_ways(move);
    call_part(move, part);
    CUresult result = move_all(move, &in_part);
    end_part(move, result == CUDA_SUCCESS);
    move_end_own_ways(move);
    return result;
}

/* What came ahead, or could not leave after a restore that failed, leaves as it came: nothing has used it, so its copy
 * holds. */
static CUresult drop_ahead(struct move *move)
{
    CUresult result = CUDA_SUCCESS;
    for (struct extent *extent = move_first(move); extent && result == CUDA_SUCCESS;
         extent = move_next(move, extent)) {
        if (extent->residence == EXTENT_AHEAD && extent->is_pinned) {
            /* It was pinned after it came, so it stays for good. */
            extent_set_residence(extent, EXTENT_HERE);
            end_copy(extent);
        } else if (extent->residence == EXTENT_AHEAD || extent->residence == EXTENT_COMING) {
            result = drop(extent);
        }
    }
    return result;
}

/* --- Out ------------------------------------------------------------------------------------------- */

static bool is_to_leave(const struct extent *extent)
{
    return extent_is_whole(extent) && !extent->is_pinned;
}

/* Where the arena has room for some of it only, the others leave when there is more. */
static bool leaves_now(const struct extent *extent)
{
    return is_to_leave(extent) && extent->has_place;
}

static const struct direction out;

static bool is_same(const struct digest *one, const struct digest *other)
{
    return one->words[0] == other->words[0] && one->words[1] == other->words[1];
}

/* Take the digests of those extents of the batch that have none yet in this move. `have_one`: of those whose copy has
 * a digest; otherwise of the others. */
static void take_digests(struct move *move, const struct batch *batch, bool have_one)
{
    bool are_taken = move->takes_digests;
    if (are_taken)
        digester_start(move->tools);
    for (uint32_t i = batch->begin; i < batch->end && are_taken; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (!move_takes(move, &out, i) || extent->digesting != DIGEST_NONE ||
            extent->has_digest != have_one || move_open(extent) != CUDA_SUCCESS)
            continue;
        are_taken = digester_add(move->tools, move_address(extent), extent->bytes, &extent->seen);
        extent->digesting = DIGEST_ASKED;
    }
    are_taken = are_taken && digester_finish(move->tools);
    for (uint32_t i = batch->begin; i < batch->end; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (!move_takes(move, &out, i) || extent->digesting != DIGEST_ASKED)
            continue;
        extent->digesting = are_taken ? DIGEST_SEEN : DIGEST_NONE;
        if (!are_taken)
            continue;
        extent->is_clean = have_one && is_same(&extent->seen, &extent->digest);
        extent->digest = extent->seen;
    }
}

/* In verify mode: an extent whose contents differ from its copy does not count as clean, whatever its digest says. */
static void verify_clean(struct move *move, const struct batch *batch)
{
    static atomic_bool said;
    for (uint32_t i = batch->begin; i < batch->end; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (!move_takes(move, &out, i) || !extent->is_clean ||
            clean_is_same(move->tools, move_address(extent), &move->swap->arena, extent->place,
                          extent->bytes))
            continue;
        extent->is_clean = false;
        report_once(&said,
                    "memory has changed, but has the digest of what it held before; it was copied, because "
                    "GPUSLICE_UNCHANGED is 'verify'. Please report this");
    }
}

/* Find the extents that are the same as their copies in the arena, before they would be copied. An extent that is
 * copied gets its digest back once the copy is complete: finish_out(). */
static void find_clean(struct move *move, const struct batch *batch)
{
    bool has_any = false;
    for (uint32_t i = batch->begin; i < batch->end; i++) {
        struct extent *extent = &move->swap->extents.table[i];
        if (!move_takes(move, &out, i))
            continue;
        extent->digesting = DIGEST_NONE;
        extent->is_clean = false;
        has_any |= extent->has_digest;
    }
    if (has_any)
        take_digests(move, batch, true);
    if (has_any && move->swap->clean_mode == CLEAN_VERIFY)
        verify_clean(move, batch);
    for (uint32_t i = batch->begin; i < batch->end; i++)
        if (move_takes(move, &out, i))
            move->swap->extents.table[i].has_digest &= move->swap->extents.table[i].is_clean;
}

/* Take the digests of extents that have none, such as those that leave for the first time. */
static void take_first_digests(struct move *move, const struct batch *batch)
{
    bool has_any = false;
    for (uint32_t i = batch->begin; i < batch->end; i++)
        has_any |= move_takes(move, &out, i) && move->swap->extents.table[i].digesting == DIGEST_NONE;
    if (has_any)
        take_digests(move, batch, false);
}

static CUresult submit_out(struct move *move, struct extent *extent)
{
    return extent->is_clean ? CUDA_SUCCESS : move_copy(move, extent, true);
}

/* The extent's copy is complete: it leaves the card. */
static CUresult finish_out(struct extent *extent)
{
    extent->has_digest = extent->digesting == DIGEST_SEEN;
    mapping_close(extent);
    CUresult result = drop(extent);
    extent->has_copy = result == CUDA_SUCCESS;
    return result;
}

static const struct direction out = {.is_to_move = leaves_now,
                                     .prepare = find_clean,
                                     .go_on = take_first_digests,
                                     .submit = submit_out,
                                     .finish = finish_out};

/* End what is dying, and the shared extents that were kept although they are empty. */
static void end_empty_ones(struct move *move)
{
    struct extents *extents = &move->swap->extents;
    dying_end_drained();
    for (struct extent *extent = extents_next_shared(extents, NULL), *next; extent; extent = next) {
        next = extents_next_shared(extents, extent);
        if (extent_is_empty(extent))
            extent_end(extent);
    }
}

/* False: for some of them there is no place. */
static bool take_places(struct move *move)
{
    struct arena *arena = &move->swap->arena;
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent)) {
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
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent))
        if (extent_is_whole(extent))
            extent_give_up_place(extent);
}

static uint64_t bytes_with_places(struct move *move)
{
    uint64_t bytes = 0;
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent))
        bytes += leaves_now(extent) ? extent->bytes : 0;
    return bytes;
}

enum room { ROOM_FOR_ALL, ROOM_FOR_SOME, ROOM_FOR_NONE };

/* Give each extent that leaves a place in the arena, with memory there. If the free grains lie in runs that are too
 * short, the places of extents on the card, which do not need them, are given up first. An arena that is given may
 * still grow, so it is used as far as it goes: the link need not wait for the rest. */
static enum room make_room(struct move *move)
{
    uint64_t bytes = 0;
    end_empty_ones(move);
    swap_pool_give_back(true);
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent))
        bytes += is_to_leave(extent) && !extent->has_place ? extent->bytes : 0;
    bool has_room = arena_has_room(&move->swap->arena, bytes), is_given = move->swap->arena.is_given;
    if (!has_room && !is_given)
        return ROOM_FOR_NONE;
    if (take_places(move))
        return ROOM_FOR_ALL;
    if (has_room) {
        give_up_places(move);
        if (take_places(move))
            return ROOM_FOR_ALL;
    }
    if (is_given && bytes_with_places(move))
        return ROOM_FOR_SOME;
    give_up_places(move);
    return ROOM_FOR_NONE;
}

/* Extents that no way took stay where they are until the next restore: programs may have destroyed all contexts on a
 * device, or have more contexts than move. */
static void leave_stuck(struct move *move)
{
    for (struct extent *extent = move_first(move); extent; extent = move_next(move, extent))
        if (leaves_now(extent))
            extent_set_residence(extent, EXTENT_STUCK);
        else if (extent->residence == EXTENT_STUCK)
            extent_set_residence(extent, EXTENT_HERE);
    atomic_store_explicit(&move->swap->is_evicted, true, memory_order_relaxed);
}

/* If an extent cannot leave, those that have left come back. If even that fails, the process is evicted with some of
 * its memory on the card, and the rest comes back with the next restore. */
static CUresult evict(struct move *move)
{
    CUresult result = drop_ahead(move);
    if (result != CUDA_SUCCESS)
        return result;
    enum room room = make_room(move);
    if (room == ROOM_FOR_NONE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = move_all(move, &out);
    if (result == CUDA_SUCCESS)
        leave_stuck(move);
    else
        restore(move);
    return result == CUDA_SUCCESS && room == ROOM_FOR_SOME ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* How long work may go on that the drain has not seen (quiet_is_drained()). */
#define DRAINED_PATIENCE_NS UINT64_C(100000000)

/* --- Called from other files ----------------------------------------------------------------------- */

CUresult swap_evict(void (*progress)(void))
{
    struct swap *swap = swap_state();
    struct move move;
    CUresult result = CUDA_SUCCESS;
    if (!quiet_is_drained(DRAINED_PATIENCE_NS))
        return CUDA_ERROR_NOT_READY;
    move_lock_all(swap);
    GS_CHECK(extents_are_valid());
    if (!swap->is_evicted || atomic_load_explicit(&swap->resident_bytes, memory_order_relaxed)) {
        begin(&move, progress);
        result = evict(&move);
    }
    GS_CHECK(extents_are_valid());
    move_unlock_all(swap);
    return result;
}

/* Bring back `part`; NULL: all. */
static CUresult move_in(const struct part *part, void (*progress)(void))
{
    struct swap *swap = swap_state();
    struct move move;
    CUresult result = CUDA_SUCCESS;
    move_lock_all(swap);
    GS_CHECK(extents_are_valid());
    if (swap->is_evicted) {
        begin(&move, progress);
        result = part ? restore_part(&move, part) : restore(&move);
    }
    GS_CHECK(extents_are_valid());
    move_unlock_all(swap);
    return result;
}

CUresult swap_restore(void (*progress)(void))
{
    return move_in(NULL, progress);
}

CUresult swap_restore_part(CUdevice device, uint64_t most_bytes, void (*progress)(void))
{
    return move_in(&(struct part){device, most_bytes}, progress);
}

/* --- Host memory that is not needed any more ------------------------------------------------------- */

#define RESERVE_PART 8 /* of what moves: programs that free memory often allocate it again */
#define RESERVE_LEAST_BYTES (UINT64_C(64) << 20)

static const struct arena_chunk *last_chunk(const struct arena *arena)
{
    return arena->chunk_count ? &arena->chunks[arena->chunk_count - 1] : NULL;
}

bool swap_has_spare_chunk(void)
{
    const struct arena_chunk *last = last_chunk(&swap_state()->arena);
    struct swap_bytes bytes = swap_bytes();
    uint64_t needed = bytes.resident_bytes + bytes.evicted_bytes, reserve = needed / RESERVE_PART;
    return last && last->begin >= needed + (reserve > RESERVE_LEAST_BYTES ? reserve : RESERVE_LEAST_BYTES);
}

/* Give up the copies in the last chunk of extents that are on the card. False if an extent that is away has its only
 * copy there. */
static bool empty_last_chunk(struct swap *swap)
{
    struct extents *extents = &swap->extents;
    uint64_t begin = last_chunk(&swap->arena)->begin;
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        if (extent->has_copy && extent->place + extent->bytes > begin)
            return false;
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        if (extent->has_place && extent->place + extent->bytes > begin)
            extent_give_up_place(extent);
    return true;
}

/* Only this thread moves memory, so nothing gets a place in the chunk between the two holds of the lock. */
static bool give_back_last_chunk(void)
{
    struct swap *swap = swap_state();
    guard_lock(&swap->lock);
    bool is_empty = swap->arena.chunk_count && empty_last_chunk(swap);
    uint64_t begin = is_empty ? last_chunk(&swap->arena)->begin : 0, end = swap->arena.ready_bytes;
    guard_unlock(&swap->lock);
    if (!is_empty || !page_lock_undo(begin, end))
        return false;
    guard_lock(&swap->lock);
    bool is_given = arena_give_back_chunk(&swap->arena);
    guard_unlock(&swap->lock);
    return is_given;
}

bool swap_give_back_chunk(uint64_t keep_bytes)
{
    bool is_beyond = swap_state()->arena.ready_bytes > keep_bytes;
    return (is_beyond || swap_has_spare_chunk()) && give_back_last_chunk();
}

struct swap_bytes swap_bytes(void)
{
    const struct swap *swap = swap_state();
    return (struct swap_bytes){atomic_load_explicit(&swap->resident_bytes, memory_order_relaxed),
                               atomic_load_explicit(&swap->evicted_bytes, memory_order_relaxed)};
}
