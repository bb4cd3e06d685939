/* Copies to and from the host, and memsets, of memory that the card of the stream, or of the current context, cannot reach. */
#include "intercept/memory/engine/swap/ipc/hand_over.h"
#include "memory/engine/swap/peer_world.h"

/* 16 rows of 128 bytes, 256 apart. */
enum { ROW = 128, ROWS = 16, PITCH = 256, SPREAD = ROWS * PITCH };

static unsigned char host[BYTES];

/* All of `there` is one byte. */
static void set_there(unsigned char value)
{
    assert_int_equal(cuCtxSetCurrent(other), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD8_v2(there, value, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

/* `bytes` in rows, `pitch` apart, are `what`, and all that follows is `rest`. */
static void check_there(size_t row, size_t pitch, size_t rows, unsigned char what, unsigned char rest)
{
    static unsigned char seen[BYTES];
    read_from(seen, there, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        if (seen[i] != (i / pitch < rows && i % pitch < row ? what : rest))
            fail_msg("byte %zu is %u", i, seen[i]);
}

static void settle(CUstream in)
{
    assert_int_equal(cuStreamSynchronize(in), CUDA_SUCCESS);
}

/* --- Copies ---------------------------------------------------------------------------------------- */

typedef CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes);
typedef CUresult copy_out(void *to, CUdeviceptr from, size_t bytes);

static CUdeviceptr unified(const void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

static CUresult in_async(CUdeviceptr to, const void *from, size_t bytes)
{
    return cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}
static CUresult in_async_ptsz(CUdeviceptr to, const void *from, size_t bytes)
{
    return cuMemcpyHtoDAsync_v2_ptsz(to, from, bytes, NULL);
}
static CUresult in_unified(CUdeviceptr to, const void *from, size_t bytes)
{
    return cuMemcpy(to, unified(from), bytes);
}
static CUresult in_unified_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
    return cuMemcpy_ptds(to, unified(from), bytes);
}
static CUresult in_unified_async(CUdeviceptr to, const void *from, size_t bytes)
{
    return cuMemcpyAsync(to, unified(from), bytes, NULL);
}
static CUresult in_batch(CUdeviceptr to, const void *from, size_t bytes)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
    CUdeviceptr host_address = unified(from);
    size_t first = 0;
    return cuMemcpyBatchAsync_v2(&to, &host_address, &bytes, 1, &attributes, &first, 1, stream);
}
static CUresult in_with_attributes(CUdeviceptr to, const void *from, size_t bytes)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    return cuMemcpyWithAttributesAsync(to, unified(from), bytes, &attributes, stream);
}

static CUresult out_async(void *to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}
static CUresult out_async_ptsz(void *to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyDtoHAsync_v2_ptsz(to, from, bytes, stream);
}
static CUresult out_unified(void *to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpy(unified(to), from, bytes);
}
static CUresult out_unified_async(void *to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyAsync_ptsz(unified(to), from, bytes, stream);
}

static void a_line_from_the_host_arrives(void **state)
{
    copy_in *const ways[] = {cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, in_async, in_async_ptsz,     in_unified,
                             in_unified_ptds, in_unified_async,     in_batch, in_with_attributes};
    assert_int_equal(real(cuMemcpyHtoD_v2)(there, host, 100), CUDA_ERROR_INVALID_VALUE);
    memset(host, 7, BYTES);
    for (unsigned way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
        set_there(1);
        assert_int_equal(ways[way](there, host, 1000), CUDA_SUCCESS);
        settle(stream);
        check_there(1000, 1000, 1, 7, 1);
    }
}

static void a_line_to_the_host_arrives(void **state)
{
    copy_out *const ways[] = {cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, out_async,
                              out_async_ptsz,  out_unified,          out_unified_async};
    for (unsigned way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
        set_there((unsigned char)(10 + way));
        memset(host, 0, BYTES);
        assert_int_equal(ways[way](host, there, 1000), CUDA_SUCCESS);
        settle(stream);
        assert_int_equal(host[999], 10 + way);
        assert_int_equal(host[1000], 0);
    }
}

static CUDA_MEMCPY3D box_in(CUmemorytype type)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = type,
                           .srcHost = host,
                           .srcDevice = unified(host),
                           .srcPitch = ROW,
                           .srcHeight = ROWS / 2,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = there,
                           .dstPitch = PITCH,
                           .dstHeight = ROWS / 2,
                           .WidthInBytes = ROW,
                           .Height = ROWS / 2,
                           .Depth = 2};
}

static void rows_and_boxes_from_the_host_arrive(void **state)
{
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = host,
                                .srcPitch = ROW,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = there,
                                .dstPitch = PITCH,
                                .WidthInBytes = ROW,
                                .Height = ROWS};
    const CUDA_MEMCPY3D box = box_in(CU_MEMORYTYPE_HOST), unified_box = box_in(CU_MEMORYTYPE_UNIFIED);
    CUDA_MEMCPY3D_BATCH_OP operation = {
        .src = {CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = unified(host), .rowLength = ROW}},
        .dst = {CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = there, .rowLength = PITCH}},
        .extent = {ROW, ROWS, 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    memset(host, 7, BYTES);
    for (unsigned way = 0; way < 8; way++) {
        set_there(1);
        CUresult result = way == 0   ? cuMemcpy2D_v2(&rows)
                          : way == 1 ? cuMemcpy2DUnaligned_v2_ptds(&rows)
                          : way == 2 ? cuMemcpy2DAsync_v2(&rows, stream)
                          : way == 3 ? cuMemcpy3D_v2(&box)
                          : way == 4 ? cuMemcpy3DAsync_v2(&box, stream)
                          : way == 5 ? cuMemcpy3DAsync_v2_ptsz(&unified_box, NULL)
                          : way == 6 ? cuMemcpy3DBatchAsync_v2(1, &operation, 0, stream)
                                     : cuMemcpy3DWithAttributesAsync(&operation, 0, stream);
        assert_int_equal(result, CUDA_SUCCESS);
        settle(stream);
        check_there(ROW, PITCH, ROWS, 7, 1);
    }
}

/* An array of the card whose context is current. */
static void an_array_of_the_other_card_is_copied(void **state)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 1000, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;
    memset(host, 7, BYTES);
    set_there(1);
    assert_int_equal(cuArrayCreate_v2(&array, &shape), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoA_v2(array, 0, host, 1000), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyAtoD_v2(there, array, 100, 500), CUDA_SUCCESS);
    check_there(500, 500, 1, 7, 1);
    set_there(9);
    assert_int_equal(cuMemcpyDtoA_v2(array, 0, there, 500), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyAtoH_v2(host, array, 0, 1000), CUDA_SUCCESS);
    assert_int_equal(host[499], 9);
    assert_int_equal(host[500], 7);
    assert_int_equal(cuArrayDestroy(array), CUDA_SUCCESS);
}

/* The stream's card does it, whichever context is current (CUDA programming guide, "Stream and Event Behavior"). */
static void a_copy_looks_at_the_card_of_its_stream(void **state)
{
    CUstream far;
    memset(host, 7, BYTES);
    set_there(1);
    assert_int_equal(cuCtxSetCurrent(other), CUDA_SUCCESS);
    assert_int_equal(real(cuStreamCreate)(&far, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(real(cuMemcpyHtoDAsync_v2)(there, host, 1000, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoDAsync_v2(there, host, 1000, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoDAsync_v2(there + 1000, there, 1000, stream), CUDA_SUCCESS);
    settle(stream);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD8Async(there + 2000, 7, 1000, far), CUDA_SUCCESS);
    settle(far);
    check_there(3000, 3000, 1, 7, 1);
    assert_int_equal(cuStreamDestroy_v2(far), CUDA_SUCCESS);
}

/* What came from another process by legacy IPC is mapped too. It is opened here as swap_ipc_open() does, in the other context. */
static void imported_memory_is_reached(void **state)
{
    const CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct swap_import made = {.count = 1,
                               .context = other,
                               .device = 1,
                               .mapped_bytes = BYTES,
                               .piece_bytes = BYTES,
                               .bytes = BYTES};
    CUmemGenericAllocationHandle handle;
    assert_int_equal(real(cuMemCreate)(&handle, BYTES, &how, 0), CUDA_SUCCESS);
    assert_int_equal(real(cuMemAddressReserve)(&made.address, BYTES, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(real(cuMemMap)(made.address, BYTES, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(real(cuMemSetAccess)(made.address, BYTES, &access, 1), CUDA_SUCCESS);
    assert_int_equal(real(cuMemRelease)(handle), CUDA_SUCCESS);
    made.base = made.address;
    assert_true(import_enter(&made));
    assert_int_equal(cuMemsetD8_v2(made.base, 7, 100), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(host, made.base, 100), CUDA_SUCCESS);
    assert_int_equal(host[99], 7);
    assert_int_equal(cuIpcCloseMemHandle(made.base), CUDA_SUCCESS);
}

/* --- Memsets --------------------------------------------------------------------------------------- */

static void memsets_arrive(void **state)
{
    assert_int_equal(real(cuMemsetD8_v2)(there, 7, 100), CUDA_ERROR_INVALID_VALUE);
    for (unsigned way = 0; way < 12; way++) {
        set_there(1);
        CUresult result = way == 0   ? cuMemsetD8_v2(there, 7, SPREAD)
                          : way == 1 ? cuMemsetD8_v2_ptds(there, 7, SPREAD)
                          : way == 2 ? cuMemsetD8Async(there, 7, SPREAD, stream)
                          : way == 3 ? cuMemsetD16_v2(there, 0x707, SPREAD / 2)
                          : way == 4 ? cuMemsetD16Async_ptsz(there, 0x707, SPREAD / 2, NULL)
                          : way == 5 ? cuMemsetD32_v2(there, 0x7070707, SPREAD / 4)
                          : way == 6 ? cuMemsetD32Async(there, 0x7070707, SPREAD / 4, NULL)
                          : way == 7 ? cuMemsetD2D8_v2(there, PITCH, 7, ROW, ROWS)
                          : way == 8 ? cuMemsetD2D8Async(there, PITCH, 7, ROW, ROWS, stream)
                          : way == 9 ? cuMemsetD2D16Async(there, PITCH, 0x707, ROW / 2, ROWS, stream)
                          : way == 10
                              ? cuMemsetD2D32_v2_ptds(there, PITCH, 0x7070707, ROW / 4, ROWS)
                              : cuMemsetD2D32Async_ptsz(there, PITCH, 0x7070707, ROW / 4, ROWS, stream);
        assert_int_equal(result, CUDA_SUCCESS);
        settle(stream);
        if (way < 7)
            check_there(SPREAD, SPREAD, 1, 7, 1);
        else
            check_there(ROW, PITCH, ROWS, 7, 1);
    }
    assert_int_equal(cuMemsetD32_v2(there + 1, 7, 1), CUDA_ERROR_INVALID_VALUE);
}

/* --- Order ----------------------------------------------------------------------------------------- */

/* What the driver was told, in order: by whom an event is recorded, who waits for it, and who sets memory. */
enum told { RECORDED, WAITED, SET_MEMORY };
static struct {
    enum told what;
    CUstream stream;
    CUevent event;
} told[8];
static unsigned told_count;

static void note(enum told what, CUstream in, CUevent event)
{
    assert_true(told_count < 8);
    told[told_count].what = what;
    told[told_count].stream = in;
    told[told_count++].event = event;
}

static CUresult note_record(CUevent event, CUstream in)
{
    note(RECORDED, in, event);
    return DRIVERS(cuEventRecord)(event, in);
}

static CUresult note_wait(CUstream in, CUevent event, unsigned flags)
{
    note(WAITED, in, event);
    return DRIVERS(cuStreamWaitEvent)(in, event, flags);
}

static CUresult note_set(CUdeviceptr to, unsigned char value, size_t count, CUstream in)
{
    note(SET_MEMORY, in, NULL);
    return DRIVERS(cuMemsetD8Async)(to, value, count, in);
}

/* It waits for what is in its stream, and the stream for it. */
static void it_is_done_in_the_order_of_its_stream(void **state)
{
    told_count = 0;
    SET(cuEventRecord, note_record);
    SET(cuStreamWaitEvent, note_wait);
    SET(cuMemsetD8Async, note_set);
    CUresult result = cuMemsetD8Async(there, 7, 100, stream);
    SET(cuEventRecord, DRIVERS(cuEventRecord));
    SET(cuStreamWaitEvent, DRIVERS(cuStreamWaitEvent));
    SET(cuMemsetD8Async, DRIVERS(cuMemsetD8Async));
    assert_int_equal(result, CUDA_SUCCESS);
    const enum told order[] = {RECORDED, WAITED, SET_MEMORY, RECORDED, WAITED};
    assert_int_equal(told_count, 5);
    CUstream own = told[1].stream;
    assert_ptr_not_equal(own, stream);
    for (unsigned i = 0; i < told_count; i++) {
        assert_int_equal(told[i].what, order[i]);
        assert_ptr_equal(told[i].stream, i == 0 || i == 4 ? stream : own);
    }
    assert_ptr_equal(told[0].event, told[1].event);
    assert_ptr_equal(told[3].event, told[4].event);
}

/* --- Graphs ---------------------------------------------------------------------------------------- */

/* Launch the graph twice: the bytes of the host, and those of a memset behind them, arrive. */
static void see_both_arrive(CUgraph graph)
{
    CUgraphExec executable;
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    for (unsigned launch = 0; launch < 2; launch++) {
        set_there(1);
        assert_int_equal(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
        settle(stream);
        check_there(2000, 2000, 1, 7, 1);
    }
    assert_int_equal(cuGraphExecDestroy(executable), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void what_is_captured_arrives_at_each_launch(void **state)
{
    CUgraph graph;
    size_t nodes = 0, edges = 0;
    memset(host, 7, BYTES);
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoDAsync_v2(there, host, 1000, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD8Async(there + 1000, 7, 1000, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(real(cuGraphGetNodes)(graph, NULL, &nodes), CUDA_SUCCESS);
    assert_int_equal(DRIVERS(cuGraphGetEdges)(graph, NULL, NULL, &edges), CUDA_SUCCESS);
    assert_int_equal(nodes, 2);
    assert_int_equal(edges, 1);
    see_both_arrive(graph);
}

/* The driver refuses it, and ends the capture. */
static void a_synchronous_copy_in_a_capture_is_refused_as_ever(void **state)
{
    CUgraph graph;
    CUstream blocking;
    assert_int_equal(real(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD_v2(there, host, 1000), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuStreamDestroy_v2(blocking), CUDA_SUCCESS);
}

static CUDA_MEMCPY3D line_in(CUdeviceptr to)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = host,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = 1000,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS line_of_sevens(CUdeviceptr to)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = to, .value = 7, .elementSize = 1, .width = 1000, .height = 1};
}

static CUgraphNodeParams any_copy(CUdeviceptr to, CUcontext in)
{
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                               .memcpy = {.copyCtx = in, .copyParams = line_in(to)}};
}

static CUgraphNodeParams any_fill(CUdeviceptr to, CUcontext in)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {.dst = to, .value = 7, .elementSize = 1, .width = 1000, .height = 1, .ctx = in}};
}

static void nodes_that_are_added_by_hand_arrive_at_each_launch(void **state)
{
    const CUDA_MEMCPY3D copy = line_in(there);
    const CUDA_MEMSET_NODE_PARAMS fill = line_of_sevens(there + 1000);
    memset(host, 7, BYTES);
    for (unsigned way = 0; way < 3; way++) {
        CUgraph graph;
        CUgraphNode first, second;
        CUgraphNodeParams first_of_any = any_copy(there, context),
                          second_of_any = any_fill(there + 1000, NULL);
        assert_int_equal(DRIVERS(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
        CUresult result = way == 0   ? cuGraphAddMemcpyNode(&first, graph, NULL, 0, &copy, context)
                          : way == 1 ? cuGraphAddNode(&first, graph, NULL, 0, &first_of_any)
                                     : cuGraphAddNode_v2(&first, graph, NULL, NULL, 0, &first_of_any);
        assert_int_equal(result, CUDA_SUCCESS);
        result = way == 0   ? cuGraphAddMemsetNode(&second, graph, &first, 1, &fill, context)
                 : way == 1 ? cuGraphAddNode(&second, graph, &first, 1, &second_of_any)
                            : cuGraphAddNode_v3(&second, graph, &first, NULL, 1, &second_of_any);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_ptr_equal(first_of_any.memcpy.copyCtx, context); /* the program's own is as it was */
        see_both_arrive(graph);
    }
}

/* A node of the first card is set to memory of the second one, before its graph is made executable or after. */
static void nodes_are_set_to_memory_of_another_card(void **state)
{
    const CUDA_MEMCPY3D copy_here = line_in(here), copy = line_in(there);
    const CUDA_MEMSET_NODE_PARAMS fill_here = line_of_sevens(here + 1000),
                                  fill = line_of_sevens(there + 1000);
    memset(host, 7, BYTES);
    for (unsigned way = 0; way < 2; way++) {
        CUgraph graph;
        CUgraphNode first, second;
        CUgraphNodeParams first_of_any = any_copy(there, context),
                          second_of_any = any_fill(there + 1000, context);
        assert_int_equal(DRIVERS(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
        assert_int_equal(cuGraphAddMemcpyNode(&first, graph, NULL, 0, &copy_here, context), CUDA_SUCCESS);
        assert_int_equal(cuGraphAddMemsetNode(&second, graph, &first, 1, &fill_here, context), CUDA_SUCCESS);
        assert_int_equal(way ? cuGraphNodeSetParams(first, &first_of_any)
                             : cuGraphMemcpyNodeSetParams(first, &copy),
                         CUDA_SUCCESS);
        assert_int_equal(way ? cuGraphNodeSetParams_v2(second, &second_of_any)
                             : cuGraphMemsetNodeSetParams(second, &fill),
                         CUDA_SUCCESS);
        see_both_arrive(graph);
    }
}

static void nodes_of_an_executable_graph_are_set_in_it(void **state)
{
    const CUDA_MEMCPY3D copy = line_in(there + 500), settled = line_in(there);
    const CUDA_MEMSET_NODE_PARAMS fill = line_of_sevens(there + 1000);
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec executable;
    memset(host, 7, BYTES);
    assert_int_equal(DRIVERS(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddMemcpyNode(&first, graph, NULL, 0, &copy, context), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddMemsetNode(&second, graph, &first, 1, &fill, context), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecMemcpyNodeSetParams(executable, first, &settled, context), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecMemsetNodeSetParams(executable, second, &fill, context), CUDA_SUCCESS);
    set_there(1);
    assert_int_equal(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    settle(stream);
    check_there(2000, 2000, 1, 7, 1);
    CUgraphNodeParams of_any = any_copy(there + 2000, NULL);
    assert_int_equal(cuGraphExecNodeSetParams(executable, first, &of_any), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    settle(stream);
    check_there(3000, 3000, 1, 7, 1);
    assert_int_equal(cuGraphExecDestroy(executable), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

int main(void)
{
    if (!start_peers())
        return 1;
    const struct CMUnitTest tests[] = {
        PEERS(a_line_from_the_host_arrives),
        PEERS(a_line_to_the_host_arrives),
        PEERS(rows_and_boxes_from_the_host_arrive),
        PEERS(an_array_of_the_other_card_is_copied),
        PEERS(a_copy_looks_at_the_card_of_its_stream),
        PEERS(imported_memory_is_reached),
        PEERS(memsets_arrive),
        PEERS(it_is_done_in_the_order_of_its_stream),
        PEERS(what_is_captured_arrives_at_each_launch),
        PEERS(a_synchronous_copy_in_a_capture_is_refused_as_ever),
        PEERS(nodes_that_are_added_by_hand_arrive_at_each_launch),
        PEERS(nodes_are_set_to_memory_of_another_card),
        PEERS(nodes_of_an_executable_graph_are_set_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
