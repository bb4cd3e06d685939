#include "intercept/session/visible_memory.h"

#include "base/least.h"

struct visible_memory visible_memory_of(enum gpu_place place, uint32_t gpu, struct visible_memory card)
{
    if (place == PLACE_NOWHERE)
        return card;
    if (place == PLACE_FORBIDDEN)
        return (struct visible_memory){.total_bytes = card.total_bytes};
    const struct ledger *ledger = &session_slot()->ledger;
    uint64_t limit = atomic_load_explicit(&ledger->policy->gpus[gpu].limit_bytes, memory_order_relaxed);
    bool is_unlimited = limit == LEDGER_UNLIMITED;
    uint64_t total = is_unlimited || !ledger->policy->may_pass_card ? least(limit, card.total_bytes) : limit;
    /* Where memory can leave the card, that of others does, to make room for what this program asks for. */
    bool has_all = ledger->policy->engine != LEDGER_ENGINE_PLAIN;
    uint64_t used, unseen = ledger_unseen(ledger->policy, gpu);
    if (__builtin_add_overflow(ledger_used(ledger, gpu), unseen, &used))
        used = UINT64_MAX;
    uint64_t left = total > used ? total - used : 0;
    return (struct visible_memory){.total_bytes = total,
                                   .free_bytes = has_all ? left : least(left, card.free_bytes)};
}
