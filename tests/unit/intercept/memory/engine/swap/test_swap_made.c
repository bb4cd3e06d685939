/* Physical memory that programs make themselves, with the properties that frameworks ask for, on a card that has them all: it
 * leaves the card unless others use it. */
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "memory/engine/swap/swap_world.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/engine/swap/move/mover.h"
#include "intercept/memory/engine/swap/program/swap_program.h"
#include "intercept/resolve/unknown.h"

#define BYTES (4 * MIB)
#define FABRIC CU_MEM_HANDLE_TYPE_FABRIC
#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static CUmemAllocationProp with(unsigned types, unsigned char for_rdma, unsigned short usage)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = types,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                 .allocFlags = {.gpuDirectRDMACapable = for_rdma, .usage = usage}};
}

/* Memory of the program's at an address of its own. */
struct made {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
};

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    assert_int_equal(cuMemAddressReserve(&address, BYTES, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(address, BYTES, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemSetAccess(address, BYTES, &access, 1), CUDA_SUCCESS);
    return address;
}

static struct made make(const CUmemAllocationProp *properties)
{
    struct made made;
    assert_int_equal(cuMemCreate(&made.handle, BYTES, properties, 0), CUDA_SUCCESS);
    made.address = mapped(made.handle);
    return made;
}

static void end(struct made made)
{
    assert_int_equal(cuMemUnmap(made.address, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(made.handle), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(made.address, BYTES), CUDA_SUCCESS);
}

/* All of it leaves twice, and each time it is back as it was. */
static void see_it_move(CUdeviceptr address)
{
    for (unsigned round = 0; round < 2; round++) {
        fill(address, BYTES, round);
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first);
        assert_int_equal(swap_bytes().evicted_bytes, BYTES);
        assert_int_equal(swap_bytes().resident_bytes, 0);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        assert_int_equal(card_free(), free_at_first - BYTES);
        check(address, BYTES, round);
    }
}

static void see_it_stay(CUdeviceptr address, enum wire_stays why)
{
    struct agent_memory memory;
    fill(address, BYTES, 7);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(card_free(), free_at_first - BYTES);
    assert_int_equal(swap_bytes().evicted_bytes, 0);
    swap_mover.count(&memory);
    assert_int_equal(memory.stays_bytes[why], BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    check(address, BYTES, 7);
}

/* --- What moves ------------------------------------------------------------------------------------ */

static CUresult (*driver_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                 unsigned long long);
static struct {
    unsigned calls;
    CUmemAllocationProp last;
    CUresult refusal; /* of memory with fabric handles */
} asked;

static CUresult note_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags)
{
    asked.calls++;
    asked.last = *properties;
    if (asked.refusal != CUDA_SUCCESS && (unsigned)properties->requestedHandleTypes & FABRIC)
        return asked.refusal;
    return driver_create(handle, bytes, properties, flags);
}

static void watch_creations(void)
{
    driver_create = real(cuMemCreate);
    memset(&asked, 0, sizeof(asked));
    SET(cuMemCreate, note_create);
}

static void memory_moves_whatever_it_could_be_used_for_and_keeps_its_properties(void **state)
{
    const unsigned types[] = {0, POSIX_FD, FABRIC, FABRIC | POSIX_FD};
    for (unsigned i = 0; i < 16; i++) {
        const CUmemAllocationProp wanted =
            with(types[i % 4], i / 4 % 2, i / 8 ? CU_MEM_CREATE_USAGE_HW_DECOMPRESS : 0);
        CUmemAllocationProp told;
        unsigned allowed = 0, for_rdma = 9;
        struct made made = make(&wanted);
        watch_creations();
        see_it_move(made.address);
        assert_int_equal(asked.calls, 2);
        assert_memory_equal(&asked.last, &wanted, sizeof(wanted));
        SET(cuMemCreate, driver_create);
        assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&told, made.handle), CUDA_SUCCESS);
        assert_memory_equal(&told, &wanted, sizeof(wanted));
        assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
        assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&told, made.handle), CUDA_SUCCESS);
        assert_memory_equal(&told, &wanted, sizeof(wanted));
        uint64_t word = 0;
        assert_int_equal(
            cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, made.address),
            CUDA_SUCCESS);
        allowed = (unsigned)word;
        assert_int_equal(allowed, types[i % 4]);
        assert_int_equal(
            cuPointerGetAttribute(&for_rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, made.address),
            CUDA_SUCCESS);
        assert_int_equal(for_rdma, i / 4 % 2);
        assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
        end(made);
    }
}

static CUresult tell_not_compressed(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    *properties = with(0, 0, 0);
    return CUDA_SUCCESS;
}

/* Whether memory is compressed the driver says when it has made it. */
static void compression_that_the_driver_did_not_give_is_not_asked_for_again(void **state)
{
    CUresult (*driver)(CUmemAllocationProp *, CUmemGenericAllocationHandle) =
        real(cuMemGetAllocationPropertiesFromHandle);
    for (unsigned is_given = 0; is_given < 2; is_given++) {
        CUmemAllocationProp wanted = with(0, 0, 0), told;
        wanted.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
        if (!is_given)
            SET(cuMemGetAllocationPropertiesFromHandle, tell_not_compressed);
        struct made made = make(&wanted);
        SET(cuMemGetAllocationPropertiesFromHandle, driver);
        watch_creations();
        see_it_move(made.address);
        assert_int_equal(asked.last.allocFlags.compressionType, is_given);
        SET(cuMemCreate, driver_create);
        assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&told, made.handle), CUDA_SUCCESS);
        assert_int_equal(told.allocFlags.compressionType, is_given);
        end(made);
    }
}

/* --- What is made while all is away ----------------------------------------------------------------- */

/* Else it could not come back. */
static void what_the_driver_would_refuse_is_refused_while_all_is_away(void **state)
{
    const CUmemAllocationProp plain = with(0, 1, 0), fabric = with(FABRIC, 1, 0);
    CUmemGenericAllocationHandle handle;
    struct made made;
    swap_state()->program.accepted_count = 0;
    watch_creations();
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    asked.refusal = CUDA_ERROR_NOT_PERMITTED;
    assert_int_equal(cuMemCreate(&handle, BYTES, &fabric, 0), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(cuMemCreate(&handle, BYTES + 4096, &plain, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(used(), 0);
    assert_int_equal(asked.calls, 1);
    made = make(&plain);
    assert_int_equal(asked.calls, 2);
    end(made);
    made = make(&plain);
    assert_int_equal(asked.calls, 2); /* it is known */
    end(made);
    asked.refusal = CUDA_ERROR_OUT_OF_MEMORY; /* then nobody can say */
    assert_int_equal(cuMemCreate(&handle, BYTES, &fabric, 0), CUDA_ERROR_OUT_OF_MEMORY);
    asked.refusal = CUDA_SUCCESS;
    made = make(&fabric);
    assert_int_equal(card_free(), free_at_first);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_memory_equal(&asked.last, &fabric, sizeof(fabric));
    see_it_move(made.address);
    end(made);
    SET(cuMemCreate, driver_create);
}

/* --- What stays ------------------------------------------------------------------------------------ */

static void what_was_exported_stays_and_what_could_not_be_exported_moves(void **state)
{
    const CUmemAllocationProp both = with(FABRIC | POSIX_FD, 1, 0), none = with(0, 1, 0);
    unsigned char fabric[64];
    int fd;
    struct made made = make(&none);
    assert_int_equal(cuMemExportToShareableHandle(&fd, made.handle, POSIX_FD, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemExportToShareableHandle(fabric, made.handle, FABRIC, 0), CUDA_ERROR_INVALID_VALUE);
    see_it_move(made.address);
    end(made);
    for (unsigned by_fabric = 0; by_fabric < 2; by_fabric++) {
        made = make(&both);
        if (by_fabric) {
            assert_int_equal(cuMemExportToShareableHandle(fabric, made.handle, FABRIC, 0), CUDA_SUCCESS);
        } else {
            assert_int_equal(cuMemExportToShareableHandle(&fd, made.handle, POSIX_FD, 0), CUDA_SUCCESS);
            close(fd); /* what others have of it nobody can tell */
        }
        see_it_stay(made.address, WIRE_STAYS_EXPORTED);
        end(made);
    }
    assert_int_equal(pinned_bytes(), 0);
}

static CUresult bind(CUmemGenericAllocationHandle object, unsigned way, const struct made *made,
                     uint64_t bytes)
{
    switch (way) {
    case 0:
        return cuMulticastBindMem(object, 0, made->handle, 0, bytes, 0);
    case 1:
        return cuMulticastBindMem_v2(object, 0, 0, made->handle, 0, bytes, 0);
    case 2:
        return cuMulticastBindAddr(object, 0, made->address, bytes, 0);
    default:
        return cuMulticastBindAddr_v2(object, 0, 0, made->address, bytes, 0);
    }
}

static void what_is_bound_to_a_multicast_object_stays(void **state)
{
    const CUmulticastObjectProp how = {.numDevices = 1, .size = BYTES};
    const CUmemAllocationProp plain = with(0, 1, 0);
    CUresult (*add)(CUmemGenericAllocationHandle, CUdevice) = (CUresult(*)(
        CUmemGenericAllocationHandle, CUdevice))real_driver_function(CUDA_ID_cuMulticastAddDevice);
    CUmemGenericAllocationHandle object;
    assert_int_equal(cuMulticastCreate(&object, &how), CUDA_SUCCESS);
    assert_int_equal(add(object, 0), CUDA_SUCCESS);
    for (unsigned way = 0; way < 4; way++) {
        struct made made = make(&plain);
        for (unsigned is_well = 0; is_well < 2; is_well++) {
            CUresult result = bind(object, way, &made, is_well ? BYTES : 2 * BYTES);
            assert_int_equal(result, is_well ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
            if (is_well)
                see_it_stay(made.address, WIRE_STAYS_BOUND);
            else
                see_it_move(made.address);
        }
        assert_int_equal(cuMulticastUnbind(object, 0, 0, BYTES), CUDA_SUCCESS);
        end(made);
    }
    assert_int_equal(cuMemRelease(object), CUDA_SUCCESS);
    assert_int_equal(pinned_bytes(), 0);
}

static unsigned is_synchronous(CUdeviceptr address)
{
    unsigned each = 7, all = 7;
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    assert_int_equal(cuPointerGetAttribute(&each, which, address), CUDA_SUCCESS);
    assert_int_equal(cuPointerGetAttributes(1, &which, (void *[]){&all}, address), CUDA_SUCCESS);
    assert_int_equal(each, all);
    return each;
}

/* Whether a memset, and a copy, return behind a kernel with the kernel done: a bit for each. */
static unsigned what_waits(CUdeviceptr address)
{
    CUmodule module;
    CUfunction spin;
    uint64_t us = 50000;
    unsigned waited = 0;
    assert_int_equal(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n"
                                               ".visible .entry gs_spin_us(.param .u64 us){ret;}\n"),
                     CUDA_SUCCESS);
    assert_int_equal(real(cuModuleGetFunction)(&spin, module, "gs_spin_us"), CUDA_SUCCESS);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&us}, NULL),
                         CUDA_SUCCESS);
        assert_int_equal(i ? cuMemcpyDtoD_v2(address, address + 100, 4) : cuMemsetD8_v2(address, 0, 4),
                         CUDA_SUCCESS);
        waited |= (unsigned)(cuStreamQuery(NULL) == CUDA_SUCCESS) << i;
    }
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
    return waited;
}

/* Memory that stands for cuMemAlloc's takes SYNC_MEMOPS, although the driver refuses it for what we have made it of. */
static void what_is_set_to_synchronous_copies_is_waited_for(void **state)
{
    CUdeviceptr address = take(BYTES), other = take(100);
    const unsigned on = 1, off = 0;
    assert_int_equal(is_synchronous(address), 0);
    assert_int_equal(what_waits(address), 0);
    assert_int_equal(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address + 100),
                     CUDA_SUCCESS);
    assert_int_equal(is_synchronous(address), 1);
    assert_int_equal(is_synchronous(other), 0);
    assert_int_equal(what_waits(address), 3);
    assert_int_equal(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_SUCCESS);
    assert_int_equal(is_synchronous(address), 0);
    assert_int_equal(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(other), CUDA_SUCCESS);
}

/* Programs set it before a network card is told of the memory. */
static void what_is_set_to_synchronous_copies_stays(void **state)
{
    CUdeviceptr address = take(BYTES);
    unsigned value = 0;
    assert_int_equal(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_SUCCESS);
    see_it_move(address);
    value = 1;
    assert_int_equal(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_SUCCESS);
    see_it_stay(address, WIRE_STAYS_SYNC_MEMOPS);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void what_became_a_dma_buf_stays(void **state)
{
    const CUmemAllocationProp for_rdma = with(POSIX_FD, 1, 0);
    struct made made = make(&for_rdma);
    int fd = -1;
    CUresult result =
        cuMemGetHandleForAddressRange(&fd, made.address, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result == CUDA_SUCCESS)
        close(fd);
    see_it_stay(made.address, WIRE_STAYS_DMA_BUF);
    end(made);
}

static CUmemGenericAllocationHandle handed;

static CUresult brand_new(CUdeviceptr address, CUmemGenericAllocationHandle handle)
{
    handed = handle;
    return CUDA_SUCCESS;
}

/* Nobody here knows what the driver does with the address and the handle. */
static void all_stays_once_the_program_calls_what_nobody_here_knows(void **state)
{
    const CUmemAllocationProp plain = with(0, 0, 0);
    __typeof__(brand_new) *call = (__typeof__(brand_new) *)unknown_function("cuBrandNew", (void *)brand_new);
    struct made made = make(&plain);
    CUdeviceptr address = take(BYTES);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_bytes().evicted_bytes, 2 * BYTES); /* to have asked for it pins nothing */
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(call(address, made.handle), CUDA_SUCCESS);
    assert_true(program_is_handle(made.handle));
    assert_false(program_is_handle(handed));
    assert_int_equal(pinned_bytes(), 2 * BYTES);
    assert_int_equal(swap_state()->pinned_bytes[WIRE_STAYS_UNKNOWN], 2 * BYTES);
    end(made);
    see_it_stay(address, WIRE_STAYS_UNKNOWN);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);

    /* What comes later stays as well, also what is made while a move goes on, and has the driver's handle. */
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    address = take(BYTES);
    assert_int_equal(card_free(), free_at_first - BYTES);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    see_it_stay(address, WIRE_STAYS_UNKNOWN);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    made = make(&plain);
    assert_false(program_is_handle(made.handle));
    see_it_stay(made.address, WIRE_STAYS_UNKNOWN);
    end(made);
    swap_state()->is_pinned = false;
}

/* As UCX does it. Which memory a network card reaches then, nobody says. */
static void all_stays_once_a_context_is_set_to_synchronous_copies(void **state)
{
    struct agent_memory before, after;
    CUdeviceptr address = take(BYTES);
    (void)state;
    assert_int_equal(cuCtxSetFlags(CU_CTX_SCHED_SPIN), CUDA_SUCCESS);
    swap_mover.count(&before);
    assert_true(before.resident_bytes >= BYTES);
    assert_int_equal(before.stays_bytes[WIRE_STAYS_REGISTERED], 0);
    assert_int_equal(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS), CUDA_SUCCESS);
    assert_int_equal(swap_mover.evict(NULL), 0);
    swap_mover.count(&after);
    assert_int_equal(after.resident_bytes + after.evicted_bytes, 0);
    assert_int_equal(after.stays_bytes[WIRE_STAYS_REGISTERED], before.resident_bytes);
    assert_int_equal(swap_mover.restore(NULL), 0);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

/* --- What cannot move ------------------------------------------------------------------------------ */

static void take_managed(void)
{
    CUdeviceptr address;
    assert_int_equal(cuMemAllocManaged(&address, BYTES, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
}

static void take_array(void)
{
    const CUDA_ARRAY_DESCRIPTOR how = {
        .Width = BYTES / 1024 / 4, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    assert_int_equal(cuArrayCreate_v2(&array, &how), CUDA_SUCCESS);
}

static void set_limit(void)
{
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, BYTES * 3), CUDA_SUCCESS);
}

static CUgraph graph;
static CUgraphExec graph_exec;

static CUstream stream;

static void launch_graph(void)
{
    CUdeviceptr address;
    assert_int_equal(real(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&address, BYTES, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&graph_exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(graph_exec, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

static struct made exported, imported;

/* Here it is the process's own, which the driver allows. */
static void import_memory(void)
{
    const CUmemAllocationProp shareable = with(POSIX_FD, 0, 0);
    int fd;
    exported = make(&shareable);
    assert_int_equal(cuMemExportToShareableHandle(&fd, exported.handle, POSIX_FD, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemImportFromShareableHandle(&imported.handle, (void *)(intptr_t)fd, POSIX_FD),
                     CUDA_SUCCESS);
    close(fd);
    imported.address = mapped(imported.handle);
}

static CUexternalMemory external, external_again;

static int external_fd;

/* Another API's memory. */
static void import_external(void)
{
    int fd = memfd_create("other API", 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = BYTES};
    external_fd = dup(fd);
    assert_int_equal(cuImportExternalMemory(&external, &memory), CUDA_SUCCESS);
}

static void import_external_again(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC again = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = external_fd, .size = BYTES};
    assert_int_equal(cuImportExternalMemory(&external_again, &again), CUDA_SUCCESS);
}

/* Rows that the tests above and those of pools have seen are not here. */
static void what_cannot_move_counts_by_its_reason(void **state)
{
    static const struct {
        enum wire_stays why;
        void (*make)(void);
    } rows[] = {
        {WIRE_STAYS_MANAGED, take_managed}, {WIRE_STAYS_ARRAY, take_array},
        {WIRE_STAYS_CONTEXT, set_limit},    {WIRE_STAYS_GRAPH, launch_graph},
        {WIRE_STAYS_JOINT, import_memory},  {WIRE_STAYS_IMPORTED, import_external},
    };
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct agent_memory before, memory;
        swap_mover.count(&before);
        rows[i].make();
        swap_mover.count(&memory);
        assert_true(memory.stays_bytes[rows[i].why] >= before.stays_bytes[rows[i].why] + BYTES);
    }
    struct agent_memory before, memory;
    swap_mover.count(&before);
    import_external_again();
    swap_mover.count(&memory);
    assert_int_equal(memory.stays_bytes[WIRE_STAYS_IMPORTED], before.stays_bytes[WIRE_STAYS_IMPORTED]);
    assert_int_equal(cuDestroyExternalMemory(external_again), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(graph_exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
    assert_int_equal(cuDestroyExternalMemory(external), CUDA_SUCCESS);
    end(imported);
    end(exported);
}

/* The simulated machine is this test's alone; its card costs nothing, and has what an H100 has. */
int main(void)
{
    setenv("FAKECUDA_DEVICE", "h100", 1);
    setenv("FAKECUDA_CONSTANTS", "default", 1);
    if (!start_world())
        return 1;
    const struct CMUnitTest tests[] = {
        TEST(memory_moves_whatever_it_could_be_used_for_and_keeps_its_properties),
        TEST(compression_that_the_driver_did_not_give_is_not_asked_for_again),
        TEST(what_the_driver_would_refuse_is_refused_while_all_is_away),
        TEST(what_was_exported_stays_and_what_could_not_be_exported_moves),
        TEST(what_is_bound_to_a_multicast_object_stays),
        TEST(what_is_set_to_synchronous_copies_is_waited_for),
        TEST(what_is_set_to_synchronous_copies_stays),
        TEST(what_became_a_dma_buf_stays),
        TEST(all_stays_once_the_program_calls_what_nobody_here_knows),
        TEST(what_cannot_move_counts_by_its_reason),
        TEST(all_stays_once_a_context_is_set_to_synchronous_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
