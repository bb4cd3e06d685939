/* context.c - contexts, primary and created, and which of them is current to a thread. */
#include <stdlib.h>

#include "simgpu/code/library.h"
#include "simgpu/device/cuda_release.h"
#include "simgpu/driver/sim.h"
#include "simgpu/graph/capture.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

#define STACK_DEPTH 64u

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts; /* all there ever were */
static atomic_ullong next_id;

static struct primary {
    CUcontext context; /* stays when it is destroyed, and comes alive again under the same handle */
    unsigned retained;
    unsigned flags;
} primaries[DEVICE_GPUS]; /* by device ordinal */

static __thread struct {
    unsigned depth;
    CUcontext contexts[STACK_DEPTH];
} stack;

static bool context_is_alive(CUcontext context)
{
    return atomic_load_explicit(&context->kind, memory_order_acquire) == SIM_CONTEXT;
}

CUresult context_check(CUcontext context)
{
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_is_alive(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (device_is_lost(context->gpu))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return (CUresult)atomic_load_explicit(&context->sticky, memory_order_relaxed);
}

CUresult context_current(CUcontext *context)
{
    SIM_TRY(sim_ready());
    CUcontext top = stack.depth ? stack.contexts[stack.depth - 1] : NULL;
    SIM_TRY(context_check(top));
    *context = top;
    return CUDA_SUCCESS;
}

CUcontext context_of_gpu(unsigned gpu)
{
    pthread_mutex_lock(&contexts_lock);
    CUcontext context = contexts;
    while (context && !(context->gpu == gpu && context_is_alive(context)))
        context = context->next;
    pthread_mutex_unlock(&contexts_lock);
    return context;
}

/* A handle that is one of ours, dead or alive: what a program made up is INVALID_CONTEXT. */
static bool context_is_known(CUcontext context)
{
    pthread_mutex_lock(&contexts_lock);
    CUcontext known = contexts;
    while (known && known != context)
        known = known->next;
    pthread_mutex_unlock(&contexts_lock);
    return known != NULL;
}

/* --- Making and destroying ------------------------------------------------------------------------- */

/* Whether the GPU's compute mode lets this process have a context. */
static bool is_forbidden_here(unsigned gpu)
{
    uint64_t mode = constant_whole(SIM_COMPUTE_MODE);
    return mode == CU_COMPUTEMODE_PROHIBITED ||
           (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS && device_used_bytes(gpu) > device_own_bytes(gpu));
}

static CUresult context_start(CUcontext context, unsigned flags)
{
    uint64_t bytes = constant_whole(SIM_CONTEXT_BYTES);
    if (is_forbidden_here(context->gpu))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (!device_charge(context->gpu, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->charged_bytes = bytes;
    context->flags = flags;
    context->id = atomic_fetch_add(&next_id, 1) + 1;
    context->attach_count = 1;
    context->peers = 0;
    context->local_bytes = 0;
    context_settings_begin(context);
    atomic_store(&context->sticky, CUDA_SUCCESS);
    atomic_store_explicit(&context->kind, SIM_CONTEXT, memory_order_release); /* with context_is_alive */
    return CUDA_SUCCESS;
}

static CUcontext context_make(CUdevice device, unsigned api_version)
{
    CUcontext context = calloc(1, sizeof(*context));
    if (!context)
        return NULL;
    context->device = device;
    context->gpu = simulator.visible[device];
    context->api_version = api_version;
    atomic_store(&context->kind, SIM_DESTROYED);
    pthread_mutex_lock(&contexts_lock);
    context->next = contexts;
    contexts = context;
    pthread_mutex_unlock(&contexts_lock);
    return context;
}

/* End everything of the context: wait for its work, give its memory back. */
static void context_stop(CUcontext context)
{
    context_wait(context);
    unsigned alive = SIM_CONTEXT;
    if (!atomic_compare_exchange_strong(&context->kind, &alive, SIM_DESTROYED))
        return;
    library_drop_context(context);
    streams_drop(context);
    memory_give_back_context(context);
    if (!context_of_gpu(context->gpu)) {
        pool_imports_drop(context->gpu);
        graph_memory_drop(context->gpu);
    }
    device_credit(context->gpu, context->charged_bytes);
    context->charged_bytes = 0;
}

static CUresult push(CUcontext context)
{
    if (stack.depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack.contexts[stack.depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *context_out, unsigned flags, CUdevice device, unsigned api_version)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context_out && (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    SIM_REQUIRE(schedule == 0 || (schedule & (schedule - 1)) == 0); /* one way to wait at most */
    SIM_TRY(device_check(device));
    CUcontext context = context_make(device, api_version);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_TRY(context_start(context, flags));
    CUresult result = push(context);
    if (result != CUDA_SUCCESS) {
        context_stop(context);
        return result;
    }
    *context_out = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(context, flags, device, 3010); /* of CUDA 3.1, the last before _v2 */
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(context, flags, device, (unsigned)cuda_release()->number);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinity_count,
                        unsigned int flags, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(affinity_count >= 0);
    if (affinity_count > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(context, flags, device, (unsigned)cuda_release()->number);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                        CUdevice device)
{
    SIM_TRY(sim_ready());
    if (parameters && parameters->numExecAffinityParams > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (parameters && parameters->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device, (unsigned)cuda_release()->number);
}

static CUresult destroy(CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context);
    if (!context_is_known(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_is_alive(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_stop(context);
    if (stack.depth && stack.contexts[stack.depth - 1] == context)
        stack.depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return destroy(context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return destroy(context);
}

CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context && flags == 0);
    CUcontext current;
    SIM_TRY(context_current(&current));
    current->attach_count++;
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_TRY(context_check(context));
    if (context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    return --context->attach_count == 0 ? destroy(context) : CUDA_SUCCESS;
}

/* --- Primary contexts ------------------------------------------------------------------------------ */

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult primary_retain(CUcontext *context, CUdevice device)
{
    struct primary *primary = &primaries[device];
    if (!primary->context) {
        primary->context = context_make(device, (unsigned)cuda_release()->number);
        if (!primary->context)
            return CUDA_ERROR_OUT_OF_MEMORY;
        primary->context->primary = true;
    }
    if (!context_is_alive(primary->context))
        SIM_TRY(context_start(primary->context, primary->flags));
    primary->retained++;
    *context = primary->context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context);
    SIM_TRY(device_check(device));
    pthread_mutex_lock(&primary_lock);
    CUresult result = primary_retain(context, device);
    pthread_mutex_unlock(&primary_lock);
    return result;
}

static CUresult primary_release(CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    pthread_mutex_lock(&primary_lock);
    struct primary *primary = &primaries[device];
    CUresult result = primary->retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (primary->retained && --primary->retained == 0)
        context_stop(primary->context);
    pthread_mutex_unlock(&primary_lock);
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return primary_release(device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return primary_release(device);
}

/* Whoever retained the context still has to release it; the next to retain it finds it new. */
static CUresult primary_reset(CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    pthread_mutex_lock(&primary_lock);
    struct primary *primary = &primaries[device];
    if (primary->context && context_is_alive(primary->context))
        context_stop(primary->context);
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return primary_reset(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return primary_reset(device);
}

static CUresult primary_set_flags(CUdevice device, unsigned flags)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    SIM_REQUIRE((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    pthread_mutex_lock(&primary_lock);
    primaries[device].flags = flags;
    if (primaries[device].context)
        primaries[device].context->flags = flags;
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    return primary_set_flags(device, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    return primary_set_flags(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    SIM_REQUIRE(flags && active);
    pthread_mutex_lock(&primary_lock);
    *flags = primaries[device].flags;
    *active = primaries[device].context && context_is_alive(primaries[device].context);
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

/* --- Which context a thread has -------------------------------------------------------------------- */

static CUresult push_current(CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context);
    if (!context_is_known(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_is_alive(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return push(context);
}

static CUresult pop_current(CUcontext *context)
{
    SIM_TRY(sim_ready());
    if (stack.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext top = stack.contexts[--stack.depth];
    if (context)
        *context = top;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return push_current(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    return push_current(context);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return pop_current(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    return pop_current(context);
}

/* NULL pops the top, else the top is replaced (driver API reference). */
CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_TRY(sim_ready());
    if (!context) {
        if (stack.depth)
            stack.depth--;
        return CUDA_SUCCESS;
    }
    if (stack.depth && stack.contexts[stack.depth - 1] == context && context_is_alive(context))
        return CUDA_SUCCESS;
    if (!context_is_known(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_is_alive(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (stack.depth)
        stack.contexts[stack.depth - 1] = context;
    else
        stack.contexts[stack.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context);
    *context = stack.depth ? stack.contexts[stack.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult context_named(CUcontext *context)
{
    SIM_TRY(sim_ready());
    if (!*context)
        return context_current(context);
    if (!context_is_known(*context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return context_check(*context);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(device);
    SIM_TRY(context_named(&context));
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    SIM_TRY(context_named(&context));
    SIM_TRY(capture_refuse_context(context));
    SIM_TRY(capture_unsafe());
    context_wait(context);
    pool_settle(context->gpu);
    return (CUresult)atomic_load(&context->sticky);
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}
