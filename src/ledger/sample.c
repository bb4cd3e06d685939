/* sample.c - what the owner of a slot tells the daemon, which compares ledgers with the card; and how the daemon
 * takes samples.
 *
 * The card's figure for a process and the slot's bytes are two numbers that nobody can read at once. So the owner
 * says when it is about to change either (`movers`), and each change of the slot changes its stamp. If two samples,
 * one from before the card was asked and one from after, are alike and neither was taken during a change, the slot
 * stayed the same in between. */
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
        atomic_fetch_add_explicit(hidden_of(slot, gpu), bytes,
                                  memory_order_acq_rel); /* ledger_slot_sample() */
}

void ledger_unhide(struct ledger_slot *slot, unsigned gpu, uint64_t bytes)
{
    if (is_slot(slot, gpu))
        atomic_fetch_sub_explicit(hidden_of(slot, gpu), bytes, memory_order_acq_rel);
}

void ledger_move_begin(struct ledger_slot *slot, unsigned mover)
{
    if (slot->index >= LEDGER_SLOTS)
        return;
    struct usage_request *line = &slot->ledger.usage->gpus[0].requests[slot->index];
    if (mover < LEDGER_MOVERS)
        atomic_store_explicit(&line->movers[mover], 1, memory_order_relaxed);
    else
        atomic_fetch_add_explicit(&line->more_movers, 1, memory_order_relaxed);
    /* No store that follows is seen before this: neither a change of the word nor what the driver does when it is
     * asked next. Pairs with the acquire of is_moving(), which the daemon calls after it has asked the card. */
    atomic_thread_fence(memory_order_release);
}

void ledger_move_end(struct ledger_slot *slot, unsigned mover)
{
    if (slot->index >= LEDGER_SLOTS)
        return;
    struct usage_request *line = &slot->ledger.usage->gpus[0].requests[slot->index];
    /* Release: a reader that sees the end sees how the word was left, and what the driver did. Pairs with
     * is_moving(). */
    if (mover < LEDGER_MOVERS)
        atomic_store_explicit(&line->movers[mover], 0, memory_order_release);
    else
        atomic_fetch_sub_explicit(&line->more_movers, 1, memory_order_release);
}

/* Whether any thread of the slot's process is between ledger_move_begin() and ledger_move_end(). They are read one
 * after the other, which is as good as at once: each thread was outside at some moment of the sample, so whatever it
 * changed between two samples shows in the second one's stamp. */
static bool is_moving(const struct ledger_usage *usage, uint32_t index)
{
    const struct usage_request *line = &usage->gpus[0].requests[index];
    /* Acquire: a reader that sees the end of a change also sees the stamp that it left (ledger_move_end()). */
    unsigned moving = atomic_load_explicit(&line->more_movers, memory_order_acquire);
    for (unsigned mover = 0; mover < LEDGER_MOVERS; mover++)
        moving |= atomic_load_explicit(&line->movers[mover], memory_order_acquire);
    return moving != 0;
}

struct ledger_slot_sample ledger_slot_sample(const struct ledger_usage *usage, uint32_t index, unsigned gpu)
{
    struct ledger_slot_sample sample = {.moving = true};
    if (index >= LEDGER_SLOTS || gpu >= LEDGER_GPUS)
        return sample;
    const struct word128 *word = &usage->gpus[gpu].words[index];
    const struct usage_request *request = &usage->gpus[gpu].requests[index];
    bool moved_before = is_moving(usage, index);
    /* Before the word: what was granted since counts as granted later. Pairs with ask(). */
    sample.granted_bytes = atomic_load_explicit(&usage->gpus[gpu].granted_bytes, memory_order_acquire);
    sample.stamp = usage_load(&word->high);
    sample.bytes = usage_load(&word->low);
    sample.hidden_bytes = atomic_load_explicit(&request->hidden_bytes, memory_order_acquire);
    if (sample.hidden_bytes > sample.bytes)
        sample.hidden_bytes = sample.bytes;
    sample.moving = moved_before || usage_load(&word->high) != sample.stamp || is_moving(usage, index);
    return sample;
}

bool ledger_slot_rested(const struct ledger_slot_sample *before, const struct ledger_slot_sample *after)
{
    return !before->moving && !after->moving && before->stamp == after->stamp &&
           before->bytes == after->bytes && before->hidden_bytes == after->hidden_bytes;
}

uint64_t ledger_slot_most(const struct ledger_slot_sample *before, const struct ledger_slot_sample *after)
{
    uint64_t granted = after->granted_bytes - before->granted_bytes;
    uint64_t most = usage_add(before->bytes, granted);
    /* A library of before this count was kept has other changes of the word than releases. */
    bool is_untold = granted == 0 && before->stamp != after->stamp && before->bytes == after->bytes;
    if (after->granted_bytes < before->granted_bytes || after->bytes > most || is_untold)
        return UINT64_MAX;
    return before->hidden_bytes == after->hidden_bytes ? most - before->hidden_bytes : most;
}
