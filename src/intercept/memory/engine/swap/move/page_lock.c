/* page_lock.c - page-locks the arena in the background (swap_move.h). */
#include "intercept/memory/context_locks.h"
#include "intercept/memory/engine/swap/move/swap_move.h"
#include "intercept/memory/engine/swap/state.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"

/* A context that is current in this thread, and lives on, though no lock is held. */
struct lock_context {
    CUcontext context;
    uint32_t gpu;
    struct own_calls calls;
};

static bool is_there(CUcontext context, struct record *record)
{
    return records_find(memory_records(), RECORD_CONTEXT, (uint64_t)(uintptr_t)context, record);
}

static bool begin_in(struct lock_context *here, CUcontext context)
{
    struct record record;
    if (!is_there(context, &record))
        return false;
    *here = (struct lock_context){.context = context, .gpu = record.gpu};
    context_lock(here->gpu);
    bool lives = is_there(context, &record);
    if (lives)
        context_hold(here->gpu, context);
    context_unlock(here->gpu);
    if (lives && own_calls_begin(&here->calls, context))
        return true;
    if (lives)
        context_let_go(here->gpu);
    return false;
}

static void end_in(struct lock_context *here)
{
    own_calls_end(&here->calls);
    context_let_go(here->gpu);
}

static void take_first(const struct record *record, void *argument)
{
    CUcontext *first = argument;
    if (!*first && record->kind == RECORD_CONTEXT && record->charged.context == record->key)
        *first = (CUcontext)(uintptr_t)record->key;
}

static bool find_unlocked(uint64_t *piece)
{
    struct swap *swap = swap_state();
    guard_lock(&swap->lock);
    bool is_found = arena_find_unlocked(&swap->arena, 0, swap->arena.ready_bytes, piece);
    guard_unlock(&swap->lock);
    return is_found;
}

/* Call before the context can be destroyed, so that the code that forgets the context finds the piece. */
static void note(uint64_t piece, CUcontext context)
{
    struct swap *swap = swap_state();
    guard_lock(&swap->lock);
    arena_note_locked(&swap->arena, piece, context);
    guard_unlock(&swap->lock);
}

enum page_lock page_lock_next(void)
{
    struct lock_context here;
    CUcontext first = NULL;
    uint64_t piece;
    if (!find_unlocked(&piece))
        return PAGE_LOCK_ALL;
    records_each(memory_records(), take_first, &first);
    if (!first || !begin_in(&here, first))
        return PAGE_LOCK_NOT;
    bool is_locked = arena_lock_piece(&swap_state()->arena, piece);
    if (is_locked)
        note(piece, here.context);
    end_in(&here);
    return is_locked ? PAGE_LOCK_DONE : PAGE_LOCK_NOT;
}

static CUcontext locker(uint64_t begin, uint64_t end)
{
    struct swap *swap = swap_state();
    guard_lock(&swap->lock);
    CUcontext context = arena_locker(&swap->arena, begin, end);
    guard_unlock(&swap->lock);
    return context;
}

/* A context that has gone meanwhile has been forgotten, and with it what it had page-locked. */
static bool undo_piece(uint64_t piece)
{
    CUcontext context = locker(piece, piece + ARENA_PIECE_BYTES);
    struct lock_context here;
    if (!context)
        return true;
    if (!begin_in(&here, context))
        return !locker(piece, piece + ARENA_PIECE_BYTES);
    bool is_undone = arena_unlock_piece(&swap_state()->arena, piece);
    if (is_undone)
        note(piece, NULL);
    end_in(&here);
    return is_undone;
}

bool page_lock_undo(uint64_t begin, uint64_t end)
{
    for (uint64_t piece = begin; piece < end; piece += ARENA_PIECE_BYTES)
        if (!undo_piece(piece))
            return false;
    return true;
}
