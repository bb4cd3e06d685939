/* Tests of fabric handles of a simulated H100, with real processes: each that touches a GPU is a child. This process
 * passes handles between them. */
#include "children.h"

#define TOTAL (64 * MIB)
#define BYTES (8 * MIB)
#define FABRIC CU_MEM_HANDLE_TYPE_FABRIC
#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

struct fabric {
    unsigned char bytes[64];
};

static CUmemAllocationProp on_card(unsigned types)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = types,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

static CUresult create(unsigned types, CUmemGenericAllocationHandle *handle)
{
    const CUmemAllocationProp properties = on_card(types);
    return cuMemCreate(handle, BYTES, &properties, 0);
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr pointer;
    CHECK(cuMemAddressReserve(&pointer, BYTES, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(pointer, BYTES, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemSetAccess(pointer, BYTES, &access, 1) == CUDA_SUCCESS);
    return pointer;
}

static void export_memory(int line)
{
    CUmemGenericAllocationHandle handle;
    struct fabric fabric, again;
    unsigned value = 0;
    int fd;
    CHECK(use_gpu() && create(FABRIC | POSIX_FD, &handle) == CUDA_SUCCESS);
    CUdeviceptr pointer = mapped(handle);
    CHECK(cuMemsetD32_v2(pointer, 41, BYTES / 4) == CUDA_SUCCESS);
    CHECK(cuMemExportToShareableHandle(&fabric, handle, FABRIC, 0) == CUDA_SUCCESS);
    CHECK(cuMemExportToShareableHandle(&again, handle, FABRIC, 0) == CUDA_SUCCESS);
    CHECK(memcmp(&fabric, &again, sizeof(fabric)) == 0);
    CHECK(cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 0) == CUDA_SUCCESS && close(fd) == 0);
    say(line, &fabric, sizeof(fabric));
    next(line);
    done(line, cuMemcpyDtoH_v2(&value, pointer + BYTES - 4, 4) == CUDA_SUCCESS && value == 42);
    next(line);
    done(line, cuMemUnmap(pointer, BYTES) == CUDA_SUCCESS && cuMemRelease(handle) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static void import_memory(int line)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    struct fabric fabric;
    unsigned value = 0;
    hear(line, &fabric, sizeof(fabric));
    CHECK(use_gpu() && cuMemImportFromShareableHandle(&handle, &fabric, FABRIC) == CUDA_SUCCESS);
    CHECK(cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS);
    CHECK(properties.requestedHandleTypes == (FABRIC | POSIX_FD));
    CUdeviceptr pointer = mapped(handle);
    done(line, cuMemcpyDtoH_v2(&value, pointer, 4) == CUDA_SUCCESS && value == 41 &&
                   cuMemsetD32_v2(pointer, 42, BYTES / 4) == CUDA_SUCCESS);
    next(line);
    done(line, cuMemUnmap(pointer, BYTES) == CUDA_SUCCESS && cuMemRelease(handle) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static void import_nothing(int line)
{
    CUmemGenericAllocationHandle handle;
    struct fabric fabric, wrong = {{1}};
    hear(line, &fabric, sizeof(fabric));
    CHECK(use_gpu());
    done(line, cuMemImportFromShareableHandle(&handle, &fabric, FABRIC) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemImportFromShareableHandle(&handle, &wrong, FABRIC) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemImportFromShareableHandle(&handle, NULL, FABRIC) == CUDA_ERROR_INVALID_VALUE);
    for (;;)
        pause();
}

static struct child importer(void (*body)(int line), const struct fabric *fabric)
{
    struct child child = start(body);
    char byte = 1;
    say(child.line, fabric, sizeof(*fabric));
    assert_int_equal(recv(child.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    return child;
}

static void memory_goes_to_other_processes_by_64_bytes(void **state)
{
    struct child maker = start(export_memory);
    struct fabric fabric;
    hear(maker.line, &fabric, sizeof(fabric));
    struct child other = importer(import_memory, &fabric);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(maker); /* it sees what the other one wrote */
    step(maker); /* and lets go of it */
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    struct child late = importer(import_nothing, &fabric);
    step(other);
    assert_int_equal(free_bytes(), TOTAL);
    killed(maker);
    killed(other);
    killed(late);
}

static void wrong_types(int line)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp of_host = on_card(FABRIC);
    struct fabric fabric;
    int fd;
    of_host.location.type = CU_MEM_LOCATION_TYPE_HOST;
    CHECK(use_gpu());
    CHECK(cuMemCreate(&handle, BYTES, &of_host, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(create(CU_MEM_HANDLE_TYPE_WIN32, &handle) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(create(POSIX_FD, &handle) == CUDA_SUCCESS);
    CHECK(cuMemExportToShareableHandle(&fabric, handle, FABRIC, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(create(FABRIC, &handle) == CUDA_SUCCESS);
    CHECK(cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 0) == CUDA_ERROR_INVALID_VALUE);
}

static void memory_is_exported_by_the_types_that_were_asked_for(void **state)
{
    run(wrong_types);
}

/* --- Pools and multicast objects ------------------------------------------------------------------- */

struct offer {
    struct fabric fabric;
    CUmemPoolPtrExportData data;
};

static void export_pool(int line)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = FABRIC,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool;
    CUdeviceptr pointer;
    struct offer offer;
    int fd;
    CHECK(use_gpu() && cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    CHECK(cuMemAllocFromPoolAsync(&pointer, BYTES, pool, NULL) == CUDA_SUCCESS);
    CHECK(cuMemsetD32_v2(pointer, 41, BYTES / 4) == CUDA_SUCCESS);
    CHECK(cuMemPoolExportToShareableHandle(&fd, pool, POSIX_FD, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolExportToShareableHandle(&offer.fabric, pool, FABRIC, 0) == CUDA_SUCCESS);
    CHECK(cuMemPoolExportPointer(&offer.data, pointer) == CUDA_SUCCESS);
    say(line, &offer, sizeof(offer));
    next(line);
    done(line, cuMemFreeAsync(pointer, NULL) == CUDA_SUCCESS && cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static void import_pool(int line)
{
    CUmemoryPool pool, other;
    CUdeviceptr pointer;
    struct offer offer;
    unsigned value = 0;
    hear(line, &offer, sizeof(offer));
    CHECK(use_gpu());
    CHECK(cuMemPoolImportFromShareableHandle(&pool, &offer.fabric, FABRIC, 0) == CUDA_SUCCESS);
    done(line, cuMemPoolImportPointer(&pointer, pool, &offer.data) == CUDA_SUCCESS &&
                   cuMemcpyDtoH_v2(&value, pointer + BYTES - 4, 4) == CUDA_SUCCESS && value == 41);
    next(line);
    done(line,
         cuMemPoolImportFromShareableHandle(&other, &offer.fabric, FABRIC, 0) == CUDA_ERROR_INVALID_VALUE &&
             cuMemFreeAsync(pointer, NULL) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static void pools_go_to_other_processes_by_64_bytes(void **state)
{
    struct child maker = start(export_pool), other = start(import_pool);
    struct offer offer;
    char byte = 1;
    hear(maker.line, &offer, sizeof(offer));
    say(other.line, &offer, sizeof(offer));
    assert_int_equal(recv(other.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(maker);
    step(other);
    assert_int_equal(free_bytes(), TOTAL);
    killed(maker);
    killed(other);
}

static void export_object(int line)
{
    const CUmulticastObjectProp how = {.numDevices = 1, .size = BYTES, .handleTypes = FABRIC};
    CUmemGenericAllocationHandle object, imported, memory;
    struct fabric fabric;
    CHECK(use_gpu() && cuMulticastCreate(&object, &how) == CUDA_SUCCESS);
    CHECK(cuMemExportToShareableHandle(&fabric, object, FABRIC, 0) == CUDA_SUCCESS);
    CHECK(cuMemImportFromShareableHandle(&imported, &fabric, FABRIC) == CUDA_SUCCESS);
    CHECK(cuMulticastAddDevice(imported, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastAddDevice(object, 0) == CUDA_ERROR_INVALID_VALUE); /* it is the same team */
    CHECK(create(FABRIC, &memory) == CUDA_SUCCESS);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, BYTES, 0) == CUDA_SUCCESS);
}

static void multicast_objects_go_by_64_bytes_too(void **state)
{
    run(export_object);
}

/* --- Cards without --------------------------------------------------------------------------------- */

static void see_refusals(CUresult refusal, int is_supported)
{
    const CUmemPoolProps pool_properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .handleTypes = FABRIC,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    struct fabric fabric = {{0}};
    int value = -1;
    CHECK(use_gpu());
    CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0) == CUDA_SUCCESS);
    CHECK(value == is_supported);
    CHECK(create(FABRIC, &handle) == refusal);
    CHECK(create(FABRIC | POSIX_FD, &handle) == refusal);
    CHECK(cuMemPoolCreate(&pool, &pool_properties) == refusal);
    CHECK(cuMemImportFromShareableHandle(&handle, &fabric, FABRIC) == refusal);
    CHECK(create(POSIX_FD, &handle) == CUDA_SUCCESS);
}

static void without_imex(int line)
{
    const CUmulticastObjectProp how = {.numDevices = 1, .size = BYTES, .handleTypes = FABRIC};
    CUmemGenericAllocationHandle object;
    putenv("FAKECUDA_IMEX=0");
    see_refusals(CUDA_ERROR_NOT_PERMITTED, 1);
    CHECK(cuMulticastCreate(&object, &how) == CUDA_ERROR_NOT_PERMITTED);
}

static void a_process_without_an_imex_channel_is_not_permitted(void **state)
{
    run(without_imex);
}

static void other_card(int line)
{
    char name[64];
    snprintf(name, sizeof(name), "FAKECUDA_NAME=test-%d", (int)getpid());
    putenv(name);
    putenv("FAKECUDA_DEVICE=default");
    see_refusals(CUDA_ERROR_NOT_SUPPORTED, 0);
    simulated_remove();
}

static void cards_without_fabric_handles_say_so(void **state)
{
    run(other_card);
}

int main(void)
{
    simulated_choose(
        (char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", "FAKECUDA_DEVICE=h100", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_goes_to_other_processes_by_64_bytes),
        cmocka_unit_test(memory_is_exported_by_the_types_that_were_asked_for),
        cmocka_unit_test(pools_go_to_other_processes_by_64_bytes),
        cmocka_unit_test(multicast_objects_go_by_64_bytes_too),
        cmocka_unit_test(a_process_without_an_imex_channel_is_not_permitted),
        cmocka_unit_test(cards_without_fabric_handles_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, simulated_unmake);
}
