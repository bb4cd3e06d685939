/* Memory of graphs, memory that processes hand to each other, multicast, modules: on a driver of our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/driver_more.h"
#include "fixture.h"

/* --- Graphs: one, of nodes that are numbers -------------------------------------------------------- */

static const struct node {
    CUgraphNodeType type;
    CUdeviceptr address;
    size_t bytes;
    CUdevice device; /* of an allocation */
} * nodes;
static size_t node_count;
static size_t graphs_reserved[FAKE_GPUS], graphs_used[FAKE_GPUS];
static CUgraphExec next_exec = (CUgraphExec)0x4000;
static size_t
    launch_takes[FAKE_GPUS]; /* reserved at the next launch, and in use until the exec is destroyed */

static CUresult get_nodes(CUgraph graph, CUgraphNode *out, size_t *count)
{
    for (size_t i = 0; out && i < node_count; i++)
        out[i] = (CUgraphNode)(i + 1);
    *count = node_count;
    return CUDA_SUCCESS;
}

static const struct node *node_of(CUgraphNode node)
{
    return &nodes[(uintptr_t)node - 1];
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *type)
{
    *type = node_of(node)->type;
    return CUDA_SUCCESS;
}

static CUresult alloc_params(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    memset(params, 0, sizeof(*params));
    params->poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, node_of(node)->device};
    params->bytesize = node_of(node)->bytes;
    params->dptr = node_of(node)->address;
    return CUDA_SUCCESS;
}

static CUresult free_params(CUgraphNode node, CUdeviceptr *address)
{
    *address = node_of(node)->address;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    *exec = next_exec;
    return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    for (CUdevice device = 0; device < FAKE_GPUS; device++) {
        graphs_used[device] = launch_takes[device];
        if (graphs_reserved[device] < graphs_used[device])
            graphs_reserved[device] = graphs_used[device];
    }
    return CUDA_SUCCESS;
}

static CUresult end_exec(CUgraphExec exec)
{
    memset(graphs_used, 0, sizeof(graphs_used));
    return CUDA_SUCCESS;
}

static CUresult graph_attribute(CUdevice device, CUgraphMem_attribute which, void *value)
{
    *(cuuint64_t *)value =
        which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? graphs_reserved[device] : graphs_used[device];
    return CUDA_SUCCESS;
}

static CUresult graph_trim(CUdevice device)
{
    graphs_reserved[device] = graphs_used[device];
    return CUDA_SUCCESS;
}

#define ALLOC(address, bytes)                                                                                \
    {                                                                                                        \
        CU_GRAPH_NODE_TYPE_MEM_ALLOC, address, bytes                                                         \
    }
#define FREE(address)                                                                                        \
    {                                                                                                        \
        CU_GRAPH_NODE_TYPE_MEM_FREE, address, 0                                                              \
    }

static CUgraphExec make_exec(const struct node *list, size_t count, size_t takes)
{
    CUgraphExec exec = NULL;
    nodes = list;
    node_count = count;
    launch_takes[0] = takes;
    launch_takes[1] = 0;
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, (CUgraph)0x3000, 0), CUDA_SUCCESS);
    return exec;
}

static void graph_memory_is_charged_by_what_graphs_reserve(void **state)
{
    /* 40 MiB at most at a time, though 70 MiB in all. */
    static const struct node list[] = {ALLOC(1, 30 * MIB),
                                       {.type = CU_GRAPH_NODE_TYPE_KERNEL},
                                       FREE(1),
                                       ALLOC(2, 10 * MIB),
                                       ALLOC(3, 30 * MIB),
                                       FREE(2),
                                       FREE(3)};
    CUgraphExec exec = make_exec(list, 7, 40 * MIB);
    assert_int_equal(used(), 0); /* nothing before the launch */
    CUdeviceptr address = linear(LIMIT - 40 * MIB + 1);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(graphs_reserved[0], 0); /* the driver was not asked */
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    address = linear(LIMIT - 40 * MIB);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    /* At the quota, again and again: its memory is there already. */
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT); /* kept for the next graph */
    assert_int_equal(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT - 40 * MIB);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void unused_graph_memory_makes_room_for_other_memory(void **state)
{
    static const struct node list[] = {ALLOC(1, 40 * MIB), FREE(1)};
    CUgraphExec exec = make_exec(list, 2, 40 * MIB);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 40 * MIB);
    graphs_used[0] = 0; /* the launch has finished, and freed it */
    CUdeviceptr address = linear(LIMIT);
    assert_int_not_equal(address, 0);
    assert_int_equal(graphs_reserved[0], 0);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 40 * MIB);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_launch_asks_again_once_another_graph_may_hold_its_memory(void **state)
{
    static const struct node one[] = {ALLOC(1, 40 * MIB), FREE(1)}, other[] = {ALLOC(2, 20 * MIB)};
    CUgraphExec first = make_exec(one, 2, 40 * MIB);
    next_exec = (CUgraphExec)0x5000;
    CUgraphExec second = make_exec(other, 1, 20 * MIB);
    next_exec = first;
    launch_takes[0] = 40 * MIB;
    assert_int_equal(cuGraphLaunch(first, NULL), CUDA_SUCCESS);
    CUdeviceptr address = linear(LIMIT - 40 * MIB);
    /* Its memory is in use, as far as the driver says: the other has no room, and the first still its own. */
    assert_int_equal(cuGraphLaunch(second, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuGraphLaunch(first, NULL), CUDA_SUCCESS);
    graphs_used[0] = 0; /* the launch has finished */
    launch_takes[0] = 20 * MIB;
    assert_int_equal(cuGraphLaunch(second, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    launch_takes[0] = 60 * MIB; /* what the driver would have to reserve */
    assert_int_equal(cuGraphLaunch(first, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(graphs_reserved[0], 20 * MIB); /* trimmed in vain, and the driver was not asked */
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(first, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 60 * MIB);
    assert_int_equal(cuGraphExecDestroy(first), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(second), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_launch_that_took_more_than_it_said_is_charged_as_it_is(void **state)
{
    static const struct node list[] = {ALLOC(1, 10 * MIB)};
    CUgraphExec exec = make_exec(list, 1, 80 * MIB);
    CUdeviceptr address;
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 80 * MIB);
    assert_int_equal(cuMemAlloc_v2(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void a_graph_on_two_gpus_is_refused_that_does_not_fit_on_one_of_them(void **state)
{
    static const struct node list[] = {ALLOC(1, 40 * MIB),
                                       {CU_GRAPH_NODE_TYPE_MEM_ALLOC, 2, 10 * MIB, .device = 1}};
    CUgraphExec exec = make_exec(list, 2, 40 * MIB);
    launch_takes[1] = 10 * MIB;
    CUcontext other = fake_context(1);
    CUdeviceptr address = linear(LIMIT - 10 * MIB + 1);
    assert_int_not_equal(address, 0);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(graphs_reserved[0] + graphs_reserved[1], 0); /* the driver was not asked */
    assert_int_equal(used(), 0);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    address = linear(LIMIT - 10 * MIB);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 40 * MIB);
    assert_int_equal(linear(1), 0); /* it has all of the quota on that GPU */
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGraphMemTrim(1), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    address = linear(LIMIT);
    assert_int_not_equal(address, 0);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
}

/* --- What processes hand to each other ------------------------------------------------------------- */

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static unsigned opened;

static CUresult get_handle(CUipcMemHandle *handle, CUdeviceptr address)
{
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &address, sizeof(address));
    return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    opened++;
    *address = 0x9000;
    return CUDA_SUCCESS;
}

static CUresult close_handle(CUdeviceptr address)
{
    return opened ? opened--, CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult export_pointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    memset(data, 7, sizeof(*data));
    return CUDA_SUCCESS;
}

static CUresult import_pointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    return real(cuMemAlloc_v2)(address, 24 * MIB);
}

static CUresult address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    *bytes = 24 * MIB;
    return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    *(int *)value = 0;
    return CUDA_SUCCESS;
}

static CUresult export_shareable(void *shareable, CUmemGenericAllocationHandle handle,
                                 CUmemAllocationHandleType type, unsigned long long flags)
{
    *(int *)shareable = dup(STDIN_FILENO);
    return CUDA_SUCCESS;
}

static CUresult import_shareable(CUmemGenericAllocationHandle *handle, void *shareable,
                                 CUmemAllocationHandleType type)
{
    CUresult result = real(cuMemCreate)(handle, 2 * MIB, &on_device, 0);
    return result;
}

static CUresult properties_of(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    *properties = on_device;
    return CUDA_SUCCESS;
}

static void memory_of_another_session_is_charged_to_the_opener(void **state)
{
    CUipcMemHandle foreign = {.reserved = "foreign"}, own;
    CUmemPoolPtrExportData foreign_data = {.reserved = {1, 2, 3}};
    CUdeviceptr address, again, mine = linear(LIMIT - 24 * MIB + 1);
    assert_int_equal(cuIpcOpenMemHandle_v2(&address, foreign, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(opened, 0); /* and closed again */
    assert_int_equal(cuMemPoolImportPointer(&address, NULL, &foreign_data), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake_held(0), LIMIT - 24 * MIB + 1);
    assert_int_equal(cuMemFree_v2(mine), CUDA_SUCCESS);
    mine = linear(LIMIT - 24 * MIB);
    assert_int_equal(cuIpcOpenMemHandle_v2(&address, foreign, 1), CUDA_SUCCESS);
    assert_int_equal(cuIpcOpenMemHandle(&again, foreign, 1), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuIpcCloseMemHandle(again), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT - 24 * MIB);
    assert_int_equal(cuIpcCloseMemHandle(again), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemPoolImportPointer(&address, NULL, &foreign_data), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    /* What the session exported itself was charged when it was made. */
    assert_int_equal(cuIpcGetMemHandle(&own, mine), CUDA_SUCCESS);
    assert_int_equal(cuIpcOpenMemHandle_v2(&address, own, 1), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT - 24 * MIB);
    assert_int_equal(cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(mine), CUDA_SUCCESS);
}

static void an_import_is_charged_once_in_a_session(void **state)
{
    CUmemGenericAllocationHandle handle, foreign, same;
    CUmemPoolPtrExportData data;
    CUdeviceptr address;
    int pipes[2], fd;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(cuMemImportFromShareableHandle(&foreign, (void *)(intptr_t)pipes[0],
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                     CUDA_SUCCESS);
    assert_int_equal(used(), 0); /* its size is not known yet */
    assert_int_equal(cuMemMap(0x100000, 2 * MIB, 0, foreign, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(0x900000, 2 * MIB, 0, foreign, 0), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    CUdeviceptr rest = linear(LIMIT - 2 * MIB);
    assert_int_equal(cuMemMap(0x2000000, 4 * MIB, 0, foreign, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemRelease(foreign), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(0x100000, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemUnmap(0x900000, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT - 2 * MIB);

    assert_int_equal(cuMemCreate(&handle, 2 * MIB, &on_device, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_SUCCESS);
    assert_int_equal(
        cuMemImportFromShareableHandle(&same, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_SUCCESS);
    assert_int_equal(cuMemMap(0x100000, 2 * MIB, 0, same, 0), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT);
    assert_int_equal(cuMemUnmap(0x100000, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(same), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);

    assert_int_equal(cuMemPoolExportPointer(&data, rest), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolImportPointer(&address, NULL, &data), CUDA_SUCCESS);
    assert_int_equal(used(), LIMIT - 2 * MIB);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(rest), CUDA_SUCCESS);
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
}

/* --- Multicast ------------------------------------------------------------------------------------- */

static CUresult multicast_create(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *how)
{
    CUmemAllocationProp nowhere = {.location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
    return real(cuMemCreate)(handle, 1, &nowhere, 0);
}

static CUresult multicast_bind(CUmemGenericAllocationHandle object, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                               unsigned long long flags)
{
    return CUDA_SUCCESS;
}

static CUresult multicast_bind_address(CUmemGenericAllocationHandle object, size_t offset,
                                       CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    return CUDA_SUCCESS;
}

static CUresult multicast_bind_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                  CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                                  unsigned long long flags)
{
    return CUDA_SUCCESS;
}

static CUresult multicast_bind_address_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                          CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    return CUDA_SUCCESS;
}

static CUresult multicast_unbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                 size_t bytes)
{
    return CUDA_SUCCESS;
}

static void a_multicast_object_holds_what_is_bound_to_it(void **state)
{
    CUmulticastObjectProp how = {0};
    CUmemGenericAllocationHandle object, memory[4];
    assert_int_equal(cuMulticastCreate(&object, &how), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t offset = i * 2 * MIB;
        CUresult result;
        assert_int_equal(cuMemCreate(&memory[i], 2 * MIB, &on_device, 0), CUDA_SUCCESS);
        assert_int_equal(cuMemMap(0x200000, 2 * MIB, 0, memory[i], 0), CUDA_SUCCESS);
        if (i % 2)
            result = i == 1 ? cuMulticastBindAddr(object, offset, 0x200000, 2 * MIB, 0)
                            : cuMulticastBindAddr_v2(object, 0, offset, 0x200000, 2 * MIB, 0);
        else
            result = i == 0 ? cuMulticastBindMem(object, offset, memory[i], 0, 2 * MIB, 0)
                            : cuMulticastBindMem_v2(object, 0, offset, memory[i], 0, 2 * MIB, 0);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_int_equal(cuMemUnmap(0x200000, 2 * MIB), CUDA_SUCCESS);
        assert_int_equal(cuMemRelease(memory[i]), CUDA_SUCCESS);
    }
    assert_int_equal(used(), 8 * MIB);
    assert_int_equal(cuMulticastUnbind(object, 0, 0, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), 6 * MIB);
    assert_int_equal(cuMemRelease(object), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

/* --- Logical endpoints ----------------------------------------------------------------------------- */

static CUresult endpoint_create(CUlogicalEndpointId id, const CUlogicalEndpointProp *how)
{
    return CUDA_SUCCESS;
}

static CUresult endpoint_import(CUlogicalEndpointId id, const void *handle,
                                CUlogicalEndpointIpcHandleType type)
{
    return CUDA_SUCCESS;
}

static CUresult endpoint_destroy(CUlogicalEndpointId id)
{
    CUresult result = fake_next_result;
    fake_next_result = CUDA_SUCCESS;
    return result;
}

static CUresult endpoint_bind(CUlogicalEndpointId id, CUdevice device, cuuint64_t offset,
                              CUmemGenericAllocationHandle memory, cuuint64_t from, cuuint64_t bytes,
                              unsigned long long flags)
{
    return CUDA_SUCCESS;
}

static CUresult endpoint_bind_address(CUlogicalEndpointId id, CUdevice device, cuuint64_t offset,
                                      void *address, cuuint64_t bytes, unsigned long long flags)
{
    return CUDA_SUCCESS;
}

static CUresult endpoint_unbind(CUlogicalEndpointId id, CUdevice device, cuuint64_t offset, cuuint64_t bytes)
{
    return CUDA_SUCCESS;
}

/* Two at once: made here, and imported. */
static void a_logical_endpoint_holds_what_is_bound_to_it(void **state)
{
    CUmemGenericAllocationHandle memory;
    assert_int_equal(cuLogicalEndpointCreate(7, NULL), CUDA_SUCCESS);
    assert_int_equal(cuLogicalEndpointImport(8, NULL, 1), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    for (unsigned i = 0; i < 3; i++) {
        CUlogicalEndpointId id = i == 2 ? 8 : 7;
        void *address = (void *)0x200000;
        assert_int_equal(cuMemCreate(&memory, 2 * MIB, &on_device, 0), CUDA_SUCCESS);
        assert_int_equal(cuMemMap(0x200000, 2 * MIB, 0, memory, 0), CUDA_SUCCESS);
        assert_int_equal(i ? cuLogicalEndpointBindAddr(id, 0, i * 2 * MIB, address, 2 * MIB, 0)
                           : cuLogicalEndpointBindMem(id, 0, 0, memory, 0, 2 * MIB, 0),
                         CUDA_SUCCESS);
        assert_int_equal(cuMemUnmap(0x200000, 2 * MIB), CUDA_SUCCESS);
        assert_int_equal(cuMemRelease(memory), CUDA_SUCCESS);
    }
    assert_int_equal(used(), 6 * MIB);
    assert_int_equal(cuLogicalEndpointUnbind(7, 0, 0, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(used(), 4 * MIB);
    fake_next_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuLogicalEndpointDestroy(7), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(used(), 4 * MIB);
    assert_int_equal(cuLogicalEndpointDestroy(7), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * MIB);
    assert_int_equal(cuLogicalEndpointDestroy(8), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

/* --- Modules --------------------------------------------------------------------------------------- */

static CUresult load(CUmodule *module, const void *image)
{
    CUresult result = fake_next_result;
    fake_next_result = CUDA_SUCCESS;
    *module = (CUmodule)0x8000;
    return result;
}

static CUresult unload_library(CUlibrary library)
{
    return CUDA_ERROR_INVALID_HANDLE;
}

static void modules_and_libraries_pass_through(void **state)
{
    CUmodule module = NULL;
    assert_int_equal(cuModuleLoadData(&module, "image"), CUDA_SUCCESS);
    assert_ptr_equal(module, 0x8000);
    fake_next_result = CUDA_ERROR_INVALID_IMAGE;
    assert_int_equal(cuModuleLoadData(&module, "image"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLibraryUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(used(), 0);
}

#define INSTALL(symbol, function)                                                                            \
    real_functions[CUDA_ID_##symbol] = (void *)(__typeof__(&symbol))                                         \
    {                                                                                                        \
        function                                                                                             \
    }

static void install(void)
{
    INSTALL(cuGraphGetNodes, get_nodes);
    INSTALL(cuGraphNodeGetType, get_type);
    INSTALL(cuGraphMemAllocNodeGetParams, alloc_params);
    INSTALL(cuGraphMemFreeNodeGetParams, free_params);
    INSTALL(cuGraphInstantiateWithFlags, instantiate);
    INSTALL(cuGraphLaunch, launch);
    INSTALL(cuGraphExecDestroy, end_exec);
    INSTALL(cuDeviceGetGraphMemAttribute, graph_attribute);
    INSTALL(cuDeviceGraphMemTrim, graph_trim);
    INSTALL(cuIpcGetMemHandle, get_handle);
    INSTALL(cuIpcOpenMemHandle, open_handle);
    INSTALL(cuIpcOpenMemHandle_v2, open_handle);
    INSTALL(cuIpcCloseMemHandle, close_handle);
    INSTALL(cuMemPoolExportPointer, export_pointer);
    INSTALL(cuMemPoolImportPointer, import_pointer);
    INSTALL(cuMemGetAddressRange_v2, address_range);
    INSTALL(cuPointerGetAttribute, pointer_attribute);
    INSTALL(cuMemExportToShareableHandle, export_shareable);
    INSTALL(cuMemImportFromShareableHandle, import_shareable);
    INSTALL(cuMemGetAllocationPropertiesFromHandle, properties_of);
    INSTALL(cuMulticastCreate, multicast_create);
    INSTALL(cuMulticastBindMem, multicast_bind);
    INSTALL(cuMulticastBindAddr, multicast_bind_address);
    INSTALL(cuMulticastBindMem_v2, multicast_bind_v2);
    INSTALL(cuMulticastBindAddr_v2, multicast_bind_address_v2);
    INSTALL(cuMulticastUnbind, multicast_unbind);
    INSTALL(cuLogicalEndpointCreate, endpoint_create);
    INSTALL(cuLogicalEndpointImport, endpoint_import);
    INSTALL(cuLogicalEndpointDestroy, endpoint_destroy);
    INSTALL(cuLogicalEndpointBindMem, endpoint_bind);
    INSTALL(cuLogicalEndpointBindAddr, endpoint_bind_address);
    INSTALL(cuLogicalEndpointUnbind, endpoint_unbind);
    INSTALL(cuModuleLoadData, load);
    INSTALL(cuLibraryUnload, unload_library);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_context, destroy_context)

int main(void)
{
    setenv("GPUSLICE_MEMORY_LIMIT", "64MiB", 1);
    fake_driver_install();
    install();
    const struct CMUnitTest tests[] = {
        TEST(graph_memory_is_charged_by_what_graphs_reserve),
        TEST(a_launch_asks_again_once_another_graph_may_hold_its_memory),
        TEST(unused_graph_memory_makes_room_for_other_memory),
        TEST(a_launch_that_took_more_than_it_said_is_charged_as_it_is),
        TEST(a_graph_on_two_gpus_is_refused_that_does_not_fit_on_one_of_them),
        TEST(memory_of_another_session_is_charged_to_the_opener),
        TEST(an_import_is_charged_once_in_a_session),
        TEST(a_multicast_object_holds_what_is_bound_to_it),
        TEST(a_logical_endpoint_holds_what_is_bound_to_it),
        TEST(modules_and_libraries_pass_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
