/* context_settings.c - what a context is like, and can be told to be: flags, limits, preferences. */
#include <string.h>

#include "simgpu/device/profile.h"
#include "simgpu/driver/sim.h"

/* A new context's limits. */
#define STACK_BYTES 1024u
#define PRINTF_BYTES (7u << 20)
#define HEAP_BYTES (8u << 20)

void context_settings_begin(CUcontext context)
{
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    context->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    /* What a card of compute capability 9.0 starts with. */
    memset(context->limits, 0, sizeof(context->limits));
    context->limits[CU_LIMIT_STACK_SIZE] = STACK_BYTES;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = PRINTF_BYTES;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = HEAP_BYTES;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags);
    SIM_TRY(context_current(&context));
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    SIM_REQUIRE((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(id);
    SIM_TRY(context_named(&context));
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(version);
    SIM_TRY(context_named(&context));
    *version = context->api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value && limit < CU_LIMIT_MAX);
    SIM_TRY(context_current(&context));
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE || limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

/* What a limit takes beyond a new context's limit, which is part of the context's own cost. The heap and the
 * buffer of printf() take what they are; the stack is that of every thread that can be resident. (measure) */
static uint64_t limit_bytes(unsigned gpu, CUlimit limit, size_t value)
{
    uint64_t unit = 0, usual = 0, bytes;
    if (limit == CU_LIMIT_STACK_SIZE) {
        usual = STACK_BYTES;
        unit = (uint64_t)profile_gpu_value(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
               (uint64_t)profile_value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    } else if (limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE) {
        usual = limit == CU_LIMIT_PRINTF_FIFO_SIZE ? PRINTF_BYTES : HEAP_BYTES;
        unit = 1;
    }
    if (value <= usual)
        return 0;
    return __builtin_mul_overflow(value - usual, unit, &bytes) ? UINT64_MAX : bytes;
}

static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;

/* A thread's local memory holds its stack: the larger one counts. */
static size_t limit_in_force(CUcontext context, CUlimit limit, size_t value)
{
    uint64_t local_bytes = atomic_load(&context->local_bytes);
    return limit == CU_LIMIT_STACK_SIZE && value < local_bytes ? local_bytes : value;
}

CUresult context_need_local(CUcontext context, uint64_t bytes)
{
    if (constant(SIM_LOCAL_MEMORY) == 0 || bytes <= atomic_load(&context->local_bytes))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&limits_lock);
    size_t stack = limit_in_force(context, CU_LIMIT_STACK_SIZE, context->limits[CU_LIMIT_STACK_SIZE]);
    uint64_t held = limit_bytes(context->gpu, CU_LIMIT_STACK_SIZE, stack);
    uint64_t wanted = limit_bytes(context->gpu, CU_LIMIT_STACK_SIZE, bytes > stack ? bytes : stack);
    bool fits = wanted <= held || device_charge(context->gpu, wanted - held);
    if (fits) {
        context->charged_bytes += wanted - held;
        if (bytes > atomic_load(&context->local_bytes))
            atomic_store(&context->local_bytes, bytes);
    }
    pthread_mutex_unlock(&limits_lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(limit < CU_LIMIT_MAX);
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE || limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    pthread_mutex_lock(&limits_lock);
    uint64_t held = limit_bytes(context->gpu, limit, limit_in_force(context, limit, context->limits[limit]));
    uint64_t wanted = limit_bytes(context->gpu, limit, limit_in_force(context, limit, value));
    bool fits = wanted <= held || device_charge(context->gpu, wanted - held);
    if (fits) {
        if (wanted < held)
            device_credit(context->gpu, held - wanted);
        context->charged_bytes += wanted - held;
        context->limits[limit] = value;
    }
    pthread_mutex_unlock(&limits_lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(config);
    SIM_TRY(context_current(&context));
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(config <= CU_FUNC_CACHE_PREFER_EQUAL);
    context->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(config);
    SIM_TRY(context_current(&context));
    *config = context->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    return CUDA_SUCCESS; /* cards since Maxwell have one bank size */
}

/* Either may be NULL; a card of compute capability 9.0 has six levels. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUcontext context;
    SIM_TRY(context_current(&context));
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    CUcontext context;
    return context_current(&context);
}
