/* Tests of graphs that signal external semaphores and wait for them, built and captured. */
#include "simulated.h"

#include <stdatomic.h>
#include <sys/mman.h>

static CUstream stream;
static CUexternalSemaphore semaphore;
static _Atomic uint64_t *value;

static void begin(void)
{
    int fd = memfd_create("semaphore", 0);
    assert_true(fd >= 0 && ftruncate(fd, 4096) == 0);
    value = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(value != MAP_FAILED);
    const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC how = {
        .type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD, .handle.fd = fd};
    assert_cuda(cuImportExternalSemaphore(&semaphore, &how));
}

static void end(void)
{
    assert_cuda(cuDestroyExternalSemaphore(semaphore));
    munmap((void *)value, 4096);
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void graph_end(CUgraph graph, CUgraphExec exec)
{
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

/* The graph waits until it is 5, and makes it 9. */
static void assert_waits_and_signals(CUgraphExec exec)
{
    atomic_store(value, 0);
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    assert_int_equal(atomic_load(value), 0);
    atomic_store(value, 5); /* the other API's signal */
    assert_cuda(cuStreamSynchronize(stream));
    assert_int_equal(atomic_load(value), 9);
}

static void nodes_wait_and_signal_in_the_order_of_the_graph(void **state)
{
    CUgraph graph;
    CUgraphNode waits, signals;
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.params.fence.value = 5};
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {.params.fence.value = 9};
    begin();
    CUexternalSemaphore semaphores[] = {semaphore};
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddExternalSemaphoresWaitNode(&waits, graph, NULL, 0,
                                                     &(CUDA_EXT_SEM_WAIT_NODE_PARAMS){semaphores, &wait, 1}));
    assert_cuda(cuGraphAddExternalSemaphoresSignalNode(
        &signals, graph, &waits, 1, &(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){semaphores, &signal, 1}));
    /* Everything was copied. */
    wait.params.fence.value = signal.params.fence.value = 77;
    semaphores[0] = NULL;
    CUgraphExec exec = instantiate(graph);
    assert_waits_and_signals(exec);
    assert_waits_and_signals(exec);
    graph_end(graph, exec);
    end();
}

static void a_capture_makes_nodes_of_waits_and_signals(void **state)
{
    CUgraph graph;
    CUgraphNode nodes[2];
    CUgraphNodeType type;
    size_t count = 2;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS params;
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.params.fence.value = 5};
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {.params.fence.value = 9};
    begin();
    assert_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_cuda(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream));
    assert_cuda(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream));
    assert_cuda(cuStreamEndCapture(stream, &graph));
    assert_int_equal(atomic_load(value), 0);
    assert_cuda(cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 2);
    assert_cuda(cuGraphNodeGetType(nodes[0], &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
    assert_cuda(cuGraphExternalSemaphoresSignalNodeGetParams(nodes[1], &params));
    assert_int_equal(params.numExtSems, 1);
    assert_ptr_equal(params.extSemArray[0], semaphore);
    assert_int_equal(params.paramsArray[0].params.fence.value, 9);
    CUgraphExec exec = instantiate(graph);
    assert_waits_and_signals(exec);
    graph_end(graph, exec);
    end();
}

static void an_execs_values_change_but_not_their_number(void **state)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signals[2] = {{.params.fence.value = 3}, {.params.fence.value = 4}};
    begin();
    CUexternalSemaphore semaphores[] = {semaphore, semaphore};
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS params = {semaphores, signals, 1};
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddExternalSemaphoresSignalNode(&node, graph, NULL, 0, &params));
    CUgraphExec exec = instantiate(graph);
    signals[0].params.fence.value = 6;
    assert_cuda(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, node, &params));
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_int_equal(atomic_load(value), 6);
    params.numExtSems = 2;
    assert_int_equal(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, node, &params),
                     CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphExternalSemaphoresSignalNodeSetParams(node, &params)); /* of the graph it may */
    assert_cuda(cuGraphExecDestroy(exec));
    exec = instantiate(graph);
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_int_equal(atomic_load(value), 4); /* in their order */
    graph_end(graph, exec);
    end();
}

static void what_is_not_a_semaphore_is_refused(void **state)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.flags = 99};
    begin();
    CUexternalSemaphore gone = semaphore;
    CUDA_EXT_SEM_WAIT_NODE_PARAMS params = {&gone, &wait, 1};
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_int_equal(cuGraphAddExternalSemaphoresWaitNode(&node, graph, NULL, 0, &params),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddExternalSemaphoresWaitNode(&node, graph, NULL, 0, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    wait.flags = 0;
    assert_cuda(cuGraphAddExternalSemaphoresWaitNode(&node, graph, NULL, 0, &params));
    assert_int_equal(
        cuGraphExternalSemaphoresSignalNodeGetParams(node, &(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){0}),
        CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = instantiate(graph);
    end();
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE); /* it is gone by now */
    assert_int_equal(cuGraphAddExternalSemaphoresWaitNode(&node, graph, NULL, 0, &params),
                     CUDA_ERROR_INVALID_HANDLE);
    graph_end(graph, exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_wait_and_signal_in_the_order_of_the_graph),
        cmocka_unit_test(a_capture_makes_nodes_of_waits_and_signals),
        cmocka_unit_test(an_execs_values_change_but_not_their_number),
        cmocka_unit_test(what_is_not_a_semaphore_is_refused),
    };
    CUcontext context;
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=67108864", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
