/* look.c - what an owner says of its slot to who compares ledgers with the card, and how that one looks.
 *
 * The card's figure for a process and the slot's bytes are two numbers that no reader can take at once. The
 * owner therefore says when it is about to change either (`moves`), and changes of the slot change its stamp:
 * a slot that looks the same, and still, before and after the card was asked was so while it answered. */
#include "ledger/usage.h"

static bool is_slot(const struct ledger_slot *slot, unsigned gpu)
{
    return gpu < LEDGER_GPUS && slot->index < LEDGER_SLOTS;
}

static _Atomic uint64_t *hidden_of(const struct ledger_slot *slot, unsigned gpu)
{
    return &slot->ledger.usage->gpus[gpu].requests[slot->index].hidden_bytes;
}

void ledger_hide(struct ledger_slot *slot, unsigned gpu, uint64_t bytes)
{
    if (is_slot(slot, gpu))
        atomic_fetch_add_explicit(hidden_of(slot, gpu), bytes, memory_order_acq_rel); /* ledger_slot_look() */
}

void ledger_unhide(struct ledger_slot *slot, unsigned gpu, uint64_t bytes)
{
    if (is_slot(slot, gpu))
        atomic_fetch_sub_explicit(hidden_of(slot, gpu), bytes, memory_order_acq_rel);
}

void ledger_move_begin(struct ledger_slot *slot)
{
    if (slot->index >= LEDGER_SLOTS)
        return;
    lock_take(slot->turn);
    usage_move_begin(slot);
    lock_leave(slot->turn);
}

void ledger_move_end(struct ledger_slot *slot)
{
    if (slot->index >= LEDGER_SLOTS)
        return;
    lock_take(slot->turn);
    usage_move_end(slot);
    lock_leave(slot->turn);
}

struct ledger_slot_look ledger_slot_look(const struct ledger_usage *usage, uint32_t index, unsigned gpu)
{
    struct ledger_slot_look look = {.moving = true};
    if (index >= LEDGER_SLOTS || gpu >= LEDGER_GPUS)
        return look;
    const struct word128 *word = &usage->gpus[gpu].words[index];
    const struct usage_request *request = &usage->gpus[gpu].requests[index];
    /* Acquire: a move that is seen to have ended has left its stamp (usage_move_end()). */
    uint64_t moves_before = atomic_load_explicit(&usage->gpus[0].requests[index].moves, memory_order_acquire);
    look.stamp = usage_load(&word->high);
    look.bytes = usage_load(&word->low);
    look.hidden_bytes = atomic_load_explicit(&request->hidden_bytes, memory_order_acquire);
    if (look.hidden_bytes > look.bytes)
        look.hidden_bytes = look.bytes;
    look.moving = moves_before != 0 || usage_load(&word->high) != look.stamp ||
                  atomic_load_explicit(&usage->gpus[0].requests[index].moves, memory_order_acquire) != 0;
    return look;
}

bool ledger_slot_rested(const struct ledger_slot_look *before, const struct ledger_slot_look *after)
{
    return !before->moving && !after->moving && before->stamp == after->stamp &&
           before->bytes == after->bytes && before->hidden_bytes == after->hidden_bytes;
}
