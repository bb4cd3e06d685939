/* Tests of multicast objects of the simulated GPU, with real processes: each that touches a GPU is a child.
 * Two H100, 64 MiB each; contexts cost nothing. */
#include "children.h"

#define TOTAL (64 * MIB)
#define SIZE (8 * MIB)
#define SHARED CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static CUmemGenericAllocationHandle object_of(unsigned devices, unsigned long long types)
{
    CUmemGenericAllocationHandle object;
    const CUmulticastObjectProp how = {.numDevices = devices, .size = SIZE, .handleTypes = types};
    CHECK(cuMulticastCreate(&object, &how) == CUDA_SUCCESS);
    return object;
}

static CUmemGenericAllocationHandle memory_of(int device, unsigned types)
{
    CUmemGenericAllocationHandle memory;
    const CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .requestedHandleTypes = types,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CHECK(cuMemCreate(&memory, SIZE, &how, 0) == CUDA_SUCCESS);
    return memory;
}

static size_t free_now(void)
{
    size_t free_now, total;
    CHECK(cuMemGetInfo_v2(&free_now, &total) == CUDA_SUCCESS);
    return free_now;
}

static void binds(int line)
{
    size_t granularity;
    const CUmulticastObjectProp how = {.numDevices = 1, .size = SIZE};
    CHECK(use_gpu());
    CHECK(cuMulticastGetGranularity(&granularity, &how, CU_MULTICAST_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    CHECK(SIZE % granularity == 0);
    CUmemGenericAllocationHandle object = object_of(1, 0), memory = memory_of(0, 0), other = memory_of(1, 0);
    CHECK(cuMulticastAddDevice(object, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastAddDevice(object, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastAddDevice(object, 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(object, 0, other, 0, SIZE, 0) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(cuMulticastBindMem(object, granularity, memory, 0, SIZE, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, granularity / 2, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(object, 0, object, 0, SIZE, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(memory, 0, memory, 0, SIZE, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, granularity, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastBindMem(object, 0, memory, granularity, granularity, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(object, granularity, memory, granularity, granularity, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastUnbind(object, 0, 0, granularity / 2) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastUnbind(object, 0, 0, 2 * granularity) == CUDA_SUCCESS);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, SIZE, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastUnbind(object, 0, 0, granularity) == CUDA_ERROR_INVALID_VALUE);
}

static void memory_is_bound_in_whole_granules_on_devices_of_the_team(void **state)
{
    run(binds);
}

static void holds(int line)
{
    CHECK(use_gpu());
    CUmemGenericAllocationHandle object = object_of(1, 0), memory = memory_of(0, 0);
    CHECK(free_now() == TOTAL - SIZE); /* the object itself takes nothing */
    CHECK(cuMulticastAddDevice(object, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, SIZE, 0) == CUDA_SUCCESS);
    CHECK(cuMemRelease(memory) == CUDA_SUCCESS);
    CHECK(free_now() == TOTAL - SIZE);
    CHECK(cuMulticastUnbind(object, 0, 0, SIZE) == CUDA_SUCCESS);
    CHECK(free_now() == TOTAL);
    memory = memory_of(0, 0);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, SIZE, 0) == CUDA_SUCCESS);
    CHECK(cuMemRelease(memory) == CUDA_SUCCESS);
    CHECK(cuMemRelease(object) == CUDA_SUCCESS);
    CHECK(free_now() == TOTAL);
    CHECK(cuMulticastUnbind(object, 0, 0, SIZE) == CUDA_ERROR_INVALID_VALUE);
}

static void what_is_bound_stays_until_it_is_unbound_or_the_object_ends(void **state)
{
    run(holds);
}

static void maps(int line)
{
    CUdeviceptr there, here;
    CHECK(use_gpu());
    CUmemGenericAllocationHandle object = object_of(1, 0), memory = memory_of(0, 0);
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMulticastAddDevice(object, 0) == CUDA_SUCCESS);
    CHECK(cuMemAddressReserve(&here, SIZE, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(here, SIZE, 0, memory, 0) == CUDA_SUCCESS);
    CHECK(cuMemRelease(memory) == CUDA_SUCCESS);
    CHECK(cuMulticastBindAddr(object, 0, here, SIZE, 0) == CUDA_SUCCESS);
    CHECK(cuMemUnmap(here, SIZE) == CUDA_SUCCESS);
    CHECK(free_now() == TOTAL - SIZE);
    CHECK(cuMemAddressReserve(&there, SIZE, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(there, SIZE, 0, object, 0) == CUDA_SUCCESS);
    CHECK(cuMemSetAccess(there, SIZE, &access, 1) == CUDA_SUCCESS);
    CHECK(cuMemsetD8_v2(there, 1, 1) == CUDA_ERROR_INVALID_VALUE); /* for multimem instructions only */
    CHECK(cuMemRelease(object) == CUDA_SUCCESS);
    CHECK(free_now() == TOTAL - SIZE); /* the mapping holds the object, that the binding, that the memory */
    CHECK(cuMemUnmap(there, SIZE) == CUDA_SUCCESS);
    CHECK(free_now() == TOTAL);
}

static void an_object_lives_as_long_as_it_is_mapped(void **state)
{
    run(maps);
}

static void member(int line)
{
    CUmemGenericAllocationHandle object;
    next(line);
    int fd = hear_fd(line);
    CHECK(use_gpu());
    CHECK(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)fd, SHARED) == CUDA_SUCCESS);
    done(line, true);
    next(line);
    CHECK(cuMulticastAddDevice(object, 1) == CUDA_SUCCESS);
    CUmemGenericAllocationHandle unshared = memory_of(1, 0), memory = memory_of(1, SHARED);
    CHECK(cuMulticastBindMem(object, 0, unshared, 0, SIZE, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, SIZE, 0) == CUDA_SUCCESS);
    done(line, true);
    next(line);
}

static void maker(int line)
{
    int fd;
    CHECK(use_gpu());
    CUmemGenericAllocationHandle object = object_of(2, SHARED), memory = memory_of(0, SHARED);
    CHECK(cuMemExportToShareableHandle(&fd, object, SHARED, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastAddDevice(object, 0) == CUDA_SUCCESS);
    say_fd(line, fd);
    next(line);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, SIZE, 0) == CUDA_SUCCESS); /* waits for the other device */
    done(line, true);
    next(line);
}

static void binding_waits_until_every_process_of_the_team_has_added_its_device(void **state)
{
    struct child first = start(maker), second = start(member);
    char byte = 's';
    int fd = hear_fd(first.line);
    assert_true(fd >= 0);
    assert_int_equal(send(second.line, &byte, 1, MSG_NOSIGNAL), 1);
    say_fd(second.line, fd);
    close(fd);
    assert_int_equal(recv(second.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    assert_int_equal(send(first.line, &byte, 1, MSG_NOSIGNAL), 1);
    usleep(20000); /* long enough for a bind that does not wait to answer */
    assert_int_equal(recv(first.line, &byte, 1, MSG_DONTWAIT), -1);
    step(second);
    assert_int_equal(recv(first.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    killed(first);
    killed(second);
    assert_int_equal(free_bytes(), TOTAL);
}

static void other_card(int line)
{
    CUmemGenericAllocationHandle object;
    const CUmulticastObjectProp how = {.numDevices = 1, .size = SIZE};
    int supported = 1;
    setenv("FAKECUDA_DEVICE", "t4", 1);
    char name[64];
    snprintf(name, sizeof(name), "test-%d", (int)getpid());
    setenv("FAKECUDA_NAME", name, 1);
    CHECK(use_gpu());
    simulated_remove();
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0) == CUDA_SUCCESS &&
          !supported);
    CHECK(cuMulticastCreate(&object, &how) == CUDA_ERROR_NOT_SUPPORTED);
}

static void cards_without_multicast_say_so(void **state)
{
    run(other_card);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", "FAKECUDA_GPUS=2",
                                "FAKECUDA_DEVICE=h100", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_bound_in_whole_granules_on_devices_of_the_team),
        cmocka_unit_test(what_is_bound_stays_until_it_is_unbound_or_the_object_ends),
        cmocka_unit_test(an_object_lives_as_long_as_it_is_mapped),
        cmocka_unit_test(binding_waits_until_every_process_of_the_team_has_added_its_device),
        cmocka_unit_test(cards_without_multicast_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, simulated_unmake);
}
