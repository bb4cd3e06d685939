/* visible_memory.c - the driver's answers about memory, as a smaller GPU would give them. */
#include "intercept/memory/visible_memory.h"

#include "intercept/resolve/real.h"

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

struct visible_memory visible_memory_of(enum charge_place place, uint32_t gpu, struct visible_memory card)
{
    if (place == CHARGE_NOWHERE)
        return card;
    if (place == CHARGE_FORBIDDEN)
        return (struct visible_memory){.total_bytes = card.total_bytes};
    const struct ledger *ledger = &session_slot()->ledger;
    uint64_t limit = atomic_load_explicit(&ledger->policy->gpus[gpu].limit_bytes, memory_order_relaxed);
    uint64_t total = smaller(limit, card.total_bytes);
    uint64_t used, unseen = ledger_unseen(ledger->policy, gpu);
    if (__builtin_add_overflow(ledger_used(ledger, gpu), unseen, &used))
        used = UINT64_MAX;
    uint64_t left = total > used ? total - used : 0;
    return (struct visible_memory){.total_bytes = total, .free_bytes = smaller(left, card.free_bytes)};
}

/* Change what the driver answered. Either may be NULL, if the driver took that. */
static struct visible_memory current_view(struct visible_memory card)
{
    struct charge charge;
    enum charge_place place = charge_place_current(&charge);
    return visible_memory_of(place, charge.gpu, card);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    if (!real_ready() || !real(cuMemGetInfo_v2))
        return real_absent();
    CUresult result = real(cuMemGetInfo_v2)(free_bytes, total_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    struct visible_memory view =
        current_view((struct visible_memory){.total_bytes = total_bytes ? *total_bytes : SIZE_MAX,
                                             .free_bytes = free_bytes ? *free_bytes : SIZE_MAX});
    if (free_bytes)
        *free_bytes = view.free_bytes;
    if (total_bytes)
        *total_bytes = view.total_bytes;
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    struct charge charge;
    if (!real_ready() || !real(cuDeviceTotalMem_v2))
        return real_absent();
    CUresult result = real(cuDeviceTotalMem_v2)(bytes, device);
    if (result == CUDA_SUCCESS && bytes) {
        enum charge_place place = charge_place_device(&charge, device);
        *bytes =
            visible_memory_of(place, charge.gpu, (struct visible_memory){.total_bytes = *bytes}).total_bytes;
    }
    return result;
}
