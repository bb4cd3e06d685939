/* hook_place.c - calls that send managed memory to a place, or advise where it is best. GPUs outside of the session are out of
 * reach. On another GPU of the session, the memory is charged there too, until it is freed. */
#include "cuda/driver_more.h"
#include "intercept/memory/charge_elsewhere.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"

static CUmemLocation place_of_device(CUdevice device)
{
    return (CUmemLocation){.type = device >= 0 ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST,
                           .id = device};
}

/* Whether some memory may go there. `takes`: it takes memory there. */
static bool may_go(CUdeviceptr address, CUmemLocation place, bool takes)
{
    struct charge charge;
    if (place.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return true;
    enum gpu_place where = charge_place_device(&charge, place.id);
    if (where == PLACE_FORBIDDEN)
        refusal_of_gpu();
    return where == PLACE_NOWHERE ||
           (where == PLACE_ON_GPU && (!takes || charge_elsewhere(address, charge.gpu)));
}

/* The ranges from first[i] on go to places[i]. What is wrong is left to the driver, which refuses all of it. */
static bool may_all_go(const CUdeviceptr *addresses, size_t count, const CUmemLocation *places,
                       const size_t *first, size_t place_count)
{
    for (size_t i = 0; addresses && places && first && i < place_count; i++) {
        size_t end = i + 1 < place_count ? first[i + 1] : count;
        for (size_t range = first[i]; range < end && range < count; range++)
            if (!may_go(addresses[range], places[i], true))
                return false;
    }
    return true;
}

/* --- Prefetches ------------------------------------------------------------------------------------ */

static struct gate *enter(CUstream stream)
{
    struct gate *gate = gate_of();
    if (gate)
        gate_enter(gate, stream);
    return gate;
}

static CUresult leave(struct gate *gate, CUstream stream, CUresult result)
{
    if (gate)
        gate_leave(gate, stream);
    return result;
}

#define GOES(symbol, form, may, parameters, arguments)                                                       \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        struct gate *gate = enter(GATE_##form(stream));                                                      \
        return leave(gate, GATE_##form(stream), (may) ? real(symbol) arguments : CUDA_ERROR_OUT_OF_MEMORY);  \
    }
#define PREFETCHES(suffix, form)                                                                             \
    GOES(cuMemPrefetchAsync##suffix, form, may_go(address, place_of_device(device), true),                   \
         (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),                              \
         (address, bytes, device, stream))                                                                   \
    GOES(cuMemPrefetchAsync_v2##suffix, form, may_go(address, place, true),                                  \
         (CUdeviceptr address, size_t bytes, CUmemLocation place, unsigned int flags, CUstream stream),      \
         (address, bytes, place, flags, stream))                                                             \
    BATCH(cuMemPrefetchBatchAsync##suffix, form)                                                             \
    BATCH(cuMemDiscardAndPrefetchBatchAsync##suffix, form)
#define BATCH(symbol, form)                                                                                  \
    GOES(symbol, form, may_all_go(addresses, count, places, first, place_count),                             \
         (CUdeviceptr * addresses, size_t * bytes, size_t count, CUmemLocation * places, size_t * first,     \
          size_t place_count, unsigned long long flags, CUstream stream),                                    \
         (addresses, bytes, count, places, first, place_count, flags, stream))
PREFETCHES(, LEGACY)
PREFETCHES(_ptsz, PER_THREAD)

/* --- Advice ---------------------------------------------------------------------------------------- */

static bool may_advise(CUdeviceptr address, CUmem_advise advice, CUmemLocation place)
{
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        return may_go(address, place, true);
    return advice != CU_MEM_ADVISE_SET_ACCESSED_BY || may_go(address, place, false);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    real_needed(cuMemAdvise);
    return may_advise(address, advice, place_of_device(device))
               ? real(cuMemAdvise)(address, bytes, advice, device)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation place)
{
    real_needed(cuMemAdvise_v2);
    return may_advise(address, advice, place) ? real(cuMemAdvise_v2)(address, bytes, advice, place)
                                              : CUDA_ERROR_OUT_OF_MEMORY;
}
