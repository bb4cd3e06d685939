#include "intercept/memory/full_card.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/refusal.h"

bool full_card_wait(uint32_t gpu, uint64_t bytes, uint64_t told_bytes, bool is_charged, unsigned attempt)
{
    if (agent_wait_for_room(gpu, bytes, is_charged, attempt))
        return true;
    refusal_by_card(gpu, told_bytes, is_charged ? bytes : 0);
    return false;
}
