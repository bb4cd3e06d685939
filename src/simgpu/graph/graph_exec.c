/* graph_exec.c - executable graphs: making and launching. */
#include "simgpu/graph/graph_exec.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/graph/capture.h"
#include "simgpu/time/execution.h"

/* A loop that never ends holds a card for ever; here it holds the thread that launches it. We break it off as
 * a watchdog would. */
#define LOOP_MOST 65536u

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static CUgraphExec free_execs;

CUresult graph_exec_check(CUgraphExec exec)
{
    SIM_TRY(sim_ready());
    return exec && atomic_load(&exec->kind) == SIM_GRAPH_EXEC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- Making and destroying ------------------------------------------------------------------------- */

/* Make a copy and its bodies the exec's own, and put their nodes in order. If no order is possible, `*wrong`
 * is a node of the original that is in a cycle. */
static CUresult order_make(CUgraph graph, CUgraphNode *wrong)
{
    atomic_store(&graph->kind, SIM_GRAPH_OF_EXEC);
    graph->order = malloc((graph->node_count ? graph->node_count : 1) * sizeof(CUgraphNode));
    if (!graph->order)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUgraphNode in_cycle = graph_sort(graph, graph->order);
    if (in_cycle) {
        *wrong = in_cycle->origin;
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (unsigned body = 0; body < graph->nodes[i]->body_count; body++)
            SIM_TRY(order_make(graph->nodes[i]->bodies[body], wrong));
    return CUDA_SUCCESS;
}

static CUgraphExec exec_take(void)
{
    pthread_mutex_lock(&free_lock);
    CUgraphExec exec = free_execs;
    if (exec)
        free_execs = exec->next_free;
    pthread_mutex_unlock(&free_lock);
    if (exec)
        memset(exec, 0, sizeof(*exec));
    return exec ? exec : calloc(1, sizeof(*exec));
}

static void exec_give(CUgraphExec exec)
{
    pthread_mutex_lock(&free_lock);
    exec->next_free = free_execs;
    free_execs = exec;
    pthread_mutex_unlock(&free_lock);
}

static CUresult instantiate(CUgraphExec *exec_out, CUgraph graph, cuuint64_t flags, CUgraphNode *wrong,
                            CUgraphInstantiateResult *why)
{
    *why = CUDA_GRAPH_INSTANTIATE_ERROR;
    *wrong = NULL;
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(exec_out && !graph->capturing);
    SIM_REQUIRE((flags & ~(cuuint64_t)(GRAPH_AUTO_FREE_ON_LAUNCH | GRAPH_UPLOAD | GRAPH_DEVICE_LAUNCH |
                                       GRAPH_USE_NODE_PRIORITY)) == 0);
    if (flags & GRAPH_DEVICE_LAUNCH) {
        SIM_REQUIRE(!(flags & GRAPH_AUTO_FREE_ON_LAUNCH));
        SIM_TRY(graph_device_check(graph, wrong, why));
        *why = CUDA_GRAPH_INSTANTIATE_ERROR;
    }
    /* A graph's memory can exist once, as its addresses can. */
    SIM_REQUIRE(!graph_has_memory(graph) || atomic_load(&graph->exec_count) == 0);
    CUgraphExec exec = exec_take();
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = graph_copy(graph, true, &exec->graph);
    if (result == CUDA_SUCCESS) {
        result = order_make(exec->graph, wrong);
        if (result != CUDA_SUCCESS)
            graph_free(exec->graph);
    }
    if (result != CUDA_SUCCESS) {
        if (*wrong)
            *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        exec_give(exec);
        return result;
    }
    pthread_mutex_init(&exec->lock, NULL);
    exec->source = graph;
    exec->source_id = graph->id;
    atomic_fetch_add(&graph->exec_count, 1);
    exec->flags = flags;
    atomic_store(&exec->kind, SIM_GRAPH_EXEC);
    *exec_out = exec;
    *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CUgraphNode wrong;
    CUgraphInstantiateResult why;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(!(flags & GRAPH_UPLOAD)); /* the call names no stream for it */
    return instantiate(exec, graph, flags, &wrong, &why);
}

/* The first forms tell what was wrong in words, too. */
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *wrong_out, char *log,
                               size_t log_bytes)
{
    CUgraphNode wrong;
    CUgraphInstantiateResult why;
    SIM_TRY(sim_ready());
    CUresult result = instantiate(exec, graph, 0, &wrong, &why);
    if (wrong_out)
        *wrong_out = wrong;
    if (log && log_bytes > 0) {
        static const char cycle[] = "The graph has a cycle.";
        size_t bytes = wrong ? sizeof(cycle) - 1 : 0;
        bytes = bytes < log_bytes ? bytes : log_bytes - 1;
        memcpy(log, cycle, bytes);
        log[bytes] = '\0';
    }
    return result;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *wrong, char *log, size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, wrong, log, log_bytes);
}

static CUresult upload(CUgraphExec exec, CUstream handle, bool per_thread);

static CUresult instantiate_with(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                                 bool per_thread)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(params);
    CUresult result = instantiate(exec, graph, params->flags, &params->hErrNode_out, &params->result_out);
    if (result != CUDA_SUCCESS || !(params->flags & GRAPH_UPLOAD))
        return result;
    result = upload(*exec, params->hUploadStream, per_thread);
    if (result != CUDA_SUCCESS) {
        cuGraphExecDestroy(*exec);
        params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    }
    return result;
}

SIM_FORMS(cuGraphInstantiateWithParams, _ptsz,
          (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
          instantiate_with(exec, graph, params, per_thread))

static void exec_end(void *argument)
{
    CUgraphExec exec = argument;
    graph_free(exec->graph);
    exec_give(exec);
}

/* Work that was launched goes on, and may use what user objects hold. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_TRY(graph_exec_check(exec));
    unsigned kind = SIM_GRAPH_EXEC;
    if (!atomic_compare_exchange_strong(&exec->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&exec->source->kind) == SIM_GRAPH && exec->source->id == exec->source_id)
        atomic_fetch_sub(&exec->source->exec_count, 1);
    if (exec->context && exec->graph->reference_count > 0) {
        struct CUstream_st stream = {.kind = SIM_STREAM,
                                     .context = exec->context,
                                     .flags = CU_STREAM_NON_BLOCKING,
                                     .last = exec->last};
        if (cuLaunchHostFunc(&stream, exec_end, exec) == CUDA_SUCCESS)
            return CUDA_SUCCESS;
    }
    exec_end(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    SIM_TRY(graph_exec_check(exec));
    SIM_REQUIRE(flags);
    *flags = exec->flags & ~(cuuint64_t)GRAPH_UPLOAD;
    return CUDA_SUCCESS;
}

/* --- Memory ---------------------------------------------------------------------------------------- */

struct need {
    int64_t now[DEVICE_GPUS], most[DEVICE_GPUS];
};

/* What a graph's allocations need at most, in the order it runs in, beyond what its last launch left. */
static void need_add(CUgraph graph, struct need *need)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->order[i];
        if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !graph_memory_is_live(node->memory)) {
            unsigned gpu = graph_memory_gpu(node->memory);
            need->now[gpu] += (int64_t)graph_memory_bytes(node->memory);
            if (need->now[gpu] > need->most[gpu])
                need->most[gpu] = need->now[gpu];
        } else if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            const struct graph_memory *memory = graph_memory_at(node->params.free.dptr);
            if (memory)
                need->now[graph_memory_gpu(memory)] -= (int64_t)graph_memory_bytes(memory);
        }
        for (unsigned body = 0; body < node->body_count; body++)
            need_add(node->bodies[body], need);
    }
}

static CUresult memory_reserve(CUgraph graph)
{
    struct need need = {0};
    need_add(graph, &need);
    for (unsigned gpu = 0; gpu < DEVICE_GPUS; gpu++)
        if (need.most[gpu] > 0 && !graph_memory_reserve(gpu, (uint64_t)need.most[gpu]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* What the last launch allocated and nobody freed has to go before the next launch. With `frees` (a flag of
 * the exec) this frees it. */
static CUresult memory_begin(CUgraph graph, bool frees)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->order[i];
        if (node->memory && graph_memory_is_live(node->memory)) {
            SIM_REQUIRE(frees);
            graph_memory_free(node->memory);
        }
        for (unsigned body = 0; body < node->body_count; body++)
            SIM_TRY(memory_begin(node->bodies[body], frees));
    }
    return CUDA_SUCCESS;
}

/* --- Running a node -------------------------------------------------------------------------------- */

static CUresult run_kernel(CUgraphNode node, CUstream stream)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    const struct graph_attributes *attributes = node->attributes;
    bool is_cooperative = attributes && attributes->values[CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative;
    if (is_cooperative)
        return cuLaunchCooperativeKernel(kernel->func, kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ,
                                         kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ,
                                         kernel->sharedMemBytes, stream, kernel->kernelParams);
    return cuLaunchKernel(kernel->func, kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ,
                          kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ, kernel->sharedMemBytes,
                          stream, kernel->kernelParams, NULL);
}

static CUresult run_memset(CUgraphNode node, CUstream stream)
{
    const CUDA_MEMSET_NODE_PARAMS_v2 *fill = &node->params.memset;
    switch (fill->elementSize) {
    case 1:
        return cuMemsetD2D8Async(fill->dst, fill->pitch, (unsigned char)fill->value, fill->width,
                                 fill->height, stream);
    case 2:
        return cuMemsetD2D16Async(fill->dst, fill->pitch, (unsigned short)fill->value, fill->width,
                                  fill->height, stream);
    default:
        return cuMemsetD2D32Async(fill->dst, fill->pitch, fill->value, fill->width, fill->height, stream);
    }
}

/* A launch, or the run of a body inside one. */
struct run {
    CUcontext context; /* of the launch */
    struct timeline_marks begin, end;
};

static CUresult graph_run(CUgraph graph, struct run *run);

static CUresult run_body(CUgraph body, const struct run *run, CUstream stream)
{
    struct run inner = {.context = run->context, .begin = stream->last, .end = stream->last};
    CUresult result = graph_run(body, &inner);
    stream->last = inner.end;
    return result;
}

static CUresult run_conditional(CUgraphNode node, const struct run *run, CUstream stream)
{
    const CUDA_CONDITIONAL_NODE_PARAMS *conditional = &node->params.conditional;
    unsigned value = graph_condition_value(conditional->handle);
    if (conditional->type == CU_GRAPH_COND_TYPE_SWITCH)
        return value < node->body_count ? run_body(node->bodies[value], run, stream) : CUDA_SUCCESS;
    if (conditional->type == CU_GRAPH_COND_TYPE_IF) {
        unsigned body = value ? 0 : 1;
        return body < node->body_count ? run_body(node->bodies[body], run, stream) : CUDA_SUCCESS;
    }
    for (unsigned i = 0; graph_condition_value(conditional->handle); i++) {
        if (i == LOOP_MOST) {
            atomic_store(&run->context->sticky, CUDA_ERROR_LAUNCH_TIMEOUT);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
        SIM_TRY(run_body(node->bodies[0], run, stream));
    }
    return CUDA_SUCCESS;
}

static CUresult run_free(CUgraphNode node)
{
    struct graph_memory *memory = graph_memory_at(node->params.free.dptr);
    return memory ? graph_memory_free(memory) : CUDA_ERROR_INVALID_VALUE;
}

/* A captured copy between contexts still has them (copy_box.c). */
static CUresult run_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    CUDA_MEMCPY3D_PEER between;
    if (!copy->reserved0 || !copy->reserved1)
        return cuMemcpy3DAsync_v2(copy, stream);
    memcpy(&between, copy, sizeof(between));
    return cuMemcpy3DPeerAsync(&between, stream);
}

static CUresult node_run(CUgraphNode node, const struct run *run, CUstream stream)
{
    if (node->disabled)
        return CUDA_SUCCESS;
    switch (node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return run_kernel(node, stream);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return run_copy(&node->params.memcpy.copyParams, stream);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return run_memset(node, stream);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuLaunchHostFunc(stream, node->params.host.fn, node->params.host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return run_body(node->bodies[0], run, stream);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return run_conditional(node, run, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuStreamWaitEvent(stream, node->params.eventWait.event, CU_EVENT_WAIT_DEFAULT);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuEventRecord(node->params.eventRecord.event, stream);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cuStreamBatchMemOp_v2(stream, node->params.memOp.count, node->params.memOp.paramArray,
                                     node->params.memOp.flags);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        return cuSignalExternalSemaphoresAsync(node->params.extSemSignal.extSemArray,
                                               node->params.extSemSignal.paramsArray,
                                               node->params.extSemSignal.numExtSems, stream);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return cuWaitExternalSemaphoresAsync(node->params.extSemWait.extSemArray,
                                             node->params.extSemWait.paramsArray,
                                             node->params.extSemWait.numExtSems, stream);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return graph_memory_allocate(node->memory);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return run_free(node);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    default:
        return CUDA_SUCCESS;
    }
}

/* Let `stream` wait for `marks`, which are of one GPU: for another's the host waits in the stream's place. */
static void wait_for(CUstream stream, unsigned gpu, const struct timeline_marks *marks)
{
    if (gpu == stream->context->gpu)
        timeline_marks_join(&stream->last, marks);
    else
        execution_wait(gpu, marks);
}

static CUresult graph_run(CUgraph graph, struct run *run)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->order[i];
        /* A stream of the node's own, which waits for the streams of the nodes that it depends on. */
        CUstream stream = &node->stream;
        *stream = (struct CUstream_st){
            .kind = SIM_STREAM,
            .context = node->context ? node->context : run->context,
            .flags = CU_STREAM_NON_BLOCKING,
            .id = node->index,
        };
        wait_for(stream, run->context->gpu, &run->begin);
        for (size_t j = 0; j < node->dependency_count; j++) {
            const struct CUstream_st *before = &node->dependencies[j].from->stream;
            wait_for(stream, before->context->gpu, &before->last);
        }
        CUresult result = node_run(node, run, stream);
        unsigned gpu = stream->context->gpu;
        if (gpu == run->context->gpu)
            timeline_marks_join(&run->end, &stream->last);
        else
            execution_wait(gpu, &stream->last);
        SIM_TRY(result);
    }
    return CUDA_SUCCESS;
}

/* Values begin anew with each launch of the whole graph. */
static void conditions_begin(CUgraph graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        if (graph->order[i]->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            graph_condition_begin(graph->order[i]->params.conditional.handle);
        for (unsigned body = 0; body < graph->order[i]->body_count; body++)
            conditions_begin(graph->order[i]->bodies[body]);
    }
}

/* --- Launching ------------------------------------------------------------------------------------- */

/* Run the graph once, and again for as long as it asks for that. */
static CUresult run_with_tails(CUgraphExec exec, struct run *run)
{
    for (unsigned i = 0; i < LOOP_MOST; i++) {
        graph_device_begin(exec);
        CUresult result = graph_run(exec->graph, run);
        if (!graph_device_end() || result != CUDA_SUCCESS)
            return result;
        run->begin = run->end;
    }
    atomic_store(&run->context->sticky, CUDA_ERROR_LAUNCH_TIMEOUT);
    return CUDA_ERROR_LAUNCH_TIMEOUT;
}

/* A launch that cannot run in all its contexts does nothing. */
static CUresult contexts_check(CUgraph graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        CUgraphNode node = graph->order[i];
        if (node->context && !node->disabled)
            SIM_TRY(context_check(node->context));
        for (unsigned body = 0; body < node->body_count; body++)
            SIM_TRY(contexts_check(node->bodies[body]));
    }
    return CUDA_SUCCESS;
}

static CUresult exec_run(CUgraphExec exec, CUcontext context, CUstream stream)
{
    SIM_TRY(contexts_check(exec->graph));
    SIM_TRY(memory_begin(exec->graph, exec->flags & GRAPH_AUTO_FREE_ON_LAUNCH));
    SIM_TRY(memory_reserve(exec->graph));
    conditions_begin(exec->graph);
    /* One launch after the other, whatever streams they are on (driver API reference: cuGraphLaunch). */
    if (exec->context && exec->context->gpu != context->gpu) {
        execution_wait(exec->context->gpu, &exec->last);
        exec->last = (struct timeline_marks){0};
    }
    struct run run = {.context = context};
    execution_lock(context->gpu);
    run.begin = stream_marks(context, stream);
    execution_unlock(context->gpu);
    timeline_marks_join(&run.begin, &exec->last);
    run.end = run.begin;
    CUresult result = run_with_tails(exec, &run);
    execution_lock(context->gpu);
    stream_join(context, stream, &run.end);
    execution_unlock(context->gpu);
    exec->last = run.end;
    exec->context = context;
    /* The program's next call reports what goes wrong on the device. */
    if (result != CUDA_SUCCESS && atomic_load(&context->sticky) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return result;
}

static CUresult launch(CUgraphExec exec, CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    SIM_TRY(graph_exec_check(exec));
    if (capture_is_possible()) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = exec->graph};
        if (capture_node(handle, per_thread, &params, &result))
            return result;
    }
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    cost_pay(SIM_GRAPH_LAUNCH_NS);
    pthread_mutex_lock(&exec->lock);
    cost_suspend(); /* its nodes run through calls that a program makes */
    result = exec_run(exec, context, stream);
    cost_resume();
    pthread_mutex_unlock(&exec->lock);
    return result;
}

SIM_FORMS(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), launch(exec, stream, per_thread))

/* Reserve what a launch needs first: memory. */
static CUresult upload(CUgraphExec exec, CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(graph_exec_check(exec));
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    pthread_mutex_lock(&exec->lock);
    CUresult result = memory_reserve(exec->graph);
    pthread_mutex_unlock(&exec->lock);
    return result;
}

SIM_FORMS(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), upload(exec, stream, per_thread))
