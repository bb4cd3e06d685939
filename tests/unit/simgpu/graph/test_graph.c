/* Tests of graphs as a program builds, changes and launches them. Times are the simulation's. */
#include "simulated.h"

#include <stdatomic.h>
#include <string.h>

#define PTX                                                                                                  \
    SIMULATED_PTX                                                                                            \
    ".visible .entry gs_set_conditional_u32(.param .u64 h, .param .u32 v){ret;}\n"

static CUcontext context;
static CUmodule module;
static CUstream stream;

static CUfunction function(const char *name)
{
    CUfunction found;
    assert_cuda(cuModuleGetFunction(&found, module, name));
    return found;
}

static CUgraph graph_new(void)
{
    CUgraph graph;
    assert_cuda(cuGraphCreate(&graph, 0));
    return graph;
}

/* A kernel node behind `after` (or none). */
static CUgraphNode kernel(CUgraph graph, CUgraphNode after, const char *name, void **arguments)
{
    const CUDA_KERNEL_NODE_PARAMS params = {
        .func = function(name),
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments,
    };
    CUgraphNode node;
    assert_cuda(cuGraphAddKernelNode_v2(&node, graph, &after, after ? 1 : 0, &params));
    return node;
}

static CUgraphNode spin(CUgraph graph, CUgraphNode after, unsigned long long microseconds)
{
    return kernel(graph, after, "gs_spin_us", (void *[]){&microseconds});
}

static CUgraphNode fill(CUgraph graph, CUgraphNode after, CUdeviceptr to, unsigned value, cuuint64_t count)
{
    return kernel(graph, after, "gs_fill_u32", (void *[]){&to, &value, &count});
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void launch(CUgraphExec exec)
{
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuStreamSynchronize(stream));
}

static unsigned word(CUdeviceptr at)
{
    unsigned value;
    assert_cuda(cuMemcpyDtoH_v2(&value, at, sizeof(value)));
    return value;
}

static uint64_t graph_memory(CUgraphMem_attribute attribute)
{
    uint64_t value;
    assert_cuda(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static void count_calls(void *counter)
{
    atomic_fetch_add((atomic_int *)counter, 1);
}

static void a_graph_of_every_data_operation_gives_the_same_bytes_each_time(void **state)
{
    CUdeviceptr a, b;
    cuuint64_t count = 64;
    float two = 2;
    atomic_int calls = 0;
    float host[64];
    assert_cuda(cuMemAlloc_v2(&a, 256));
    assert_cuda(cuMemAlloc_v2(&b, 256));
    CUgraph graph = graph_new();
    CUgraphNode set, filled, copied, computed, out, called;
    /* a = 1.0f everywhere; b = a; b = 2 * a + b */
    const CUDA_MEMSET_NODE_PARAMS zero = {
        .dst = b, .value = 0x55, .elementSize = 1, .width = 256, .height = 1};
    assert_cuda(cuGraphAddMemsetNode(&set, graph, NULL, 0, &zero, context));
    filled = fill(graph, NULL, a, 0x3f800000, 64);
    const CUDA_MEMCPY3D copy = copy_of(b, a, 256);
    assert_cuda(cuGraphAddMemcpyNode(&copied, graph, (CUgraphNode[]){set, filled}, 2, &copy, context));
    computed = kernel(graph, copied, "gs_saxpy_f32", (void *[]){&count, &two, &a, &b});
    CUDA_MEMCPY3D read = copy_of(0, b, 256);
    read.dstMemoryType = CU_MEMORYTYPE_HOST;
    read.dstHost = host;
    assert_cuda(cuGraphAddMemcpyNode(&out, graph, &computed, 1, &read, context));
    const CUDA_HOST_NODE_PARAMS call = {.fn = count_calls, .userData = &calls};
    assert_cuda(cuGraphAddHostNode(&called, graph, &out, 1, &call));
    CUgraphExec exec = instantiate(graph);
    assert_cuda(cuGraphDestroy(graph)); /* the executable one is a copy */
    for (int i = 1; i <= 5; i++) {
        memset(host, 0, sizeof(host));
        launch(exec);
        for (unsigned j = 0; j < 64; j++)
            assert_true(host[j] == 3.0f);
        assert_int_equal(atomic_load(&calls), i);
    }
    assert_cuda(cuGraphExecDestroy(exec));
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree_v2(a));
    assert_cuda(cuMemFree_v2(b));
}

static void branches_overlap_and_chains_do_not(void **state)
{
    CUevent start, end;
    float chain, branches;
    void *host;
    CUdeviceptr device;
    assert_cuda(cuEventCreate(&start, CU_EVENT_DEFAULT));
    assert_cuda(cuEventCreate(&end, CU_EVENT_DEFAULT));
    assert_cuda(cuMemHostAlloc(&host, 4 * MIB, 0));
    assert_cuda(cuMemAlloc_v2(&device, 4 * MIB));
    /* At 1 GB/s the copy takes 4.19 ms; the kernel 4 ms. */
    CUDA_MEMCPY3D copy = copy_of(device, 0, 4 * MIB);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
    assert_cuda(cuMemcpyHtoD_v2(device, host, 4 * MIB)); /* so that pages are there */
    for (int is_chain = 0; is_chain < 2; is_chain++) {
        CUgraph graph = graph_new();
        CUgraphNode copied, first = spin(graph, NULL, 4000);
        assert_cuda(cuGraphAddMemcpyNode(&copied, graph, &first, is_chain ? 1 : 0, &copy, context));
        CUgraphExec exec = instantiate(graph);
        /* Behind something long, so that all is there before any of it begins. */
        assert_cuda(cuLaunchKernel(function("gs_spin_us"), 1, 1, 1, 1, 1, 1, 0, stream,
                                   (void *[]){&(unsigned long long){150000}}, NULL));
        assert_cuda(cuEventRecord(start, stream));
        assert_cuda(cuGraphLaunch(exec, stream));
        assert_cuda(cuEventRecord(end, stream));
        assert_cuda(cuEventSynchronize(end));
        assert_cuda(cuEventElapsedTime(is_chain ? &chain : &branches, start, end));
        assert_cuda(cuGraphExecDestroy(exec));
        assert_cuda(cuGraphDestroy(graph));
    }
    assert_true(chain >= 8.19f);
    assert_true(branches >= 4.19f && branches < chain - 3);
    assert_cuda(cuMemFree_v2(device));
    assert_cuda(cuMemFreeHost(host));
    assert_cuda(cuEventDestroy_v2(start));
    assert_cuda(cuEventDestroy_v2(end));
}

static void a_launch_returns_before_its_work_is_done(void **state)
{
    CUgraph graph = graph_new();
    spin(graph, NULL, 300000);
    CUgraphExec exec = instantiate(graph);
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

static void nodes_and_edges_are_listed(void **state)
{
    CUgraph graph = graph_new();
    CUgraphNode nodes[3], from[4], to[4];
    size_t count = 0;
    for (int i = 0; i < 3; i++)
        assert_cuda(cuGraphAddEmptyNode(&nodes[i], graph, nodes, (size_t)i));
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 3);
    assert_cuda(cuGraphGetEdges(graph, NULL, NULL, &count));
    assert_int_equal(count, 3); /* 0-1, 0-2, 1-2 */
    count = 4;
    from[3] = nodes[0];
    assert_cuda(cuGraphGetEdges(graph, from, to, &count));
    assert_int_equal(count, 3);
    assert_null(from[3]);
    assert_ptr_equal(from[0], nodes[0]);
    assert_ptr_equal(to[0], nodes[1]);
    count = 3;
    assert_cuda(cuGraphGetRootNodes(graph, from, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(from[0], nodes[0]);
    assert_cuda(cuGraphNodeGetDependencies(nodes[2], NULL, &count));
    assert_int_equal(count, 2);
    assert_cuda(cuGraphNodeGetDependentNodes(nodes[0], NULL, &count));
    assert_int_equal(count, 2);
    /* An edge is there once, between two nodes of the graph. */
    assert_int_equal(cuGraphAddDependencies(graph, &nodes[0], &nodes[1], 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddDependencies(graph, &nodes[0], &nodes[0], 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphRemoveDependencies(graph, &nodes[0], &nodes[1], 1));
    assert_int_equal(cuGraphRemoveDependencies(graph, &nodes[0], &nodes[1], 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphGetRootNodes(graph, NULL, &count));
    assert_int_equal(count, 2);
    assert_cuda(cuGraphDestroyNode(nodes[1]));
    assert_int_equal(cuGraphDestroyNode(nodes[1]), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 2);
    assert_cuda(cuGraphNodeGetDependencies(nodes[2], NULL, &count));
    assert_int_equal(count, 1);
    CUgraph clone;
    CUgraphNode twin;
    assert_cuda(cuGraphClone(&clone, graph));
    assert_cuda(cuGraphNodeFindInClone(&twin, nodes[2], clone));
    assert_ptr_not_equal(twin, nodes[2]);
    assert_int_equal(cuGraphNodeFindInClone(&twin, nodes[2], graph), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphDestroy(clone));
    assert_cuda(cuGraphDestroy(graph));
    assert_int_equal(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

static void edges_with_data_are_not_lost_silently(void **state)
{
    CUgraph graph = graph_new();
    CUgraphNode first = spin(graph, NULL, 1), second = spin(graph, NULL, 1), from, to;
    const CUgraphEdgeData programmatic = {.from_port = 1, .type = 1}, wrong = {.from_port = 7};
    CUgraphEdgeData data;
    size_t count = 1;
    assert_int_equal(cuGraphAddDependencies_v2(graph, &first, &second, &wrong, 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphAddDependencies_v2(graph, &first, &second, &programmatic, 1));
    assert_int_equal(cuGraphGetEdges(graph, &from, &to, &count), CUDA_ERROR_LOSSY_QUERY);
    assert_cuda(cuGraphGetEdges_v2(graph, &from, &to, &data, &count));
    assert_memory_equal(&data, &programmatic, sizeof(data));
    assert_int_equal(cuGraphRemoveDependencies(graph, &first, &second, 1), CUDA_ERROR_LOSSY_QUERY);
    assert_cuda(cuGraphRemoveDependencies_v2(graph, &first, &second, &programmatic, 1));
    assert_cuda(cuGraphDestroy(graph));
}

static void a_cycle_is_refused_when_instantiated(void **state)
{
    CUgraph graph = graph_new();
    CUgraphNode first, second;
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    assert_cuda(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    assert_cuda(cuGraphAddEmptyNode(&second, graph, &first, 1));
    assert_cuda(cuGraphAddDependencies(graph, &second, &first, 1));
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    assert_true(params.hErrNode_out == first || params.hErrNode_out == second);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 64), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphDestroy(graph));
}

static void parameters_are_given_back_and_changed(void **state)
{
    CUdeviceptr at;
    assert_cuda(cuMemAlloc_v2(&at, 256));
    CUgraph graph = graph_new();
    CUgraphNode node = fill(graph, NULL, at, 7, 4);
    CUDA_KERNEL_NODE_PARAMS params;
    assert_cuda(cuGraphKernelNodeGetParams_v2(node, &params));
    assert_ptr_equal(params.func, function("gs_fill_u32"));
    assert_int_equal(*(unsigned *)params.kernelParams[1], 7);
    assert_ptr_equal(params.ctx, context);
    /* What was given is copied: the node has the new value, the executable graph the old one. */
    CUgraphExec exec = instantiate(graph);
    unsigned value = 9;
    params.kernelParams[1] = &value;
    assert_cuda(cuGraphKernelNodeSetParams_v2(node, &params));
    value = 1000;
    launch(exec);
    assert_int_equal(word(at), 7);
    CUgraphExecUpdateResultInfo info;
    assert_cuda(cuGraphExecUpdate_v2(exec, graph, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    launch(exec);
    assert_int_equal(word(at), 9);
    /* And by itself. */
    value = 11;
    cuuint64_t count = 4;
    params.kernelParams = (void *[]){&at, &value, &count};
    assert_cuda(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    launch(exec);
    assert_int_equal(word(at), 11);
    params.gridDimX = 0;
    assert_int_equal(cuGraphExecKernelNodeSetParams_v2(exec, node, &params), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphNodeSetEnabled(exec, node, 0));
    assert_cuda(cuMemsetD32_v2(at, 1, 4));
    launch(exec);
    assert_int_equal(word(at), 1);
    unsigned enabled = 1;
    assert_cuda(cuGraphNodeGetEnabled(exec, node, &enabled));
    assert_int_equal(enabled, 0);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree_v2(at));
}

static void an_update_names_what_it_cannot_do(void **state)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = graph_new(), other = graph_new();
    CUgraphNode first = spin(graph, NULL, 1), empty, mine;
    spin(graph, first, 1);
    CUgraphExec exec = instantiate(graph);
    mine = spin(other, NULL, 1);
    assert_int_equal(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_cuda(cuGraphAddEmptyNode(&empty, other, &mine, 1));
    assert_int_equal(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    assert_ptr_equal(info.errorNode, empty);
    assert_cuda(cuGraphDestroyNode(empty));
    spin(other, NULL, 1); /* beside, not behind */
    assert_int_equal(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuGraphDestroy(other));
}

static void child_graphs_and_events_are_nodes(void **state)
{
    CUdeviceptr at;
    CUevent event;
    assert_cuda(cuMemAlloc_v2(&at, 256));
    assert_cuda(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CUgraph child = graph_new(), graph = graph_new(), inside;
    fill(child, NULL, at, 5, 1);
    CUgraphNode node, record, wait;
    assert_cuda(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    assert_cuda(cuGraphAddEventRecordNode(&record, graph, &node, 1, event));
    assert_cuda(cuGraphAddEventWaitNode(&wait, graph, &record, 1, event));
    assert_cuda(cuGraphDestroy(child));
    assert_cuda(cuGraphChildGraphNodeGetGraph(node, &inside));
    assert_int_equal(cuGraphDestroy(inside), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = instantiate(graph);
    launch(exec);
    assert_int_equal(word(at), 5);
    assert_cuda(cuEventQuery(event));
    CUgraph other = graph_new();
    fill(other, NULL, at, 6, 1);
    assert_cuda(cuGraphExecChildGraphNodeSetParams(exec, node, other));
    launch(exec);
    assert_int_equal(word(at), 6);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(other));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuEventDestroy_v2(event));
    assert_cuda(cuMemFree_v2(at));
}

static CUgraphNode allocate(CUgraph graph, size_t bytes, CUdeviceptr *pointer)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = bytes,
    };
    CUgraphNode node;
    assert_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    *pointer = params.dptr;
    return node;
}

static void graph_memory_is_charged_while_it_is_reserved(void **state)
{
    CUdeviceptr at, out;
    CUgraphNode freed;
    size_t before, now, total;
    assert_cuda(cuMemAlloc_v2(&out, 256));
    assert_cuda(cuMemGetInfo_v2(&before, &total));
    CUgraph graph = graph_new(), clone;
    CUgraphNode taken = allocate(graph, 3 * MIB, &at);
    CUgraphNode filled = fill(graph, taken, at, 21, 8), copied;
    const CUDA_MEMCPY3D copy = copy_of(out, at, 32);
    assert_cuda(cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy, context));
    assert_cuda(cuGraphAddMemFreeNode(&freed, graph, &copied, 1, at));
    assert_int_equal(cuGraphAddMemFreeNode(&freed, graph, &freed, 1, at), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuGraphDestroyNode(copied), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExec exec = instantiate(graph), second;
    assert_int_equal(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemGetInfo_v2(&now, &total));
    assert_int_equal(now, before);                                        /* an address costs nothing */
    assert_int_equal(cuMemsetD32_v2(at, 1, 1), CUDA_ERROR_INVALID_VALUE); /* and nothing is there */
    assert_cuda(cuGraphUpload(exec, stream));
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 4 * MIB);
    for (int i = 0; i < 3; i++) {
        launch(exec);
        assert_int_equal(word(out), 21);
    }
    assert_cuda(cuMemGetInfo_v2(&now, &total));
    assert_int_equal(before - now, 4 * MIB);
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 3 * MIB);
    assert_cuda(cuDeviceGraphMemTrim(0));
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 4 * MIB);
    assert_cuda(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &(uint64_t){0}));
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0);
    assert_cuda(cuMemGetInfo_v2(&now, &total));
    assert_int_equal(now, before);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree_v2(out));
}

static void graph_memory_that_is_not_freed_outlives_the_graph(void **state)
{
    CUdeviceptr at;
    CUgraph graph = graph_new();
    CUgraphNode taken = allocate(graph, MIB, &at);
    fill(graph, taken, at, 3, 1);
    CUgraphExec exec = instantiate(graph);
    launch(exec);
    assert_int_equal(word(at), 3);
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE); /* it is still there */
    assert_cuda(cuGraphUpload(exec, stream));
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 2 * MIB); /* no second time */
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 1)); /* AUTO_FREE_ON_LAUNCH */
    launch(exec);
    launch(exec);
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), MIB);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_int_equal(word(at), 3);
    assert_cuda(cuMemFreeAsync(at, stream));
    assert_int_equal(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    assert_cuda(cuDeviceGraphMemTrim(0));
}

static void a_launch_in_a_destroyed_context_takes_no_memory(void **state)
{
    CUdeviceptr at;
    CUcontext other;
    CUgraphNode filled;
    CUgraph graph = graph_new();
    CUgraphNode taken = allocate(graph, MIB, &at);
    const CUDA_MEMSET_NODE_PARAMS params = {.dst = at, .elementSize = 1, .width = MIB, .height = 1};
    assert_cuda(cuCtxCreate_v2(&other, 0, 0));
    assert_cuda(cuGraphAddMemsetNode(&filled, graph, &taken, 1, &params, other));
    CUgraphExec exec = instantiate(graph);
    assert_cuda(cuCtxDestroy_v2(other));
    for (int i = 0; i < 2; i++)
        assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

static void graph_memory_that_does_not_fit_is_refused_at_launch(void **state)
{
    CUdeviceptr at;
    CUgraph graph = graph_new();
    allocate(graph, 200 * MIB, &at);
    CUdeviceptr big;
    assert_cuda(cuMemAlloc_v2(&big, 100 * MIB));
    CUgraphExec exec = instantiate(graph);
    assert_int_equal(cuGraphUpload(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuMemFree_v2(big));
    launch(exec);
    assert_cuda(cuMemFree_v2(at));
    assert_cuda(cuDeviceGraphMemTrim(0));
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

static void conditional_nodes_ask_what_kernels_set(void **state)
{
    CUdeviceptr at;
    CUgraphConditionalHandle condition;
    CUgraphNode node;
    assert_cuda(cuMemAlloc_v2(&at, 256));
    for (unsigned set = 0; set < 2; set++) {
        CUgraph graph = graph_new();
        assert_cuda(cuGraphConditionalHandleCreate(&condition, graph, context, 0, 1));
        CUgraphNode before = kernel(graph, NULL, "gs_set_conditional_u32", (void *[]){&condition, &set});
        CUgraphNodeParams params = {
            .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
            .conditional = {.handle = condition, .type = CU_GRAPH_COND_TYPE_IF, .size = 2, .ctx = context},
        };
        assert_cuda(cuGraphAddNode(&node, graph, &before, 1, &params));
        fill(params.conditional.phGraph_out[0], NULL, at, 100, 1);
        fill(params.conditional.phGraph_out[1], NULL, at, 200, 1);
        CUgraphExec exec = instantiate(graph);
        launch(exec);
        assert_int_equal(word(at), set ? 100 : 200);
        assert_cuda(cuGraphExecDestroy(exec));
        assert_cuda(cuGraphDestroy(graph));
    }
    /* A loop that its own body ends; it runs once. */
    CUgraph graph = graph_new();
    assert_cuda(cuGraphConditionalHandleCreate(&condition, graph, context, 1, 1));
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = condition, .type = CU_GRAPH_COND_TYPE_WHILE, .size = 1, .ctx = context},
    };
    assert_cuda(cuGraphAddNode(&node, graph, NULL, 0, &params));
    CUgraphNode filled = fill(params.conditional.phGraph_out[0], NULL, at, 300, 1);
    unsigned zero = 0;
    kernel(params.conditional.phGraph_out[0], filled, "gs_set_conditional_u32",
           (void *[]){&condition, &zero});
    CUgraphExec exec = instantiate(graph);
    launch(exec);
    assert_int_equal(word(at), 300);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree_v2(at));
}

static void user_objects_live_as_long_as_the_last_graph_that_uses_them(void **state)
{
    atomic_int destroyed = 0;
    CUuserObject object;
    assert_int_equal(cuUserObjectCreate(&object, &destroyed, count_calls, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuUserObjectCreate(&object, &destroyed, count_calls, 1, 1));
    CUgraph graph = graph_new();
    assert_cuda(cuGraphRetainUserObject(graph, object, 1, 1)); /* moved */
    CUgraphExec exec = instantiate(graph);
    assert_cuda(cuGraphDestroy(graph));
    assert_int_equal(atomic_load(&destroyed), 0);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_int_equal(atomic_load(&destroyed), 1);
    assert_int_equal(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Handles are used again: a program's stale one may be that of what only an exec has. */
static void a_stale_handle_never_reaches_an_execs_own_graph(void **state)
{
    CUdeviceptr out;
    CUgraphNode node, stale_node;
    assert_cuda(cuMemAlloc_v2(&out, 256));
    CUgraph graph = graph_new();
    fill(graph, NULL, out, 9, 1);
    CUgraph stale = graph_new();
    assert_cuda(cuGraphAddEmptyNode(&stale_node, stale, NULL, 0));
    assert_cuda(cuGraphDestroy(stale));
    CUgraphExec exec = instantiate(graph); /* its copy has the place of the one that is gone */
    assert_int_equal(cuGraphDestroy(stale), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphDestroyNode(stale_node), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEmptyNode(&node, stale, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    launch(exec);
    assert_int_equal(word(out), 9);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree_v2(out));
}

static void what_is_not_a_node_is_refused(void **state)
{
    CUgraph graph = graph_new();
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};
    assert_int_equal(cuGraphAddNode(&node, graph, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params.type = 99;
    assert_int_equal(cuGraphAddNode(&node, graph, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddMemFreeNode(&node, graph, NULL, 0, 0x1000), CUDA_ERROR_INVALID_VALUE);
    const CUDA_HOST_NODE_PARAMS none = {0};
    assert_int_equal(cuGraphAddHostNode(&node, graph, NULL, 0, &none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEmptyNode(&node, graph, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEmptyNode(NULL, graph, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
    size_t count;
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 0);
    assert_cuda(cuGraphDestroy(graph));
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuModuleLoadData(&module, PTX) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=256MiB", "FAKECUDA_CONTEXT_BYTES=10MiB",
                                "FAKECUDA_LINK_GBPS=1", "FAKECUDA_KERNEL_NS=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_of_every_data_operation_gives_the_same_bytes_each_time),
        cmocka_unit_test(branches_overlap_and_chains_do_not),
        cmocka_unit_test(a_launch_returns_before_its_work_is_done),
        cmocka_unit_test(nodes_and_edges_are_listed),
        cmocka_unit_test(edges_with_data_are_not_lost_silently),
        cmocka_unit_test(a_cycle_is_refused_when_instantiated),
        cmocka_unit_test(parameters_are_given_back_and_changed),
        cmocka_unit_test(an_update_names_what_it_cannot_do),
        cmocka_unit_test(child_graphs_and_events_are_nodes),
        cmocka_unit_test(graph_memory_is_charged_while_it_is_reserved),
        cmocka_unit_test(graph_memory_that_is_not_freed_outlives_the_graph),
        cmocka_unit_test(a_launch_in_a_destroyed_context_takes_no_memory),
        cmocka_unit_test(graph_memory_that_does_not_fit_is_refused_at_launch),
        cmocka_unit_test(conditional_nodes_ask_what_kernels_set),
        cmocka_unit_test(user_objects_live_as_long_as_the_last_graph_that_uses_them),
        cmocka_unit_test(a_stale_handle_never_reaches_an_execs_own_graph),
        cmocka_unit_test(what_is_not_a_node_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
