/* Copies between two cards that cannot reach each other, in every form that has a call by contexts. */
#include "memory/engine/swap/peer_world.h"

/* 100 rows of 300 bytes, in memory of 1000 bytes a row; as a box, 2 layers of 50. */
enum { ROW = 300, ROWS = 100, PITCH = 1000, LAYERS = 2 };

static unsigned seed;

/* Rows of a box have arrived, and nothing between them has changed. */
static void check_rows(CUdeviceptr to, unsigned char what, unsigned char between)
{
    unsigned char *seen = malloc(ROWS * PITCH);
    read_from(seen, to, ROWS * PITCH);
    for (size_t i = 0; i < ROWS * PITCH; i++)
        if (seen[i] != (i % PITCH >= 7 && i % PITCH < 7 + ROW ? what : between))
            fail_msg("byte %zu is %u", i, seen[i]);
    free(seen);
}

/* All of `from` is one byte, and all of `to` another. */
static unsigned char set_ends(CUdeviceptr to, CUdeviceptr from)
{
    seed = (seed + 2) % 200;
    assert_int_equal(cuMemsetD8_v2(from, (unsigned char)(seed + 1), BYTES), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(other), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD8_v2(to, (unsigned char)seed, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    return (unsigned char)seed;
}

static void copies_in_two_dimensions_arrive(void **state)
{
    const CUmemorytype types[] = {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED};
    for (unsigned way = 0; way < 8; way++) {
        unsigned char was = set_ends(there, here);
        const CUDA_MEMCPY2D copy = {.srcMemoryType = types[way % 2],
                                    .srcDevice = here,
                                    .srcPitch = PITCH,
                                    .srcY = 3,
                                    .dstMemoryType = types[way % 2],
                                    .dstDevice = there,
                                    .dstPitch = PITCH,
                                    .dstXInBytes = 7,
                                    .WidthInBytes = ROW,
                                    .Height = ROWS};
        assert_int_equal(real(cuMemcpy2D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
        CUresult result = way < 2   ? cuMemcpy2D_v2(&copy)
                          : way < 4 ? cuMemcpy2DUnaligned_v2(&copy)
                          : way < 6 ? cuMemcpy2DAsync_v2(&copy, stream)
                                    : cuMemcpy2DAsync_v2_ptsz(&copy, stream);
        assert_int_equal(result, CUDA_SUCCESS);
        check_rows(there, (unsigned char)(was + 1), was);
    }
}

static void copies_in_three_dimensions_arrive(void **state)
{
    for (unsigned way = 0; way < 3; way++) {
        unsigned char was = set_ends(there, here);
        const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = here,
                                    .srcPitch = PITCH,
                                    .srcHeight = ROWS,
                                    .srcZ = 1,
                                    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = there,
                                    .dstPitch = PITCH,
                                    .dstHeight = ROWS / LAYERS,
                                    .dstXInBytes = 7,
                                    .WidthInBytes = ROW,
                                    .Height = ROWS / LAYERS,
                                    .Depth = LAYERS};
        assert_int_equal(real(cuMemcpy3D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
        CUresult result = way == 0   ? cuMemcpy3D_v2(&copy)
                          : way == 1 ? cuMemcpy3DAsync_v2(&copy, stream)
                                     : cuMemcpy3DAsync_v2_ptsz(&copy, NULL);
        assert_int_equal(result, CUDA_SUCCESS);
        check_rows(there, (unsigned char)(was + 1), was);
    }
}

/* A copy between the cards, one inside a card, and another one between them. */
static void a_batch_with_copies_between_the_cards_arrives(void **state)
{
    CUmemcpyAttributes attributes[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                       {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}};
    for (unsigned way = 0; way < 4; way++) {
        unsigned char was = set_ends(there, here), last;
        CUdeviceptr to[] = {there, beside, there + BYTES - 1}, from[] = {here, here, here};
        size_t bytes[] = {1 << 20, BYTES, 1}, first[] = {0, 2}, failed = 0;
        CUstream in = way % 2 ? NULL : stream;
        assert_int_equal(real(cuMemcpyBatchAsync_v2)(to, from, bytes, 3, attributes, first, 2, stream),
                         CUDA_ERROR_INVALID_VALUE);
        CUresult result =
            way == 0   ? cuMemcpyBatchAsync(to, from, bytes, 3, attributes, first, 2, &failed, in)
            : way == 1 ? cuMemcpyBatchAsync_ptsz(to, from, bytes, 3, attributes, first, 2, &failed, in)
            : way == 2 ? cuMemcpyBatchAsync_v2(to, from, bytes, 3, attributes, first, 2, in)
                       : cuMemcpyBatchAsync_v2_ptsz(to, from, bytes, 3, attributes, first, 2, in);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_true(way > 1 || failed == SIZE_MAX);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        for (unsigned i = 0; i < 3; i++) {
            read_from(&last, to[i] + bytes[i] - 1, 1);
            assert_int_equal(last, was + 1);
        }
        read_from(&last, there + (1 << 20), 1);
        assert_int_equal(last, was);
        bytes[0] = 3 * BYTES; /* beyond its end */
        if (way < 2)
            assert_int_not_equal(
                cuMemcpyBatchAsync(to, from, bytes, 3, attributes, first, 2, &failed, stream), CUDA_SUCCESS);
        assert_true(way > 1 || failed == 0);
    }
}

/* What the driver refuses of a batch, it refuses of one between cards. */
static void a_batch_that_is_not_allowed_is_refused_as_ever(void **state)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUdeviceptr to = there, from = here;
    size_t bytes = 100, first = 0, zero = 0;
    CUgraph graph;
    assert_int_equal(cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, &attributes, &first, 1, NULL),
                     CUDA_ERROR_INVALID_VALUE); /* the legacy stream */
    assert_int_equal(cuMemcpyBatchAsync_v2(&to, &from, &zero, 1, &attributes, &first, 1, stream),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, &attributes, &first, 2, stream),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, &attributes, &first, 1, stream),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    assert_int_equal(cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, &attributes, &first, 1, stream),
                     CUDA_ERROR_INVALID_VALUE);
}

static CUDA_MEMCPY3D_BATCH_OP box_of(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D_BATCH_OP){
        .src = {CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = from}}, /* rows without gaps */
        .dst = {CU_MEMCPY_OPERAND_TYPE_POINTER,
                .op.ptr = {.ptr = to + 7, .rowLength = PITCH, .layerHeight = ROWS / LAYERS}},
        .extent = {ROW, ROWS / LAYERS, LAYERS},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
}

static void a_batch_of_boxes_arrives(void **state)
{
    for (unsigned way = 0; way < 4; way++) {
        unsigned char was = set_ends(there, here);
        CUDA_MEMCPY3D_BATCH_OP boxes[] = {box_of(beside, here), box_of(there, here)};
        size_t failed = 0;
        CUstream in = way % 2 ? NULL : stream;
        assert_int_equal(cuMemsetD8_v2(beside, was, BYTES), CUDA_SUCCESS);
        assert_int_equal(real(cuMemcpy3DBatchAsync_v2)(2, boxes, 0, stream), CUDA_ERROR_INVALID_VALUE);
        CUresult result = way == 0   ? cuMemcpy3DBatchAsync(2, boxes, &failed, 0, in)
                          : way == 1 ? cuMemcpy3DBatchAsync_ptsz(2, boxes, &failed, 0, in)
                          : way == 2 ? cuMemcpy3DBatchAsync_v2(2, boxes, 0, in)
                                     : cuMemcpy3DBatchAsync_v2_ptsz(2, boxes, 0, in);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_true(way > 1 || failed == SIZE_MAX);
        check_rows(there, (unsigned char)(was + 1), was);
        check_rows(beside, (unsigned char)(was + 1), was);
    }
}

static void copies_with_attributes_arrive(void **state)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY};
    unsigned char was = set_ends(there, here), seen;
    CUDA_MEMCPY3D_BATCH_OP box = box_of(there, here);
    assert_int_equal(real(cuMemcpyWithAttributesAsync)(there, here, 100, &attributes, stream),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyWithAttributesAsync(there, here, 100, &attributes, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyWithAttributesAsync_ptsz(there + 100, here, 100, &attributes, NULL),
                     CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    for (unsigned at = 0; at <= 200; at += 50) {
        read_from(&seen, there + at, 1);
        assert_int_equal(seen, was + (at < 200));
    }
    was = set_ends(there, here);
    assert_int_equal(cuMemcpy3DWithAttributesAsync(&box, 0, stream), CUDA_SUCCESS);
    check_rows(there, (unsigned char)(was + 1), was);
}

/* A copy that is captured is one by contexts in the graph too. */
static void a_captured_box_arrives_at_each_launch(void **state)
{
    CUgraph graph;
    CUgraphExec executable;
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = here,
                                .srcPitch = PITCH,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = there,
                                .dstPitch = PITCH,
                                .dstXInBytes = 7,
                                .WidthInBytes = ROW,
                                .Height = ROWS};
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuMemcpy2DAsync_v2(&copy, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    for (unsigned launch = 0; launch < 2; launch++) {
        unsigned char was = set_ends(there, here);
        assert_int_equal(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
        check_rows(there, (unsigned char)(was + 1), was);
    }
    assert_int_equal(cuGraphExecDestroy(executable), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void a_captured_line_arrives_at_each_launch(void **state)
{
    CUgraph graph;
    CUgraphExec executable;
    unsigned char seen;
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoDAsync_v2(there, here, 100, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    for (unsigned launch = 0; launch < 2; launch++) {
        unsigned char was = set_ends(there, here);
        assert_int_equal(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
        read_from(&seen, there + 99, 1);
        assert_int_equal(seen, was + 1);
        read_from(&seen, there + 100, 1);
        assert_int_equal(seen, was);
    }
    assert_int_equal(cuGraphExecDestroy(executable), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* A graph of one node that a program adds by hand, by one of the ways there are. */
enum added { ADDED_MEMCPY, ADDED_ANY, ADDED_ANY_WITH_EDGES, ADDED_ANY_V3, ADDED_WAYS };

static CUgraph graph_of(const CUDA_MEMCPY3D *copy, enum added way, CUgraphNode *node)
{
    CUgraph graph;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                .memcpy = {.copyCtx = context, .copyParams = *copy}};
    assert_int_equal(DRIVERS(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CUresult result = way == ADDED_MEMCPY ? cuGraphAddMemcpyNode(node, graph, NULL, 0, copy, context)
                      : way == ADDED_ANY  ? cuGraphAddNode(node, graph, NULL, 0, &params)
                      : way == ADDED_ANY_WITH_EDGES ? cuGraphAddNode_v2(node, graph, NULL, NULL, 0, &params)
                                                    : cuGraphAddNode_v3(node, graph, NULL, NULL, 0, &params);
    assert_int_equal(result, CUDA_SUCCESS);
    return graph;
}

static CUDA_MEMCPY3D rows_between(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = PITCH,
                           .srcHeight = ROWS,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = PITCH,
                           .dstHeight = ROWS,
                           .dstXInBytes = 7,
                           .WidthInBytes = ROW,
                           .Height = ROWS,
                           .Depth = 1};
}

/* Launch the graph twice: the rows arrive. */
static void see_rows_arrive(CUgraph graph)
{
    CUgraphExec executable;
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    for (unsigned launch = 0; launch < 2; launch++) {
        unsigned char was = set_ends(there, here);
        assert_int_equal(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
        check_rows(there, (unsigned char)(was + 1), was);
    }
    assert_int_equal(cuGraphExecDestroy(executable), CUDA_SUCCESS);
}

static void a_copy_that_is_a_node_by_hand_arrives_at_each_launch(void **state)
{
    const CUDA_MEMCPY3D copy = rows_between(there, here);
    for (enum added way = 0; way < ADDED_WAYS; way++) {
        CUgraphNode node;
        CUgraphNodeType type;
        CUDA_MEMCPY3D seen;
        CUgraph graph = graph_of(&copy, way, &node);
        assert_int_equal(real(cuGraphNodeGetType)(node, &type), CUDA_SUCCESS);
        assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEMCPY);
        assert_int_equal(DRIVERS(cuGraphMemcpyNodeGetParams)(node, &seen), CUDA_SUCCESS);
        assert_int_equal(seen.dstDevice, there);
        see_rows_arrive(graph);
        assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    }
}

static CUresult capture_to_no_graph(CUstream in, CUgraph graph, const CUgraphNode *before,
                                    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* It comes after the nodes that it names; also where the driver captures into no graph that there is. */
static void a_copy_by_hand_waits_for_the_nodes_before_it(void **state)
{
    CUresult (*driver)(CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t,
                       CUstreamCaptureMode) = real(cuStreamBeginCaptureToGraph);
    const CUDA_MEMCPY3D copy = rows_between(there, here);
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = here, .value = 201, .elementSize = 1, .width = BYTES, .height = 1};
    for (unsigned way = 0; way < 2; way++) {
        CUgraph graph;
        CUgraphNode first, second;
        CUgraphExec executable;
        size_t count = 0;
        unsigned char was = set_ends(there, here);
        assert_int_equal(DRIVERS(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
        assert_int_equal(cuGraphAddMemsetNode(&first, graph, NULL, 0, &fill, context), CUDA_SUCCESS);
        if (way)
            SET(cuStreamBeginCaptureToGraph, capture_to_no_graph);
        assert_int_equal(cuGraphAddMemcpyNode(&second, graph, &first, 1, &copy, context), CUDA_SUCCESS);
        SET(cuStreamBeginCaptureToGraph, driver);
        assert_int_equal(DRIVERS(cuGraphGetEdges)(graph, NULL, NULL, &count), CUDA_SUCCESS);
        assert_int_equal(count, 1);
        assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
        assert_int_equal(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
        check_rows(there, 201, was);
        assert_int_equal(cuGraphExecDestroy(executable), CUDA_SUCCESS);
        assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    }
}

/* What is set in a node has no place for contexts: it is refused, rather than failing at each launch. */
static void a_node_is_not_set_to_a_copy_between_the_cards(void **state)
{
    const CUDA_MEMCPY3D inside = rows_between(beside, here), between = rows_between(there, here);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyParams = between}};
    CUgraphNode node;
    CUgraphExec executable;
    CUgraph graph = graph_of(&inside, ADDED_MEMCPY, &node);
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphMemcpyNodeSetParams(node, &between), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphNodeSetParams(node, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphNodeSetParams_v2(node, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphExecMemcpyNodeSetParams(executable, node, &between, context),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphExecNodeSetParams(executable, node, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphMemcpyNodeSetParams(node, &inside), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecMemcpyNodeSetParams(executable, node, &inside, context), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(executable), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* The card whose context is current would carry it out, and cannot reach either end. */
static void a_copy_inside_another_card_arrives(void **state)
{
    CUstream elsewhere;
    for (unsigned way = 0; way < 3; way++) {
        unsigned char was = set_ends(there, here), seen;
        const CUDA_MEMCPY3D copy = rows_between(beside, here);
        assert_int_equal(cuMemsetD8_v2(beside, was, BYTES), CUDA_SUCCESS);
        assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
        assert_int_equal(cuCtxSetCurrent(other), CUDA_SUCCESS);
        assert_int_equal(real(cuStreamCreate)(&elsewhere, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        assert_int_equal(real(cuMemcpyDtoD_v2)(beside, here, BYTES), CUDA_ERROR_INVALID_VALUE);
        CUresult result = way == 0   ? cuMemcpyDtoD_v2(beside + 7, here, ROW)
                          : way == 1 ? cuMemcpyDtoDAsync_v2(beside + 7, here, ROW, elsewhere)
                                     : cuMemcpy3DAsync_v2(&copy, elsewhere);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_int_equal(cuStreamSynchronize(elsewhere), CUDA_SUCCESS);
        assert_int_equal(cuStreamDestroy_v2(elsewhere), CUDA_SUCCESS);
        assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
        for (unsigned at = 6; at < 9 + ROW; at += ROW + 1) {
            read_from(&seen, beside + at, 1);
            assert_int_equal(seen, was);
        }
        read_from(&seen, beside + 7, 1);
        assert_int_equal(seen, was + 1);
    }
}

/* A driver takes no notice of which contexts are named for memory of cuMemAlloc. */
static void contexts_that_are_named_wrongly_are_put_right(void **state)
{
    for (unsigned way = 0; way < 4; way++) {
        unsigned char was = set_ends(there, here), seen;
        const CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                         .srcDevice = here,
                                         .srcContext = other,
                                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                         .dstDevice = there,
                                         .dstContext = context,
                                         .WidthInBytes = 100,
                                         .Height = 1,
                                         .Depth = 1};
        assert_int_equal(real(cuMemcpyPeer)(there, context, here, other, 100), CUDA_ERROR_INVALID_VALUE);
        CUresult result = way == 0   ? cuMemcpyPeer(there, context, here, other, 100)
                          : way == 1 ? cuMemcpyPeerAsync_ptsz(there, context, here, other, 100, stream)
                          : way == 2 ? cuMemcpy3DPeer(&copy)
                                     : cuMemcpy3DPeerAsync(&copy, stream);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
        read_from(&seen, there + 99, 1);
        assert_int_equal(seen, was + 1);
    }
    assert_int_equal(cuMemcpyPeer(there, NULL, here, other, 100),
                     real(cuMemcpyPeer)(there, NULL, here, other, 100));
    assert_int_equal(cuMemcpy3DPeer(NULL), CUDA_ERROR_INVALID_VALUE);
}

/* Memory of pools goes with no context: the copy names one of its device. */
static void copies_of_pool_memory_arrive(void **state)
{
    CUdeviceptr pooled;
    unsigned char seen;
    unsigned char was = set_ends(there, here);
    assert_int_equal(cuMemAllocAsync(&pooled, BYTES, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD8Async(pooled, 77, BYTES, stream), CUDA_SUCCESS);
    assert_int_equal(real(cuMemcpyDtoDAsync_v2)(there, pooled, 100, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoDAsync_v2(there, pooled, 100, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    read_from(&seen, there + 99, 1);
    assert_int_equal(seen, 77);
    read_from(&seen, there + 100, 1);
    assert_int_equal(seen, was);
    assert_int_equal(cuMemFreeAsync(pooled, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

int main(void)
{
    if (!start_peers())
        return 1;
    const struct CMUnitTest tests[] = {
        PEERS(copies_in_two_dimensions_arrive),
        PEERS(copies_in_three_dimensions_arrive),
        PEERS(a_batch_with_copies_between_the_cards_arrives),
        PEERS(a_batch_that_is_not_allowed_is_refused_as_ever),
        PEERS(a_batch_of_boxes_arrives),
        PEERS(copies_with_attributes_arrive),
        PEERS(a_captured_box_arrives_at_each_launch),
        PEERS(a_captured_line_arrives_at_each_launch),
        PEERS(a_copy_that_is_a_node_by_hand_arrives_at_each_launch),
        PEERS(a_copy_by_hand_waits_for_the_nodes_before_it),
        PEERS(a_node_is_not_set_to_a_copy_between_the_cards),
        PEERS(a_copy_inside_another_card_arrives),
        PEERS(contexts_that_are_named_wrongly_are_put_right),
        PEERS(copies_of_pool_memory_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
