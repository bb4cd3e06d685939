#include "intercept/memory/full_card.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"

/* What the driver says of the card, where the calling thread has a context there. */
static void find_free(struct refusal_by_card *what)
{
    struct charge charge;
    size_t free_bytes, total_bytes;
    if (charge_place_inside(&charge) != PLACE_ON_GPU || charge.gpu != what->gpu || !real(cuMemGetInfo_v2) ||
        real(cuMemGetInfo_v2)(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        return;
    what->free_bytes = free_bytes;
    what->total_bytes = total_bytes;
}

bool full_card_wait(uint32_t gpu, uint64_t bytes, uint64_t told_bytes, bool is_charged, unsigned attempt)
{
    if (agent_wait_for_room(gpu, bytes, is_charged, attempt))
        return true;
    struct refusal_by_card what = {
        .gpu = gpu, .asked_bytes = told_bytes, .charged_bytes = is_charged ? bytes : 0};
    find_free(&what);
    refusal_by_card(&what);
    return false;
}
