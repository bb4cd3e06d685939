#include "intercept/memory/ahead.h"

#include "intercept/memory/charge.h"
#include "intercept/resolve/real.h"

void ahead_begin(struct ahead *ahead)
{
    struct charge charge;
    size_t total_bytes;
    *ahead = (struct ahead){.is_on = false};
    if (charge_place_current(&charge) != PLACE_ON_GPU || session_is_standalone() || !real(cuMemGetInfo_v2))
        return;
    ahead->gpu = charge.gpu;
    charge_enter();
    ahead->is_on = real(cuMemGetInfo_v2)(&ahead->free_bytes, &total_bytes) == CUDA_SUCCESS;
    charge_leave();
}

bool ahead_end(struct ahead *ahead)
{
    size_t free_bytes, total_bytes;
    if (!ahead->is_on)
        return true;
    charge_enter();
    CUresult result = real(cuMemGetInfo_v2)(&free_bytes, &total_bytes);
    charge_leave();
    ahead->found_bytes =
        result == CUDA_SUCCESS && free_bytes < ahead->free_bytes ? ahead->free_bytes - free_bytes : 0;
    if (!ahead->found_bytes)
        return true;
    if (!charge_reserve(ahead->gpu, ahead->found_bytes))
        return false;
    ledger_count_ahead(session_slot()->ledger.usage, ahead->gpu, ahead->found_bytes);
    charge_release(ahead->gpu, ahead->found_bytes);
    return true;
}
