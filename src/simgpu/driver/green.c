/* green.c - green contexts: a part of a device's multiprocessors with streams of its own.
 *
 * A green context has the memory and modules of its device's primary context, which it retains;
 * cuCtxFromGreenCtx gives that one. Its streams run as fast as others: kernels here do not take longer on
 * fewer multiprocessors. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/device/profile.h"
#include "simgpu/time/execution.h"

#define SIM_GREEN 0x51c0de20u
#define GREEN_DEFAULT_STREAM 1u /* CU_GREEN_CTX_DEFAULT_STREAM, which cuda.h requires */
#define SPLIT_IGNORE_COSCHEDULING 1u
#define SPLIT_MAX_CLUSTER 2u
#define RESOURCE_MAGIC 0x67726e31u

/* What we keep in a resource's padding: whose multiprocessors it has. */
struct resource_origin {
    uint32_t magic;
    CUdevice device;
};

struct CUdevResourceDesc_st {
    CUdevice device;
    CUdevResource resource;
};

struct green_stream {
    struct green_stream *next;
    CUstream stream;
    unsigned long long id; /* the handle may be another stream's later */
};

struct CUgreenCtx_st {
    _Atomic unsigned kind; /* structs stay (sim.h) */
    CUcontext context;
    CUdevice device;
    CUdevResource resource;
    unsigned long long id;
    CUstream barrier; /* has no work; later streams wait for what it waits for */
    struct green_stream *streams;
    CUgreenCtx next;
};

static pthread_mutex_t green_lock = PTHREAD_MUTEX_INITIALIZER;
static CUgreenCtx greens; /* all there ever were */
static unsigned long long next_id = 1ull << 48;

/* --- Resources ------------------------------------------------------------------------------------- */

static unsigned rounded_up(unsigned count, unsigned step)
{
    return (count + step - 1) / step * step;
}

/* Programming guide, "Green contexts": what a partition is made of, by compute capability. */
static unsigned partition_step(void)
{
    unsigned architecture = profile_architecture();
    return architecture >= 90 ? 8 : 2;
}

static unsigned partition_least(void)
{
    unsigned architecture = profile_architecture();
    return architecture >= 90 ? 8 : architecture >= 80 ? 4 : 2;
}

static unsigned multiprocessors_of(CUdevice device)
{
    return (unsigned)profile_gpu_value(simulator.visible[device], CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

static CUdevResource resource_make(CUdevice device, unsigned count)
{
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_SM,
                              .sm = {.smCount = count,
                                     .minSmPartitionSize = partition_least(),
                                     .smCoscheduledAlignment = partition_step()}};
    const struct resource_origin origin = {.magic = RESOURCE_MAGIC, .device = device};
    memcpy(resource._internal_padding, &origin, sizeof(origin));
    return resource;
}

/* Where a resource that we gave comes from. */
static CUresult resource_origin(const CUdevResource *resource, CUdevice *device)
{
    struct resource_origin origin;
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memcpy(&origin, resource->_internal_padding, sizeof(origin));
    SIM_REQUIRE(origin.magic == RESOURCE_MAGIC && resource->sm.smCount > 0);
    *device = origin.device;
    return device_check(origin.device);
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(resource);
    SIM_TRY(device_check(device));
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = resource_make(device, multiprocessors_of(device));
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(resource);
    if (!context)
        SIM_TRY(context_current(&context));
    SIM_TRY(context_check(context));
    return cuDeviceGetDevResource(context->device, resource, type);
}

/* Make groups of `least` multiprocessors or the next size that exists. Without `groups`, only count them. */
CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned int flags, unsigned int least)
{
    CUdevice device;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(count && input && (flags & ~(SPLIT_IGNORE_COSCHEDULING | SPLIT_MAX_CLUSTER)) == 0);
    SIM_TRY(resource_origin(input, &device));
    unsigned step = flags & SPLIT_IGNORE_COSCHEDULING ? 2 : partition_step();
    unsigned smallest = flags & SPLIT_IGNORE_COSCHEDULING ? 2 : partition_least();
    if (least > input->sm.smCount)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned size = rounded_up(least > smallest ? least : smallest, step), most = input->sm.smCount / size;
    if (!groups) {
        *count = most;
        return CUDA_SUCCESS;
    }
    SIM_REQUIRE(*count > 0);
    if (most == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned total = input->sm.smCount; /* `input` may be one of what is written */
    if (*count > most)
        *count = most;
    for (unsigned i = 0; i < *count; i++)
        groups[i] = resource_make(device, size);
    unsigned left = total - *count * size;
    if (remaining)
        *remaining =
            left > 0 ? resource_make(device, left) : (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_INVALID};
    return CUDA_SUCCESS;
}

/* Descriptors are never freed: the driver has no call for that. */
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources,
                                   unsigned int count)
{
    CUdevice device, other;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(description && resources && count > 0);
    SIM_TRY(resource_origin(&resources[0], &device));
    unsigned multiprocessors = 0;
    for (unsigned i = 0; i < count; i++) {
        SIM_TRY(resource_origin(&resources[i], &other));
        if (other != device)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        multiprocessors += resources[i].sm.smCount;
    }
    if (multiprocessors > multiprocessors_of(device))
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    CUdevResourceDesc made = malloc(sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made =
        (struct CUdevResourceDesc_st){.device = device, .resource = resource_make(device, multiprocessors)};
    *description = made;
    return CUDA_SUCCESS;
}

/* --- Contexts -------------------------------------------------------------------------------------- */

static CUresult green_check(CUgreenCtx green)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(green);
    pthread_mutex_lock(&green_lock);
    CUgreenCtx known = greens;
    while (known && known != green)
        known = known->next;
    pthread_mutex_unlock(&green_lock);
    if (!known)
        return CUDA_ERROR_INVALID_CONTEXT;
    return atomic_load(&green->kind) == SIM_GREEN ? context_check(green->context)
                                                  : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* A stream of the green context's context, whatever is current. */
static CUresult stream_in(CUcontext context, unsigned flags, int priority, CUstream *stream)
{
    SIM_TRY(cuCtxPushCurrent_v2(context));
    CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
    cuCtxPopCurrent_v2(NULL);
    return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green_out, CUdevResourceDesc description, CUdevice device,
                          unsigned int flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(green_out && description && flags == GREEN_DEFAULT_STREAM);
    SIM_TRY(device_check(device));
    if (description->device != device)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    CUgreenCtx green = calloc(1, sizeof(*green));
    if (!green)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuDevicePrimaryCtxRetain(&green->context, device);
    if (result == CUDA_SUCCESS) {
        result = stream_in(green->context, CU_STREAM_NON_BLOCKING, 0, &green->barrier);
        if (result != CUDA_SUCCESS)
            cuDevicePrimaryCtxRelease_v2(device);
    }
    if (result != CUDA_SUCCESS) {
        free(green);
        return result;
    }
    green->device = device;
    green->resource = description->resource;
    atomic_store(&green->kind, SIM_GREEN);
    pthread_mutex_lock(&green_lock);
    green->id = next_id++;
    green->next = greens;
    greens = green;
    pthread_mutex_unlock(&green_lock);
    *green_out = green;
    return CUDA_SUCCESS;
}

/* Streams stay, for the program to destroy (driver API reference). */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    SIM_TRY(green_check(green));
    unsigned alive = SIM_GREEN;
    if (!atomic_compare_exchange_strong(&green->kind, &alive, SIM_DESTROYED))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    cuStreamDestroy_v2(green->barrier);
    return cuDevicePrimaryCtxRelease_v2(green->device);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context);
    SIM_TRY(green_check(green));
    *context = green->context;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(resource);
    SIM_TRY(green_check(green));
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = green->resource;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(id);
    SIM_TRY(green_check(green));
    *id = green->id;
    return CUDA_SUCCESS;
}

/* --- Streams --------------------------------------------------------------------------------------- */

/* What `from` waits for, `to` waits for too. */
static void join(CUgreenCtx green, CUstream to, CUstream from)
{
    execution_lock(green->context->gpu);
    struct timeline_marks marks = stream_marks(green->context, from);
    stream_join(green->context, to, &marks);
    execution_unlock(green->context->gpu);
}

static bool is_still(const struct green_stream *entry)
{
    return atomic_load(&entry->stream->kind) == SIM_STREAM && entry->stream->id == entry->id;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags, int priority)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(stream && flags == CU_STREAM_NON_BLOCKING); /* required (cuda.h 13.0) */
    SIM_TRY(green_check(green));
    struct green_stream *entry = malloc(sizeof(*entry));
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = stream_in(green->context, flags, priority, &entry->stream);
    if (result != CUDA_SUCCESS) {
        free(entry);
        return result;
    }
    entry->id = entry->stream->id;
    join(green, entry->stream, green->barrier);
    *stream = entry->stream;
    pthread_mutex_lock(&green_lock);
    entry->next = green->streams;
    green->streams = entry;
    pthread_mutex_unlock(&green_lock);
    return CUDA_SUCCESS;
}

/* Record all work of the green context up to now. */
CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    CUstream collector;
    SIM_TRY(green_check(green));
    SIM_TRY(stream_in(green->context, CU_STREAM_NON_BLOCKING, 0, &collector));
    pthread_mutex_lock(&green_lock);
    for (const struct green_stream *entry = green->streams; entry; entry = entry->next)
        if (is_still(entry))
            join(green, collector, entry->stream);
    pthread_mutex_unlock(&green_lock);
    CUresult result = cuEventRecord(event, collector);
    cuStreamDestroy_v2(collector);
    return result;
}

/* Let all later work of the green context wait, in streams made later too. */
CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    SIM_TRY(green_check(green));
    SIM_TRY(cuStreamWaitEvent(green->barrier, event, CU_EVENT_WAIT_DEFAULT));
    pthread_mutex_lock(&green_lock);
    for (const struct green_stream *entry = green->streams; entry; entry = entry->next)
        if (is_still(entry))
            join(green, entry->stream, green->barrier);
    pthread_mutex_unlock(&green_lock);
    return CUDA_SUCCESS;
}

/* NULL for a stream of no living green context. */
static CUgreenCtx green_of(CUstream stream)
{
    CUgreenCtx found = NULL;
    pthread_mutex_lock(&green_lock);
    for (CUgreenCtx green = greens; green && stream && !found; green = green->next)
        for (const struct green_stream *entry = green->streams; entry && !found; entry = entry->next)
            if (entry->stream == stream && is_still(entry) && atomic_load(&green->kind) == SIM_GREEN)
                found = green;
    pthread_mutex_unlock(&green_lock);
    return found;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(green);
    SIM_TRY(stream_resolve(handle, false, &context, &stream));
    *green = green_of(stream);
    return CUDA_SUCCESS;
}

static CUresult stream_contexts(CUstream handle, bool per_thread, CUcontext *context_out, CUgreenCtx *green)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context_out && green);
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    *green = green_of(stream);
    *context_out = context;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamGetCtx_v2, _ptsz, (CUstream stream, CUcontext *context, CUgreenCtx *green),
          stream_contexts(stream, per_thread, context, green))
