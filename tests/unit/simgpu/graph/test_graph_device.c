/* Tests of graphs that are made for launches from the device, and launch themselves again. */
#include "simulated.h"

#define PTX SIMULATED_PTX ".visible .entry gs_relaunch_u32(.param .u64 left){ret;}\n"
#define DEVICE_LAUNCH 4u /* CUDA_GRAPH_INSTANTIATE_FLAG_... */
#define AUTO_FREE 1u
#define ROUND_US 2000ULL

static CUcontext context;
static CUmodule module;
static CUstream stream;
static CUdeviceptr left, seen;

static CUgraphNode kernel(CUgraph graph, CUgraphNode after, const char *name, void **arguments)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    assert_cuda(cuModuleGetFunction(&params.func, module, name));
    assert_cuda(cuGraphAddKernelNode_v2(&node, graph, &after, after ? 1 : 0, &params));
    return node;
}

/* Spins, and runs again while `left` says so. */
static CUgraph relaunching(void)
{
    CUgraph graph;
    unsigned long long us = ROUND_US;
    assert_cuda(cuGraphCreate(&graph, 0));
    kernel(graph, kernel(graph, NULL, "gs_spin_us", (void *[]){&us}), "gs_relaunch_u32", (void *[]){&left});
    return graph;
}

static unsigned word(CUdeviceptr at)
{
    unsigned value;
    assert_cuda(cuMemcpyDtoH_v2(&value, at, sizeof(value)));
    return value;
}

/* ms by events that a launch takes; `left` is `times` before. */
static float launch(CUgraphExec exec, unsigned times)
{
    CUevent begin, end;
    float ms;
    assert_cuda(cuMemsetD32_v2(left, times, 1));
    assert_cuda(cuEventCreate(&begin, 0));
    assert_cuda(cuEventCreate(&end, 0));
    assert_cuda(cuEventRecord(begin, stream));
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuEventRecord(end, stream));
    assert_cuda(cuEventSynchronize(end));
    assert_cuda(cuEventElapsedTime(&ms, begin, end));
    assert_cuda(cuEventDestroy_v2(begin));
    assert_cuda(cuEventDestroy_v2(end));
    return ms;
}

static void a_graph_runs_again_behind_its_end_for_as_long_as_it_asks(void **state)
{
    CUgraph graph = relaunching();
    CUgraphExec exec;
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, DEVICE_LAUNCH));
    for (unsigned times = 0; times < 20; times += 19) {
        float ms = launch(exec, times);
        assert_int_equal(word(left), 0);
        assert_true(ms >= (float)(times + 1) * ROUND_US / 1000);
    }
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

static void a_graph_that_is_not_made_for_it_runs_once(void **state)
{
    CUgraph graph = relaunching(), outer;
    CUgraphNode node;
    CUgraphExec exec;
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
    launch(exec, 5);
    assert_int_equal(word(left), 5);
    assert_cuda(cuGraphExecDestroy(exec));
    /* As a child it is the one around it that runs again. */
    assert_cuda(cuGraphCreate(&outer, 0));
    assert_cuda(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph));
    assert_cuda(cuGraphInstantiateWithFlags(&exec, outer, DEVICE_LAUNCH));
    launch(exec, 5);
    assert_int_equal(word(left), 0);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(outer));
    assert_cuda(cuGraphDestroy(graph));
}

static void do_nothing(void *unused)
{
}

static CUresult instantiate(CUgraph graph, cuuint64_t flags, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUgraphExec exec;
    *params = (CUDA_GRAPH_INSTANTIATE_PARAMS){.flags = flags};
    CUresult result = cuGraphInstantiateWithParams(&exec, graph, params);
    if (result == CUDA_SUCCESS)
        assert_cuda(cuGraphExecDestroy(exec));
    return result;
}

static void what_the_device_cannot_launch_is_refused(void **state)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    CUDA_HOST_NODE_PARAMS host = {do_nothing, NULL};
    CUgraphNode called;
    CUgraph graph;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_int_equal(instantiate(graph, DEVICE_LAUNCH, &params), CUDA_ERROR_NOT_SUPPORTED); /* empty */
    assert_cuda(cuGraphAddHostNode(&called, graph, NULL, 0, &host));
    assert_int_equal(instantiate(graph, DEVICE_LAUNCH, &params), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
    assert_ptr_equal(params.hErrNode_out, called);
    assert_cuda(instantiate(graph, 0, &params));
    assert_cuda(cuGraphDestroy(graph));

    graph = relaunching();
    assert_int_equal(instantiate(graph, DEVICE_LAUNCH | AUTO_FREE, &params), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(instantiate(graph, DEVICE_LAUNCH, &params));
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    assert_cuda(cuGraphDestroy(graph));
}

static void nodes_of_two_contexts_are_refused(void **state)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = seen, .elementSize = 4, .width = 1, .height = 1};
    CUgraph graph = relaunching();
    CUgraphNode node;
    CUcontext other;
    assert_cuda(cuCtxCreate_v2(&other, 0, 0));
    assert_cuda(cuCtxPopCurrent_v2(&other));
    assert_cuda(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, other));
    assert_int_equal(instantiate(graph, DEVICE_LAUNCH, &params), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED);
    assert_ptr_equal(params.hErrNode_out, node);
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuCtxDestroy_v2(other));
}

/* The last one: the context is good for nothing afterwards. */
static void a_graph_that_asks_for_ever_is_broken_off(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    assert_cuda(cuGraphCreate(&graph, 0));
    kernel(graph, NULL, "gs_relaunch_u32", (void *[]){&left});
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, DEVICE_LAUNCH));
    assert_cuda(cuMemsetD32_v2(left, UINT32_MAX, 1));
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_runs_again_behind_its_end_for_as_long_as_it_asks),
        cmocka_unit_test(a_graph_that_is_not_made_for_it_runs_once),
        cmocka_unit_test(what_the_device_cannot_launch_is_refused),
        cmocka_unit_test(nodes_of_two_contexts_are_refused),
        cmocka_unit_test(a_graph_that_asks_for_ever_is_broken_off),
    };
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=67108864", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
        cuModuleLoadData(&module, PTX) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuMemAlloc_v2(&left, 256) != CUDA_SUCCESS || cuMemAlloc_v2(&seen, 256) != CUDA_SUCCESS)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
