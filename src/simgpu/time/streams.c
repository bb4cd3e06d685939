/* streams.c - streams as handles, and host functions on them. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "simgpu/device/shared.h"
#include "simgpu/graph/capture.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

static struct kept_handles destroyed = KEPT_HANDLES_INITIALIZER(destroyed);
static atomic_ullong next_stream_id = 16; /* below are the default streams' */

/* The struct of a stream that was destroyed long ago, or a new one; NULL without memory. */
static CUstream stream_take(void)
{
    CUstream stream = kept_handles_take(&destroyed);
    return stream ? stream : calloc(1, sizeof(*stream));
}

static CUstream stream_make(CUcontext context, unsigned flags, int priority, unsigned long long thread)
{
    CUstream stream = stream_take();
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->thread = thread;
    stream->id = atomic_fetch_add(&next_stream_id, 1);
    stream->last = (struct timeline_marks){0};
    stream->ends_with_kernel = false;
    execution_lock(context->gpu);
    LIST_INSERT_HEAD(&context->streams, stream, entry);
    GS_CHECK(stream_is_valid(context, stream));
    execution_unlock(context->gpu);
    atomic_store_explicit(&stream->kind, SIM_STREAM, memory_order_release); /* with stream_resolve */
    return stream;
}

void streams_drop(CUcontext context)
{
    execution_lock(context->gpu);
    CUstream stream = LIST_FIRST(&context->streams);
    LIST_INIT(&context->streams);
    memset(&context->legacy, 0, sizeof(context->legacy));
    memset(&context->blocking, 0, sizeof(context->blocking));
    memset(&context->made, 0, sizeof(context->made));
    memset(&context->all, 0, sizeof(context->all));
    execution_unlock(context->gpu);
    while (stream) {
        CUstream next = LIST_NEXT(stream, entry);
        atomic_store(&stream->kind, SIM_DESTROYED);
        capture_stream_gone(stream);
        kept_handles_add(&destroyed, stream, &stream->kept);
        stream = next;
    }
}

unsigned long long stream_thread(void)
{
    static atomic_ullong last_thread;
    static __thread unsigned long long thread;
    if (!thread)
        thread = atomic_fetch_add(&last_thread, 1) + 1;
    return thread;
}

/* The calling thread's own default streams that it used last, each in another context. We remember each with
 * its id, as its struct may be another stream by now. */
static __thread struct {
    unsigned count;
    struct {
        CUcontext context;
        CUstream stream;
        unsigned long long id;
    } entries[8];
} own_streams;

static CUstream find_own_stream(CUcontext context)
{
    execution_lock(context->gpu);
    CUstream stream;
    LIST_FOREACH (stream, &context->streams, entry)
        if (stream->thread == stream_thread())
            break;
    execution_unlock(context->gpu);
    return stream;
}

static CUstream own_stream(CUcontext context)
{
    for (unsigned i = 0; i < own_streams.count; i++) {
        if (own_streams.entries[i].context != context)
            continue;
        CUstream stream = own_streams.entries[i].stream;
        if (atomic_load(&stream->kind) == SIM_STREAM && stream->id == own_streams.entries[i].id)
            return stream;
        own_streams.entries[i] = own_streams.entries[--own_streams.count];
        break;
    }
    CUstream stream = find_own_stream(context);
    if (!stream && !(stream = stream_make(context, CU_STREAM_DEFAULT, 0, stream_thread())))
        return NULL;
    if (own_streams.count == sizeof(own_streams.entries) / sizeof(own_streams.entries[0]))
        own_streams.count = 0;
    own_streams.entries[own_streams.count].context = context;
    own_streams.entries[own_streams.count].stream = stream;
    own_streams.entries[own_streams.count++].id = stream->id;
    return stream;
}

CUresult stream_find(CUstream handle, bool per_thread_default, CUcontext *context, CUstream *stream)
{
    if (handle == NULL)
        handle = per_thread_default ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        SIM_TRY(context_current(context));
        *stream = handle == CU_STREAM_PER_THREAD ? own_stream(*context) : NULL;
        return handle == CU_STREAM_LEGACY || *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_touch_handle();
    SIM_TRY(sim_ready());
    if (atomic_load_explicit(&handle->kind, memory_order_acquire) != SIM_STREAM)
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(context_check(handle->context));
    *context = handle->context;
    *stream = handle;
    return CUDA_SUCCESS;
}

CUresult stream_resolve(CUstream handle, bool per_thread_default, CUcontext *context, CUstream *stream)
{
    SIM_TRY(stream_find(handle, per_thread_default, context, stream));
    return capture_is_possible() ? capture_refuse_stream(*context, *stream) : CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream_out, unsigned int flags, int priority)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(stream_out && (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) == 0);
    SIM_TRY(context_current(&context));
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority; /* clamped (driver API reference) */
    CUstream stream = stream_make(context, flags, priority, 0);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *stream_out = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

/* Returns at once; the stream's work goes on and stays known to its context. */
static CUresult stream_destroy(CUstream handle)
{
    SIM_TRY(sim_ready());
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    unsigned kind = SIM_STREAM;
    if (!atomic_compare_exchange_strong(&handle->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_HANDLE;
    CUcontext context = handle->context;
    capture_stream_gone(handle);
    execution_lock(context->gpu);
    LIST_REMOVE(handle, entry);
    execution_unlock(context->gpu);
    kept_handles_add(&destroyed, handle, &handle->kept);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return stream_destroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return stream_destroy(stream);
}

/* What a query looks at. The reference says of work in the legacy stream that it waits for other threads' own streams, and says
 * nothing of queries. Under execution_lock(). */
static struct timeline_marks marks_of_query(CUcontext context, CUstream stream)
{
    if (stream || constant_whole(SIM_LEGACY_QUERY))
        return stream_marks(context, stream);
    struct timeline_marks marks = context->made;
    CUstream own;
    LIST_FOREACH (own, &context->streams, entry)
        if (own->thread == stream_thread())
            timeline_marks_join(&marks, &own->last);
    return marks;
}

static CUresult stream_query(CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_TRY(capture_unsafe());
    cost_pay(SIM_QUERY_NS);
    execution_lock(context->gpu);
    struct timeline_marks marks = marks_of_query(context, stream);
    bool reached = execution_is_reached(context->gpu, &marks);
    execution_unlock(context->gpu);
    return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_FORMS(cuStreamQuery, _ptsz, (CUstream stream), stream_query(stream, per_thread))

static CUresult stream_synchronize(CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_TRY(capture_unsafe());
    stream_wait(context, stream);
    pool_settle(context->gpu);
    return context_check(context);
}

SIM_FORMS(cuStreamSynchronize, _ptsz, (CUstream stream), stream_synchronize(stream, per_thread))

/* --- What a stream is like ------------------------------------------------------------------------- */

static CUresult stream_flags(CUstream handle, bool per_thread, unsigned *flags)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags);
    SIM_TRY(stream_find(handle, per_thread, &context, &stream));
    *flags = stream ? stream->flags : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned int *flags),
          stream_flags(stream, per_thread, flags))

static CUresult stream_priority(CUstream handle, bool per_thread, int *priority)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(priority);
    SIM_TRY(stream_find(handle, per_thread, &context, &stream));
    *priority = stream ? stream->priority : 0;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamGetPriority, _ptsz, (CUstream stream, int *priority),
          stream_priority(stream, per_thread, priority))

static CUresult stream_id(CUstream handle, bool per_thread, unsigned long long *id)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(id);
    SIM_TRY(stream_find(handle, per_thread, &context, &stream));
    *id = stream ? stream->id : (context->id << 32 | 1);
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamGetId, _ptsz, (CUstream stream, unsigned long long *id), stream_id(stream, per_thread, id))

static CUresult stream_context(CUstream handle, bool per_thread, CUcontext *context_out)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(context_out);
    SIM_TRY(stream_find(handle, per_thread, &context, &stream));
    *context_out = context;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext *context),
          stream_context(stream, per_thread, context))

static CUresult stream_device(CUstream handle, bool per_thread, CUdevice *device)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(device);
    SIM_TRY(stream_context(handle, per_thread, &context));
    *device = context->device;
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamGetDevice, _ptsz, (CUstream stream, CUdevice *device),
          stream_device(stream, per_thread, device))

/* --- Host functions: one thread a GPU runs them in order, when the timeline says that it is their turn  */

struct host_call {
    struct host_call *next;
    CUhostFn function;
    CUstreamCallback callback;
    void *argument;
    CUstream stream;
    struct timeline_marks before; /* what it waits for */
    uint64_t mark;
    CUcontext context;
};

static struct host_queue {
    pthread_mutex_t submitting; /* keeps the queue in the order of the marks */
    pthread_mutex_t lock;       /* of what follows */
    pthread_cond_t filled;
    struct host_call *first, **end;
    bool running;
} host_queues[DEVICE_GPUS];

static void host_call_run(unsigned gpu, struct host_call *call)
{
    execution_wait(gpu, &call->before);
    while (!execution_host_ready(gpu, call->mark))
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    if (call->function)
        call->function(call->argument);
    else
        call->callback(call->stream, (CUresult)atomic_load(&call->context->sticky), call->argument);
    execution_host_done(gpu);
    free(call);
}

static void *host_queue_serve(void *argument)
{
    unsigned gpu = (unsigned)(uintptr_t)argument;
    struct host_queue *queue = &host_queues[gpu];
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        while (!queue->first)
            pthread_cond_wait(&queue->filled, &queue->lock);
        struct host_call *call = queue->first;
        queue->first = call->next;
        if (!queue->first)
            queue->end = &queue->first;
        pthread_mutex_unlock(&queue->lock);
        host_call_run(gpu, call);
    }
    return NULL;
}

static bool host_queue_start(unsigned gpu)
{
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&starting);
    struct host_queue *queue = &host_queues[gpu];
    pthread_t thread;
    if (!queue->running) {
        pthread_mutex_init(&queue->submitting, NULL);
        pthread_mutex_init(&queue->lock, NULL);
        pthread_cond_init(&queue->filled, NULL);
        queue->end = &queue->first;
        queue->running = pthread_create(&thread, NULL, host_queue_serve, (void *)(uintptr_t)gpu) == 0;
        if (queue->running)
            pthread_detach(thread);
    }
    pthread_mutex_unlock(&starting);
    return queue->running;
}

static CUresult host_call_submit(CUstream handle, bool per_thread, CUhostFn function,
                                 CUstreamCallback callback, void *argument)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(function || callback);
    if (function && capture_is_possible()) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {function, argument}};
        CUresult result;
        if (capture_node(handle, per_thread, &params, &result))
            return result;
    }
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    struct host_call *call = malloc(sizeof(*call));
    if (!call || !host_queue_start(context->gpu)) {
        free(call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct host_queue *queue = &host_queues[context->gpu];
    *call = (struct host_call){.function = function,
                               .callback = callback,
                               .argument = argument,
                               .stream = handle,
                               .context = context};
    pthread_mutex_lock(&queue->submitting);
    stream_take_last_kernel(context, stream);
    call->before = stream_submit_marked(context, stream, TIMELINE_HOST, 0);
    call->mark = call->before.at[TIMELINE_HOST]--;
    pthread_mutex_lock(&queue->lock);
    GS_CHECK(!*queue->end && (queue->end == &queue->first) == !queue->first);
    *queue->end = call;
    queue->end = &call->next;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
    pthread_mutex_unlock(&queue->submitting);
    return CUDA_SUCCESS;
}

SIM_FORMS(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void *argument),
          host_call_submit(stream, per_thread, function, NULL, argument))

/* How the GPU waits for the function is all that the modes differ in: 0 sleeps, 1 spins (driver API reference 13.2). */
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *argument, unsigned int mode)
{
    SIM_REQUIRE(mode <= 1);
    return host_call_submit(stream, false, function, NULL, argument);
}

CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void *argument, unsigned int mode)
{
    SIM_REQUIRE(mode <= 1);
    return host_call_submit(stream, true, function, NULL, argument);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *argument, unsigned int flags)
{
    SIM_REQUIRE(flags == 0);
    return host_call_submit(stream, false, NULL, callback, argument);
}

CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *argument,
                                  unsigned int flags)
{
    SIM_REQUIRE(flags == 0);
    return host_call_submit(stream, true, NULL, callback, argument);
}
