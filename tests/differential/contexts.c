/* contexts.c - rows: contexts, streams, events, waiting. */
#include "differ.h"

#define CONTEXTS_MOST 8

static unsigned some_flags(struct actor *actor)
{
    static const unsigned flags_of[] = {0, 0, 0, 1, 2, 4, 8, 16, 3, 256, 0x80000000u};
    unsigned flags = flags_of[chance(actor, 11)];
    put(actor, "flags %u ", flags);
    return flags;
}

/* The driver refuses a context more than its stack holds. */
static bool enough(struct actor *actor)
{
    actor->own_limit = true;
    if (count_living(CONTEXT) < CONTEXTS_MOST)
        return false;
    put(actor, "(enough of them)");
    return true;
}

static void made_context(struct actor *actor, CUresult result, CUcontext context)
{
    put_result(actor, result);
    uint64_t value = (uint64_t)(uintptr_t)context;
    if (result != CUDA_SUCCESS) {
        put_kept(actor, value);
        return;
    }
    struct thing *known = find_living(CONTEXT, value);
    put(actor, " context %u", known ? known->number : add_thing(actor, CONTEXT, value, 0)->number);
}

static void create(struct actor *actor)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    CUcontext *out = one_in(actor, 12) ? NULL : &context;
    if (enough(actor))
        return;
    put(actor, "%s ", out ? "&" : "NULL");
    unsigned flags = some_flags(actor);
    CUresult result = CALL(actor, cuCtxCreate)(out, flags, some_device(actor));
    made_context(actor, result, context);
}

static void create_v3(struct actor *actor)
{
    CUexecAffinityParam affinity = {0};
    CUcontext context = (CUcontext)UNTOUCHED;
    CUcontext *out = one_in(actor, 12) ? NULL : &context;
    if (enough(actor))
        return;
    int count = one_in(actor, 4) ? (int)chance(actor, 3) - 1 : 0;
    put(actor, "%s %d ", out ? "&" : "NULL", count);
    unsigned flags = some_flags(actor);
    CUresult result = CALL(actor, cuCtxCreate_v3)(out, &affinity, count, flags, some_device(actor));
    made_context(actor, result, context);
}

static void create_v4(struct actor *actor)
{
    CUexecAffinityParam affinity = {0};
    CUctxCreateParams parameters = {&affinity, one_in(actor, 4) ? 1 : 0, NULL};
    CUcontext context = (CUcontext)UNTOUCHED;
    CUcontext *out = one_in(actor, 12) ? NULL : &context;
    CUctxCreateParams *how = one_in(actor, 2) ? NULL : &parameters;
    if (enough(actor))
        return;
    put(actor, "%s %s %d ", out ? "&" : "NULL", how ? "&" : "NULL", parameters.numExecAffinityParams);
    unsigned flags = some_flags(actor);
    CUresult result = CALL(actor, cuCtxCreate_v4)(out, how, flags, some_device(actor));
    made_context(actor, result, context);
}

static void create_vdpau(struct actor *actor)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    unsigned flags = some_flags(actor);
    CUresult result = CALL(actor, cuVDPAUCtxCreate)(&context, flags, some_device(actor), 0, NULL);
    made_context(actor, result, context);
}

static void destroy(struct actor *actor)
{
    uint64_t context = count_living(CONTEXT) > 4 || one_in(actor, 3) ? pick(actor, CONTEXT) : 0;
    CUresult result = CALL(actor, cuCtxDestroy)((CUcontext)(uintptr_t)context);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_context(context);
}

static void attach(struct actor *actor)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    unsigned flags = one_in(actor, 6) ? 1 : 0;
    put(actor, "%u", flags);
    CUresult result = CALL(actor, cuCtxAttach)(&context, flags);
    made_context(actor, result, context);
}

/* With the last reference goes the context. */
static void detach(struct actor *actor)
{
    uint64_t context = pick(actor, CONTEXT);
    CUresult result = CALL(actor, cuCtxDetach)((CUcontext)(uintptr_t)context);
    put_result(actor, result);
    unsigned version;
    if (result == CUDA_SUCCESS && cuCtxGetApiVersion((CUcontext)(uintptr_t)context, &version) != CUDA_SUCCESS)
        end_context(context);
}

static void retain(struct actor *actor)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    CUcontext *out = one_in(actor, 12) ? NULL : &context;
    put(actor, "%s ", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuDevicePrimaryCtxRetain)(out, some_device(actor));
    made_context(actor, result, context);
}

static uint64_t primary(CUdevice device)
{
    unsigned flags;
    int active = 0;
    CUcontext context = NULL;
    if (cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return 0;
    cuDevicePrimaryCtxRelease_v2(device);
    return (uint64_t)(uintptr_t)context;
}

static void let_primary_go(struct actor *actor)
{
    CUdevice device = some_device(actor);
    uint64_t before = primary(device);
    CUresult result = CALL(actor, cuDevicePrimaryCtxRelease)(device);
    put_result(actor, result);
    if (before && !primary(device))
        end_context(before);
}

static void reset_primary(struct actor *actor)
{
    if (one_in(actor, 3))
        let_primary_go(actor);
    else
        put(actor, "(not now)");
}

static void primary_state(struct actor *actor)
{
    unsigned flags = 77;
    int active = 77;
    CUresult result = CALL(actor, cuDevicePrimaryCtxGetState)(some_device(actor), &flags, &active);
    put_result(actor, result);
    put(actor, " %u %d", flags, active);
}

static void push(struct actor *actor)
{
    actor->own_limit = true;
    put_result(actor, CALL(actor, cuCtxPushCurrent_v2)((CUcontext)(uintptr_t)pick(actor, CONTEXT)));
}

static void set_current(struct actor *actor)
{
    put_result(actor, CALL(actor, cuCtxSetCurrent)((CUcontext)(uintptr_t)pick(actor, CONTEXT)));
}

/* cuCtxGetCurrent, or another with the same arguments. */
static void get_current(struct actor *actor)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    CUcontext *out = one_in(actor, 8) ? NULL : &context;
    CUresult result = CALL(actor, cuCtxGetCurrent)(out);
    put_result(actor, result);
    struct thing *known = find_living(CONTEXT, (uint64_t)(uintptr_t)context);
    put(actor, " context %d", known ? (int)known->number : -1);
}

static void get_device(struct actor *actor)
{
    CUdevice device = 77;
    CUdevice *out = one_in(actor, 8) ? NULL : &device;
    CUresult result = CALL(actor, cuCtxGetDevice)(out);
    put_result(actor, result);
    put(actor, " %d", device);
}

static void synchronize(struct actor *actor)
{
    put_result(actor, CALL(actor, cuCtxSynchronize)());
}

static void synchronize_context(struct actor *actor)
{
    put_result(actor, CALL(actor, cuCtxSynchronize_v2)((CUcontext)(uintptr_t)pick(actor, CONTEXT)));
}

/* What a limit takes beyond what a context comes with: its heap and its printf() buffer byte for byte, the
 * stack for each thread that can be resident. */
static void set_limit(struct actor *actor)
{
    static const size_t usual[] = {[CU_LIMIT_STACK_SIZE] = 1024,
                                   [CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20,
                                   [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20};
    CUlimit limit = (CUlimit)chance(actor, 12);
    /* Nothing that a driver sets without having it, and a quota refuses. */
    size_t value = chance(actor, limit == CU_LIMIT_STACK_SIZE ? 1100 : 24 << 20);
    put(actor, "%d %zu", limit, value);
    int processors = 0, threads = 0;
    cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0);
    uint64_t takes = 0, unit = limit == CU_LIMIT_STACK_SIZE ? (uint64_t)processors * (uint64_t)threads : 1;
    if (limit <= CU_LIMIT_MALLOC_HEAP_SIZE && value > usual[limit] &&
        __builtin_mul_overflow(value - usual[limit], unit, &takes))
        takes = UINT64_MAX;
    actor->ask = takes;
    CUresult result = CALL(actor, cuCtxSetLimit)(limit, value);
    put_result(actor, result);
}

static void get_limit(struct actor *actor)
{
    size_t value = UNTOUCHED;
    CUlimit limit = (CUlimit)chance(actor, 12);
    put(actor, "%d", limit);
    CUresult result = CALL(actor, cuCtxGetLimit)(&value, limit);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " %zu", value);
}

/* --- Streams and events ---
 *
 * What a stream's handle means once it was destroyed depends on when the driver uses it again, which the
 * streams that it makes of itself (each thread's own) decide too. So ended streams are used at once, before
 * any other is made. */

CUstream some_stream(struct actor *actor)
{
    if (one_in(actor, 2)) {
        uintptr_t value = chance(actor, 3);
        put(actor, "default %d ", (int)value);
        return (CUstream)value;
    }
    return (CUstream)(uintptr_t)pick(actor, STREAM);
}

static void stream_create(struct actor *actor)
{
    CUstream stream = (CUstream)UNTOUCHED;
    CUstream *out = one_in(actor, 8) ? NULL : &stream;
    unsigned flags = (unsigned)chance(actor, 4);
    put(actor, "%s %u", out ? "&" : "NULL", flags);
    CUresult result = CALL(actor, cuStreamCreate)(out, flags);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, STREAM, (uint64_t)(uintptr_t)stream, 0)->number);
}

static void use_ended(struct actor *actor, CUstream stream)
{
    CUdeviceptr address = UNTOUCHED;
    struct thing *memory = random_living(actor, MEMORY);
    put(actor, ", once more %d", cuStreamDestroy_v2(stream));
    put(actor, " %d %d", cuStreamSynchronize(stream), cuStreamSynchronize_ptsz(stream));
    put(actor, " %d %d", cuMemAllocAsync(&address, 512, stream), cuMemAllocAsync_ptsz(&address, 512, stream));
    if (memory)
        put(actor, " %d", cuMemFreeAsync(memory->value, stream));
    put_kept(actor, address);
}

static void stream_destroy(struct actor *actor)
{
    uint64_t stream = pick(actor, STREAM);
    CUresult result = CALL(actor, cuStreamDestroy_v2)((CUstream)(uintptr_t)stream);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(STREAM, stream);
    if (result == CUDA_SUCCESS && one_in(actor, 2))
        use_ended(actor, (CUstream)(uintptr_t)stream);
}

static void stream_synchronize(struct actor *actor)
{
    put_result(actor, CALL(actor, cuStreamSynchronize)(some_stream(actor)));
}

static void stream_context(struct actor *actor)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    CUresult result = CALL(actor, cuStreamGetCtx)(some_stream(actor), &context);
    put_result(actor, result);
    struct thing *known = find_living(CONTEXT, (uint64_t)(uintptr_t)context);
    put(actor, " context %d", known ? (int)known->number : -1);
}

static void event_create(struct actor *actor)
{
    CUevent event = (CUevent)UNTOUCHED;
    CUevent *out = one_in(actor, 8) ? NULL : &event;
    unsigned flags = (unsigned)chance(actor, 9);
    put(actor, "%s %u", out ? "&" : "NULL", flags);
    CUresult result = CALL(actor, cuEventCreate)(out, flags);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, EVENT, (uint64_t)(uintptr_t)event, 0)->number);
}

static void event_record(struct actor *actor)
{
    CUevent event = (CUevent)(uintptr_t)pick(actor, EVENT);
    put_result(actor, CALL(actor, cuEventRecord)(event, some_stream(actor)));
}

static void event_synchronize(struct actor *actor)
{
    put_result(actor, CALL(actor, cuEventSynchronize)((CUevent)(uintptr_t)pick(actor, EVENT)));
}

static void event_destroy(struct actor *actor)
{
    uint64_t event = pick(actor, EVENT);
    CUresult result = CALL(actor, cuEventDestroy_v2)((CUevent)(uintptr_t)event);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(EVENT, event);
}

#define ROW(symbol, weight, call)                                                                            \
    {                                                                                                        \
#symbol, (void *)(uintptr_t)symbol, weight, call                                                     \
    }
const struct row context_rows[] = {
    ROW(cuCtxCreate, 1, create),
    ROW(cuCtxCreate_v2, 2, create),
    ROW(cuCtxCreate_v3, 2, create_v3),
    ROW(cuCtxCreate_v4, 2, create_v4),
    ROW(cuGLCtxCreate, 1, create),
    ROW(cuGLCtxCreate_v2, 1, create),
    ROW(cuVDPAUCtxCreate, 1, create_vdpau),
    ROW(cuVDPAUCtxCreate_v2, 1, create_vdpau),
    ROW(cuCtxDestroy, 1, destroy),
    ROW(cuCtxDestroy_v2, 2, destroy),
    ROW(cuCtxAttach, 1, attach),
    ROW(cuCtxDetach, 1, detach),
    ROW(cuDevicePrimaryCtxRetain, 3, retain),
    ROW(cuDevicePrimaryCtxRelease, 1, let_primary_go),
    ROW(cuDevicePrimaryCtxRelease_v2, 1, let_primary_go),
    ROW(cuDevicePrimaryCtxReset, 1, reset_primary),
    ROW(cuDevicePrimaryCtxReset_v2, 1, reset_primary),
    ROW(cuDevicePrimaryCtxGetState, 1, primary_state),
    ROW(cuCtxPushCurrent_v2, 3, push),
    ROW(cuCtxPopCurrent_v2, 3, get_current),
    ROW(cuCtxSetCurrent, 4, set_current),
    ROW(cuCtxGetCurrent, 2, get_current),
    ROW(cuCtxGetDevice, 2, get_device),
    ROW(cuCtxSynchronize, 2, synchronize),
    ROW(cuCtxSynchronize_v2, 2, synchronize_context),
    ROW(cuCtxSetLimit, 2, set_limit),
    ROW(cuCtxGetLimit, 1, get_limit),
    ROW(cuStreamCreate, 3, stream_create),
    ROW(cuStreamDestroy_v2, 2, stream_destroy),
    ROW(cuStreamSynchronize, 2, stream_synchronize),
    ROW(cuStreamSynchronize_ptsz, 2, stream_synchronize),
    ROW(cuStreamGetCtx, 1, stream_context),
    ROW(cuEventCreate, 2, event_create),
    ROW(cuEventRecord, 2, event_record),
    ROW(cuEventSynchronize, 2, event_synchronize),
    ROW(cuEventDestroy_v2, 1, event_destroy),
    {NULL, NULL, 0, NULL},
};
