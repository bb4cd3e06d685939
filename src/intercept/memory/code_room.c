#include "intercept/memory/code_room.h"

#include "intercept/memory/charge.h"
#include "intercept/memory/full_card.h"
#include "intercept/memory/hooks/resident_threads.h"
#include "intercept/memory/library_use.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"

/* What is asked for first: the code of most modules is less. It doubles with each attempt, up to what local memory may take. */
#define FIRST_BYTES (UINT64_C(32) << 20)
#define MOST_DOUBLINGS 5u

bool code_wait_for_room(unsigned attempt)
{
    struct charge charge;
    unsigned doublings = attempt < MOST_DOUBLINGS ? attempt : MOST_DOUBLINGS;
    return charge_place_current(&charge) == PLACE_ON_GPU &&
           full_card_wait(charge.gpu, FIRST_BYTES << doublings, 0, false, attempt);
}

/* --- Local memory ---------------------------------------------------------------------------------- */

static bool find_local_bytes(CUfunction function, CUdevice device, int *bytes)
{
    if (real(cuFuncGetAttribute) &&
        real(cuFuncGetAttribute)(bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) == CUDA_SUCCESS)
        return true;
    /* A launch may name a kernel as well. */
    return real(cuKernelGetAttribute) &&
           real(cuKernelGetAttribute)(bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, (CUkernel)function,
                                      device) == CUDA_SUCCESS;
}

/* A launch may name a kernel of a library, which is loaded then. */
static bool may_use_library(CUfunction function)
{
    CUlibrary library;
    CUfunction loaded;
    return !real(cuKernelGetLibrary) || !real(cuKernelGetFunction) ||
           real(cuKernelGetLibrary)(&library, (CUkernel)function) != CUDA_SUCCESS ||
           library_use_kernel(&loaded, (CUkernel)function) != CUDA_ERROR_OUT_OF_MEMORY;
}

bool code_may_launch(CUfunction function)
{
    struct charge charge;
    CUdevice device;
    uint64_t bytes;
    int local_bytes = 0;
    if (!may_use_library(function))
        return false;
    if (charge_place_current(&charge) != PLACE_ON_GPU || real(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
        !find_local_bytes(function, device, &local_bytes) || local_bytes <= 0 ||
        __builtin_mul_overflow((uint64_t)local_bytes, resident_threads(device), &bytes))
        return true;
    const struct ledger_policy *policy = session_slot()->ledger.policy;
    if (bytes <= atomic_load_explicit(&policy->gpus[charge.gpu].limit_bytes, memory_order_relaxed))
        return true;
    refusal_by_limit(charge.gpu, bytes);
    return false;
}

bool code_may_be_node(const CUgraphNodeParams *params)
{
    if (!params || params->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return true;
    return code_may_launch(params->kernel.func ? params->kernel.func : (CUfunction)params->kernel.kern);
}
