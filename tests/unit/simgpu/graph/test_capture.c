/* Tests of stream capture: what becomes of calls, what invalidates a capture, and for whom. */
#include "simulated.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static CUcontext context;
static CUmodule module;
static CUstream stream, other; /* non-blocking ones */

static CUfunction function(const char *name)
{
    CUfunction found;
    assert_cuda(cuModuleGetFunction(&found, module, name));
    return found;
}

static CUresult fill(CUdeviceptr to, unsigned value, cuuint64_t count, CUstream on)
{
    return cuLaunchKernel(function("gs_fill_u32"), 1, 1, 1, 1, 1, 1, 0, on, (void *[]){&to, &value, &count},
                          NULL);
}

static void begin(CUstream on, CUstreamCaptureMode mode)
{
    assert_cuda(cuStreamBeginCapture_v2(on, mode));
}

static CUstreamCaptureStatus status_of(CUstream on)
{
    CUstreamCaptureStatus status;
    assert_cuda(cuStreamIsCapturing(on, &status));
    return status;
}

/* End a capture that was invalidated: in failure, and with no graph. */
static void end_invalid(CUstream on)
{
    CUgraph graph = (CUgraph)(uintptr_t)1;
    assert_int_equal(status_of(on), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(on, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_int_equal(status_of(on), CU_STREAM_CAPTURE_STATUS_NONE);
}

static CUgraph end(CUstream on)
{
    CUgraph graph;
    assert_cuda(cuStreamEndCapture(on, &graph));
    return graph;
}

static CUgraphNodeType type_of(CUgraph graph, size_t index)
{
    CUgraphNode nodes[16];
    size_t count = 16;
    CUgraphNodeType type;
    assert_cuda(cuGraphGetNodes(graph, nodes, &count));
    assert_true(index < count);
    assert_cuda(cuGraphNodeGetType(nodes[index], &type));
    return type;
}

static size_t node_count(CUgraph graph)
{
    size_t count;
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static void launch(CUgraph graph, unsigned times)
{
    CUgraphExec exec;
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned i = 0; i < times; i++)
        assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuGraphExecDestroy(exec));
}

static CUevent event(void)
{
    CUevent made;
    assert_cuda(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    return made;
}

static void count_calls(void *counter)
{
    atomic_fetch_add((atomic_int *)counter, 1);
}

/* Some work on memory of its own, direct or captured. */
static void work(CUdeviceptr at, float *out, CUstream on)
{
    cuuint64_t count = 64;
    float half = 0.5f;
    CUdeviceptr x = at, y = at + 256;
    assert_cuda(cuMemsetD32Async(x, 0x40000000, 64, on)); /* 2.0f */
    assert_cuda(cuMemsetD8Async(y, 0, 256, on));
    for (int i = 0; i < 3; i++)
        assert_cuda(cuLaunchKernel(function("gs_saxpy_f32"), 1, 1, 1, 1, 1, 1, 0, on,
                                   (void *[]){&count, &half, &x, &y}, NULL));
    assert_cuda(cuMemcpyDtoDAsync_v2(x, y, 128, on));
    assert_cuda(cuMemcpyDtoHAsync_v2(out, at, 512, on));
}

static void a_captured_graph_gives_the_bytes_of_the_direct_calls_each_time(void **state)
{
    CUdeviceptr at;
    float direct[128], replayed[128];
    assert_cuda(cuMemAlloc_v2(&at, 512));
    work(at, direct, stream);
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuMemsetD8_v2(at, 0xff, 512));
    memset(replayed, 0, sizeof(replayed));
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    work(at, replayed, stream);
    CUgraph graph = end(stream);
    assert_int_equal(node_count(graph), 7);
    assert_true(replayed[0] == 0.0f); /* captured, not done */
    for (int i = 0; i < 3; i++) {
        memset(replayed, 0, sizeof(replayed));
        launch(graph, 4);
        assert_memory_equal(direct, replayed, sizeof(direct));
    }
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree_v2(at));
}

static void every_kind_of_call_becomes_its_node(void **state)
{
    CUdeviceptr at, taken;
    CUevent external = event();
    atomic_int calls = 0;
    char bytes[4] = {1, 2, 3, 4};
    assert_cuda(cuMemAlloc_v2(&at, 512));
    begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_cuda(fill(at, 1, 1, stream));
    assert_cuda(cuMemcpyHtoDAsync_v2(at, bytes, 4, stream));
    assert_cuda(cuMemsetD16Async(at, 1, 2, stream));
    assert_cuda(cuLaunchHostFunc(stream, count_calls, &calls));
    assert_cuda(cuEventRecordWithFlags(external, stream, CU_EVENT_RECORD_EXTERNAL));
    assert_cuda(cuStreamWaitEvent(stream, external, CU_EVENT_WAIT_EXTERNAL));
    assert_cuda(cuMemAllocAsync(&taken, 1024, stream));
    assert_cuda(fill(taken, 77, 4, stream));
    assert_cuda(cuMemcpyDtoDAsync_v2(at, taken, 16, stream));
    assert_cuda(cuMemFreeAsync(taken, stream));
    assert_cuda(cuMemcpyDtoDAsync_v2(at, at + 256, 0, stream)); /* nothing */
    CUgraph graph = end(stream);
    static const CUgraphNodeType expected[] = {
        CU_GRAPH_NODE_TYPE_KERNEL,    CU_GRAPH_NODE_TYPE_MEMCPY,       CU_GRAPH_NODE_TYPE_MEMSET,
        CU_GRAPH_NODE_TYPE_HOST,      CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMCPY,
        CU_GRAPH_NODE_TYPE_MEM_FREE,
    };
    assert_int_equal(node_count(graph), 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(type_of(graph, i), expected[i]);
    launch(graph, 3);
    assert_int_equal(atomic_load(&calls), 3);
    unsigned word;
    assert_cuda(cuMemcpyDtoH_v2(&word, at, 4));
    assert_int_equal(word, 77);
    /* Memory operations of a stream, too. */
    CUgraph written;
    begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_cuda(cuStreamWriteValue32_v2(stream, at, 5, 0));
    assert_cuda(cuStreamWaitValue32_v2(stream, at, 5, 1)); /* EQ */
    written = end(stream);
    assert_int_equal(type_of(written, 0), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    launch(written, 2);
    assert_cuda(cuMemcpyDtoH_v2(&word, at, 4));
    assert_int_equal(word, 5);
    assert_cuda(cuGraphDestroy(written));
    /* A launch of a graph, too. */
    CUgraph small, outer;
    CUgraphExec exec;
    begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_cuda(fill(at, 78, 1, stream));
    small = end(stream);
    assert_cuda(cuGraphInstantiateWithFlags(&exec, small, 0));
    begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_cuda(cuGraphLaunch(exec, stream));
    outer = end(stream);
    assert_int_equal(type_of(outer, 0), CU_GRAPH_NODE_TYPE_GRAPH);
    launch(outer, 1);
    assert_cuda(cuMemcpyDtoH_v2(&word, at, 4));
    assert_int_equal(word, 78);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(small));
    assert_cuda(cuGraphDestroy(outer));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuEventDestroy_v2(external));
    assert_cuda(cuMemFree_v2(at));
    assert_cuda(cuDeviceGraphMemTrim(0));
}

static void events_fork_into_streams_and_join_them(void **state)
{
    CUdeviceptr at;
    CUevent forked = event(), joined = event();
    assert_cuda(cuMemAlloc_v2(&at, 512));
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(fill(at, 1, 1, stream));
    assert_cuda(cuEventRecord(forked, stream));
    assert_cuda(cuStreamWaitEvent(other, forked, 0));
    assert_int_equal(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_cuda(fill(at + 4, 2, 1, other));
    assert_cuda(fill(at + 8, 3, 1, stream));
    assert_cuda(cuEventRecord(joined, other));
    assert_cuda(cuStreamWaitEvent(stream, joined, 0));
    assert_cuda(fill(at + 12, 4, 1, stream));
    CUgraph graph = end(stream);
    assert_int_equal(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
    CUgraphNode nodes[4];
    size_t count = 4;
    assert_cuda(cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 4);
    static const size_t dependencies[] = {0, 1, 1, 2};
    for (size_t i = 0; i < 4; i++) {
        assert_cuda(cuGraphNodeGetDependencies(nodes[i], NULL, &count));
        assert_int_equal(count, dependencies[i]);
    }
    launch(graph, 1);
    unsigned words[4];
    assert_cuda(cuMemcpyDtoH_v2(words, at, 16));
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(words[i], i + 1);
    /* Its events are of the capture, also after it. */
    assert_int_equal(cuEventQuery(joined), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(cuEventSynchronize(joined), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(cuStreamWaitEvent(stream, joined, 0), CUDA_ERROR_CAPTURED_EVENT);
    assert_cuda(cuEventRecord(joined, stream));
    assert_cuda(cuEventSynchronize(joined));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuEventDestroy_v2(forked));
    assert_cuda(cuEventDestroy_v2(joined));
    assert_cuda(cuMemFree_v2(at));
}

static void work_that_is_not_joined_is_told(void **state)
{
    CUdeviceptr at;
    CUgraph graph;
    CUevent forked = event();
    assert_cuda(cuMemAlloc_v2(&at, 512));
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(fill(at, 1, 1, stream));
    assert_cuda(cuEventRecord(forked, stream));
    assert_cuda(cuStreamWaitEvent(other, forked, 0));
    /* Nothing done there needs no joining, but work does. */
    assert_cuda(fill(at + 4, 2, 1, other));
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_null(graph);
    assert_int_equal(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuEventRecord(forked, stream));
    assert_cuda(cuStreamWaitEvent(other, forked, 0));
    assert_cuda(fill(at, 1, 1, stream));
    assert_cuda(cuGraphDestroy(end(stream)));
    /* A capture ends where it began. */
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuEventRecord(forked, stream));
    assert_cuda(cuStreamWaitEvent(other, forked, 0));
    assert_int_equal(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    end_invalid(stream);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    assert_cuda(cuEventDestroy_v2(forked));
    assert_cuda(cuMemFree_v2(at));
}

static void dependencies_across_the_capture_s_edge_invalidate_it(void **state)
{
    CUevent outside = event(), first = event(), second = event();
    assert_cuda(cuEventRecord(outside, other));
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuStreamWaitEvent(stream, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    end_invalid(stream);
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    begin(other, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuEventRecord(first, stream));
    assert_int_equal(cuStreamWaitEvent(other, first, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    end_invalid(stream);
    end_invalid(other);
    /* An event that was never recorded is nothing to wait for. */
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuStreamWaitEvent(stream, second, 0));
    assert_cuda(cuGraphDestroy(end(stream)));
    assert_cuda(cuEventDestroy_v2(outside));
    assert_cuda(cuEventDestroy_v2(first));
    assert_cuda(cuEventDestroy_v2(second));
}

static void to_ask_or_wait_for_what_is_captured_invalidates_it(void **state)
{
    CUevent inside = event();
    CUdeviceptr at;
    assert_cuda(cuMemAlloc_v2(&at, 512));
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_cuda(cuThreadExchangeStreamCaptureMode(&relaxed)); /* which does not help */
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(fill(at, 1, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_invalid(stream);
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_cuda(cuEventRecord(inside, stream));
    assert_int_equal(cuEventQuery(inside), CUDA_ERROR_CAPTURED_EVENT);
    end_invalid(stream);
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuStreamAddCallback(stream, (CUstreamCallback)(void *)count_calls, NULL, 0),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
    assert_cuda(cuThreadExchangeStreamCaptureMode(&relaxed));
    assert_cuda(cuEventDestroy_v2(inside));
    assert_cuda(cuMemFree_v2(at));
}

/* A graph of what `stream` captures, launched and gone. */
static void launch_and_drop(CUgraph graph)
{
    CUgraphExec exec;
    assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

static void boxes_and_lines_of_arrays_are_captured_as_copies(void **state)
{
    enum { WIDTH = 8, HEIGHT = 4, DEPTH = 2, BYTES = WIDTH * HEIGHT * DEPTH };
    CUarray volume, line;
    CUdeviceptr flat;
    unsigned char out[BYTES], back[BYTES] = {0}, row[WIDTH] = {0};
    for (unsigned i = 0; i < BYTES; i++)
        out[i] = (unsigned char)(i + 1);
    assert_cuda(cuMemAlloc_v2(&flat, BYTES));
    assert_cuda(cuMemsetD8_v2(flat, 0, BYTES));
    assert_cuda(cuArray3DCreate_v2(
        &volume, &(CUDA_ARRAY3D_DESCRIPTOR){WIDTH, HEIGHT, DEPTH, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}));
    assert_cuda(cuArray3DCreate_v2(
        &line,
        &(CUDA_ARRAY3D_DESCRIPTOR){.Width = WIDTH, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1}));
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = out,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = volume,
                        .WidthInBytes = WIDTH,
                        .Height = HEIGHT,
                        .Depth = DEPTH};
    CUDA_MEMCPY3D_PEER over = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcArray = volume,
                               .srcContext = context,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = flat,
                               .dstContext = context,
                               .dstPitch = WIDTH,
                               .dstHeight = HEIGHT,
                               .WidthInBytes = WIDTH,
                               .Height = HEIGHT,
                               .Depth = DEPTH};
    CUDA_MEMCPY2D home = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = flat,
                          .srcPitch = WIDTH,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstPitch = WIDTH,
                          .WidthInBytes = WIDTH,
                          .Height = HEIGHT * DEPTH};
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuMemcpy3DAsync_v2(&in, stream));
    assert_cuda(cuMemcpy3DPeerAsync(&over, stream));
    assert_cuda(cuMemcpy2DAsync_v2(&home, stream));
    assert_cuda(cuMemcpyHtoAAsync_v2(line, 2, out, 5, stream));
    assert_cuda(cuMemcpyAtoHAsync_v2(row, line, 3, 4, stream));
    CUgraph graph = end(stream);
    size_t count = 0;
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(type_of(graph, i), CU_GRAPH_NODE_TYPE_MEMCPY);
    assert_int_equal(back[0], 0); /* nothing was done yet */
    launch_and_drop(graph);
    assert_memory_equal(back, out, BYTES);
    assert_memory_equal(row, ((unsigned char[]){2, 3, 4, 5, 0, 0, 0, 0}), WIDTH);
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuMemcpyHtoAAsync_v2(volume, 4, out, WIDTH, stream), /* across rows */
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
    assert_cuda(cuArrayDestroy(volume));
    assert_cuda(cuArrayDestroy(line));
    assert_cuda(cuMemFree_v2(flat));
}

static void a_batch_of_copies_is_refused_and_the_capture_goes_on(void **state)
{
    CUdeviceptr memory[2], to, from;
    unsigned word = 0;
    size_t bytes = 4, first = 0, failed = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    for (unsigned i = 0; i < 2; i++)
        assert_cuda(cuMemAlloc_v2(&memory[i], 512));
    to = memory[0], from = memory[1];
    assert_cuda(cuMemsetD32_v2(to, 1, 1));
    assert_cuda(cuMemsetD32_v2(from, 2, 1));
    CUDA_MEMCPY3D_BATCH_OP box = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = from}},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = to}},
        .extent = {4, 1, 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
    };
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, &failed, stream),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, &attributes, &first, 1, stream),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuMemcpy3DBatchAsync_v2(1, &box, 0, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraph graph = end(stream);
    size_t count = 7;
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 0);
    launch_and_drop(graph);
    assert_cuda(cuMemcpyDtoH_v2(&word, to, 4));
    assert_int_equal(word, 1); /* the copy was dropped */
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, &attributes, &first, 1, stream),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_invalid(stream);
    assert_cuda(cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, &attributes, &first, 1, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuMemcpyDtoH_v2(&word, to, 4));
    assert_int_equal(word, 2);
    for (unsigned i = 0; i < 2; i++)
        assert_cuda(cuMemFree_v2(memory[i]));
}

static void the_legacy_stream_must_not_be_used_beside_a_blocking_capture(void **state)
{
    CUstream blocking;
    CUdeviceptr at;
    unsigned word = 0;
    CUstreamCaptureStatus status;
    assert_cuda(cuMemAlloc_v2(&at, 512));
    assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_int_equal(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE); /* to ask does no harm */
    assert_int_equal(fill(at, 1, 1, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(blocking);
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuMemcpyDtoH_v2(&word, at, 4), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(blocking);
    /* A non-blocking stream has nothing to do with it. */
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_cuda(fill(at, 1, 1, NULL));
    assert_cuda(cuMemcpyDtoH_v2(&word, at, 4));
    assert_int_equal(word, 1);
    assert_cuda(cuGraphDestroy(end(stream)));
    assert_cuda(cuStreamDestroy_v2(blocking));
    assert_cuda(cuMemFree_v2(at));
}

/* Another thread with a mode of its own, and what an unsafe call gave there. */
struct neighbour {
    CUstreamCaptureMode mode;
    CUresult result;
};

static void *neighbour_allocate(void *argument)
{
    struct neighbour *neighbour = argument;
    CUdeviceptr at;
    cuCtxSetCurrent(context);
    cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){neighbour->mode});
    neighbour->result = cuMemAlloc_v2(&at, 512);
    if (neighbour->result == CUDA_SUCCESS)
        cuMemFree_v2(at);
    return NULL;
}

static CUresult allocate_elsewhere(CUstreamCaptureMode mode)
{
    struct neighbour neighbour = {.mode = mode};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, neighbour_allocate, &neighbour), 0);
    pthread_join(thread, NULL);
    return neighbour.result;
}

static CUresult allocate_here(CUstreamCaptureMode mode)
{
    CUdeviceptr at;
    assert_cuda(cuThreadExchangeStreamCaptureMode(&mode));
    CUresult result = cuMemAlloc_v2(&at, 512);
    if (result == CUDA_SUCCESS)
        assert_cuda(cuMemFree_v2(at));
    assert_cuda(cuThreadExchangeStreamCaptureMode(&mode));
    return result;
}

static void unsafe_calls_are_refused_by_both_modes(void **state)
{
    const CUstreamCaptureMode G = CU_STREAM_CAPTURE_MODE_GLOBAL, T = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              R = CU_STREAM_CAPTURE_MODE_RELAXED;
    const struct {
        CUstreamCaptureMode capture, thread;
        bool refused_here, refused_elsewhere;
    } rules[] = {
        {G, G, true, true},   {G, T, true, false},  {G, R, false, false},
        {T, G, true, false},  {T, T, true, false},  {T, R, false, false},
        {R, G, false, false}, {R, T, false, false}, {R, R, false, false},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
            bool refused = is_elsewhere ? rules[i].refused_elsewhere : rules[i].refused_here;
            begin(stream, rules[i].capture);
            CUresult result =
                is_elsewhere ? allocate_elsewhere(rules[i].thread) : allocate_here(rules[i].thread);
            assert_int_equal(result, refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
            if (refused)
                end_invalid(stream);
            else
                assert_cuda(cuGraphDestroy(end(stream)));
        }
}

static void *end_elsewhere(void *result)
{
    CUgraph graph = NULL;
    *(CUresult *)result = cuStreamEndCapture(stream, &graph);
    if (graph)
        cuGraphDestroy(graph);
    return NULL;
}

static void only_a_relaxed_capture_is_ended_by_another_thread(void **state)
{
    CUresult result;
    pthread_t thread;
    begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &result), 0);
    pthread_join(thread, NULL);
    assert_int_equal(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    assert_cuda(cuGraphDestroy(end(stream)));
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &result), 0);
    pthread_join(thread, NULL);
    assert_cuda(result);
}

static void a_capture_tells_its_state_and_takes_other_dependencies(void **state)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 0, second_id = 0;
    CUgraph graph = NULL;
    const CUgraphNode *nodes;
    size_t count;
    CUdeviceptr at;
    CUgraphNode own;
    assert_cuda(cuMemAlloc_v2(&at, 512));
    assert_int_equal(cuStreamUpdateCaptureDependencies(stream, NULL, 0, 1), CUDA_ERROR_ILLEGAL_STATE);
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuStreamBeginCapture_v2(stream, 0), CUDA_ERROR_ILLEGAL_STATE);
    assert_cuda(fill(at, 1, 1, stream));
    assert_cuda(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(count, 1);
    assert_int_equal(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    /* A node that the program adds, and that the next one comes after. */
    assert_cuda(cuGraphAddEmptyNode(&own, graph, nodes, count));
    assert_cuda(cuStreamUpdateCaptureDependencies(stream, &own, 1, 0));
    assert_cuda(cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, NULL, &count));
    assert_int_equal(count, 2);
    assert_cuda(cuStreamUpdateCaptureDependencies(stream, &own, 1, 1));
    assert_cuda(cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &nodes, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(nodes[0], own);
    assert_ptr_equal(end(stream), graph);
    assert_cuda(cuGraphDestroy(graph));
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_cuda(cuStreamGetCaptureInfo(stream, &status, &second_id));
    assert_true(second_id > id);
    assert_cuda(cuGraphDestroy(end(stream)));
    assert_cuda(cuMemFree_v2(at));
}

static void a_capture_of_a_threads_own_stream_is_there_after_work_in_many_contexts(void **state)
{
    CUcontext others[12];
    CUstreamCaptureStatus status;
    begin(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (unsigned i = 0; i < 12; i++) {
        assert_cuda(cuCtxCreate_v2(&others[i], 0, 0));
        assert_cuda(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
        assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    }
    for (unsigned i = 0; i < 12; i++)
        assert_cuda(cuCtxDestroy_v2(others[i]));
    assert_cuda(cuCtxSetCurrent(context));
    assert_int_equal(status_of(CU_STREAM_PER_THREAD), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_cuda(cuGraphDestroy(end(CU_STREAM_PER_THREAD)));
}

static void a_capture_goes_into_a_graph_that_is_there(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode first, nodes[2];
    CUdeviceptr at;
    size_t count = 1;
    assert_cuda(cuMemAlloc_v2(&at, 512));
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    assert_cuda(cuStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_cuda(fill(at, 1, 1, stream));
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE); /* not yet */
    assert_ptr_equal(end(stream), graph);
    count = 2;
    assert_cuda(cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 2);
    CUgraphNode before;
    count = 1;
    assert_cuda(cuGraphNodeGetDependencies(nodes[1], &before, &count));
    assert_ptr_equal(before, first);
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree_v2(at));
}

static void a_stream_that_goes_takes_its_capture_along(void **state)
{
    CUstream gone;
    CUevent forked = event();
    assert_cuda(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    begin(gone, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuStreamDestroy_v2(gone));
    assert_cuda(allocate_here(CU_STREAM_CAPTURE_MODE_GLOBAL)); /* no capture forbids it any more */
    assert_cuda(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuEventRecord(forked, stream));
    assert_cuda(cuStreamWaitEvent(gone, forked, 0));
    assert_cuda(cuStreamDestroy_v2(gone));
    assert_cuda(cuGraphDestroy(end(stream))); /* one that came in only stops being there */
    assert_cuda(cuEventDestroy_v2(forked));
}

/* What a stream did before it went has to be joined as if it were there. */
static void a_stream_that_goes_leaves_its_work_to_the_capture(void **state)
{
    CUstream gone;
    CUgraph graph;
    CUdeviceptr at;
    CUevent forked = event(), joined = event();
    assert_cuda(cuMemAlloc_v2(&at, 512));
    for (unsigned joins = 0; joins < 2; joins++) {
        assert_cuda(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
        begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert_cuda(cuEventRecord(forked, stream));
        assert_cuda(cuStreamWaitEvent(gone, forked, 0));
        assert_cuda(fill(at, 1, 1, gone));
        assert_cuda(cuEventRecord(joined, gone));
        assert_cuda(cuStreamDestroy_v2(gone));
        if (joins)
            assert_cuda(cuStreamWaitEvent(stream, joined, 0));
        assert_int_equal(cuStreamEndCapture(stream, &graph),
                         joins ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuEventDestroy_v2(forked));
    assert_cuda(cuEventDestroy_v2(joined));
    assert_cuda(cuMemFree_v2(at));
}

static void a_graph_that_the_program_has_need_not_be_told_at_the_end(void **state)
{
    CUgraph graph;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_cuda(cuStreamEndCapture(stream, NULL));
    assert_cuda(cuGraphDestroy(graph));
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuStreamEndCapture(stream, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphDestroy(end(stream)));
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuModuleLoadData(&module, SIMULATED_PTX) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) ||
           cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=256MiB", "FAKECUDA_CONTEXT_BYTES=10MiB",
                                "FAKECUDA_KERNEL_NS=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_captured_graph_gives_the_bytes_of_the_direct_calls_each_time),
        cmocka_unit_test(every_kind_of_call_becomes_its_node),
        cmocka_unit_test(events_fork_into_streams_and_join_them),
        cmocka_unit_test(work_that_is_not_joined_is_told),
        cmocka_unit_test(dependencies_across_the_capture_s_edge_invalidate_it),
        cmocka_unit_test(to_ask_or_wait_for_what_is_captured_invalidates_it),
        cmocka_unit_test(boxes_and_lines_of_arrays_are_captured_as_copies),
        cmocka_unit_test(a_batch_of_copies_is_refused_and_the_capture_goes_on),
        cmocka_unit_test(the_legacy_stream_must_not_be_used_beside_a_blocking_capture),
        cmocka_unit_test(unsafe_calls_are_refused_by_both_modes),
        cmocka_unit_test(only_a_relaxed_capture_is_ended_by_another_thread),
        cmocka_unit_test(a_capture_tells_its_state_and_takes_other_dependencies),
        cmocka_unit_test(a_capture_of_a_threads_own_stream_is_there_after_work_in_many_contexts),
        cmocka_unit_test(a_capture_goes_into_a_graph_that_is_there),
        cmocka_unit_test(a_stream_that_goes_takes_its_capture_along),
        cmocka_unit_test(a_stream_that_goes_leaves_its_work_to_the_capture),
        cmocka_unit_test(a_graph_that_the_program_has_need_not_be_told_at_the_end),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
