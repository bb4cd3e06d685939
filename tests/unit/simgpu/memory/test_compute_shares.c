/* Tests of memory that several processes hold: it is counted once, until the last of them is gone. This
 * process never touches the GPU itself; it passes descriptors and handles between its children. */
#include "children.h"

#include <sys/mman.h>

#define TOTAL (64 * MIB)
#define BYTES (8 * MIB)

/* --- VMM handles as descriptors -------------------------------------------------------------------- */

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .requestedHandleTypes =
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle)
{
    CUmemAccessDesc access = {shareable.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr pointer = 0;
    if (cuMemAddressReserve(&pointer, BYTES, 0, 0, 0) || cuMemMap(pointer, BYTES, 0, handle, 0) ||
        cuMemSetAccess(pointer, BYTES, &access, 1))
        return 0;
    return pointer;
}

static void export_memory(int line)
{
    CUmemGenericAllocationHandle handle;
    int fd;
    if (!use_gpu() || cuMemCreate(&handle, BYTES, &shareable, 0) != CUDA_SUCCESS)
        _exit(1);
    CUdeviceptr pointer = mapped(handle);
    if (!pointer || cuMemsetD32_v2(pointer, 41, 10) != CUDA_SUCCESS ||
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
            CUDA_SUCCESS)
        _exit(2);
    say_fd(line, fd);
    close(fd);
    next(line);
    /* All that we have ourselves goes; what others have stays. */
    done(line, cuMemUnmap(pointer, BYTES) == CUDA_SUCCESS && cuMemRelease(handle) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static void import_memory(int line)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    unsigned value = 0;
    if (!use_gpu())
        _exit(1);
    int fd = hear_fd(line);
    CUresult result = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    CUdeviceptr pointer = result == CUDA_SUCCESS ? mapped(handle) : 0;
    done(line, pointer && cuMemcpyDtoH_v2(&value, pointer + 36, 4) == CUDA_SUCCESS && value == 41 &&
                   cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS &&
                   properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    next(line);
    done(line, cuMemUnmap(pointer, BYTES) == CUDA_SUCCESS && cuMemRelease(handle) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static struct child importer(int fd)
{
    struct child child = start(import_memory);
    char byte = 1;
    say_fd(child.line, fd);
    assert_int_equal(recv(child.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    return child;
}

static void exported_memory_is_counted_once_until_its_last_holder_dies(void **state)
{
    struct child maker = start(export_memory);
    int fd = hear_fd(maker.line);
    assert_true(fd >= 0);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    struct child first = importer(fd), second = importer(fd);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    killed(maker);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    killed(first);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    killed(second);
    /* The descriptor alone, in no process that uses the GPU. */
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    struct child third = importer(fd);
    close(fd);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(third);
    assert_int_equal(free_bytes(), TOTAL);
    killed(third);
}

static void exported_memory_goes_when_all_let_go_of_it(void **state)
{
    struct child maker = start(export_memory);
    int fd = hear_fd(maker.line);
    struct child other = importer(fd);
    step(maker);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(other);
    assert_int_equal(free_bytes(), TOTAL - BYTES); /* the descriptor */
    close(fd);
    assert_int_equal(free_bytes(), TOTAL);
    killed(maker);
    killed(other);
    assert_int_equal(free_bytes(), TOTAL);
}

static void wrong_descriptors(int line)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp own = shareable;
    int fd = -1;
    own.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    done(line,
         use_gpu() &&
             cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)line, 1) == CUDA_ERROR_INVALID_VALUE &&
             cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)-1, 1) == CUDA_ERROR_INVALID_VALUE &&
             cuMemCreate(&handle, BYTES, &own, 0) == CUDA_SUCCESS &&
             cuMemExportToShareableHandle(&fd, handle, 1, 0) == CUDA_ERROR_INVALID_VALUE &&
             cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
                 CUDA_ERROR_NOT_SUPPORTED);
}

static void what_is_not_shareable_memory_is_refused(void **state)
{
    struct child child = start(wrong_descriptors);
    char byte = 1;
    assert_int_equal(recv(child.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    close(child.line);
}

/* --- External memory ------------------------------------------------------------------------------- */

static void import_external(int line)
{
    CUexternalMemory memory;
    CUdeviceptr pointer = 0;
    unsigned value = 0;
    if (!use_gpu())
        _exit(1);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC descriptor = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = hear_fd(line), .size = BYTES};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 4096, .size = BYTES - 4096};
    done(line, cuImportExternalMemory(&memory, &descriptor) == CUDA_SUCCESS &&
                   cuExternalMemoryGetMappedBuffer(&pointer, memory, &buffer) == CUDA_SUCCESS &&
                   cuMemsetD32_v2(pointer, 7, 10) == CUDA_SUCCESS &&
                   cuMemcpyDtoH_v2(&value, pointer, 4) == CUDA_SUCCESS && value == 7);
    next(line);
    /* The buffer outlives the import. */
    done(line, cuDestroyExternalMemory(memory) == CUDA_SUCCESS &&
                   cuDestroyExternalMemory(memory) == CUDA_ERROR_INVALID_HANDLE &&
                   cuMemsetD32_v2(pointer, 8, 10) == CUDA_SUCCESS);
    next(line);
    done(line, cuMemFree_v2(pointer) == CUDA_SUCCESS && cuMemFree_v2(pointer) == CUDA_ERROR_INVALID_VALUE);
    for (;;)
        pause();
}

static void external_memory_is_counted_with_its_holders_until_its_buffers_go(void **state)
{
    struct child maker = start(export_memory);
    int fd = hear_fd(maker.line);
    struct child user = start(import_external);
    char byte = 1;
    say_fd(user.line, fd);
    close(fd);
    assert_int_equal(recv(user.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    killed(maker);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(user);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(user);
    assert_int_equal(free_bytes(), TOTAL);
    killed(user);
}

static void a_plain_file_as_external_memory_takes_nothing_of_the_device(void **state)
{
    int fd = memfd_create("plain", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    struct child user = start(import_external);
    char byte = 1;
    say_fd(user.line, fd);
    assert_int_equal(recv(user.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    assert_int_equal(free_bytes(), TOTAL);
    unsigned value = 0;
    assert_int_equal(pread(fd, &value, 4, 4096), 4);
    assert_int_equal(value, 7);
    close(fd);
    killed(user);
}

/* --- Memory of cuMemAlloc by handle ---------------------------------------------------------------- */

static void get_ipc(int line)
{
    CUdeviceptr pointer, small;
    CUipcMemHandle handle;
    unsigned value = 0;
    if (!use_gpu() || cuMemAlloc_v2(&small, 1000) || cuMemAlloc_v2(&pointer, BYTES) ||
        cuMemsetD32_v2(pointer, 5, BYTES / 4) || cuIpcGetMemHandle(&handle, pointer) || cuMemFree_v2(small))
        _exit(1);
    say(line, &handle, sizeof(handle));
    CUdeviceptr own;
    if (cuIpcOpenMemHandle_v2(&own, handle, 1) != CUDA_ERROR_INVALID_CONTEXT)
        _exit(2);
    next(line);
    done(line, cuMemcpyDtoH_v2(&value, pointer, 4) == CUDA_SUCCESS && value == 6);
    next(line);
    CUdeviceptr again;
    /* Whoever has opened it goes on with it; what we take now is other memory. */
    done(line, cuMemFree_v2(pointer) == CUDA_SUCCESS && cuMemFree_v2(pointer) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemAlloc_v2(&again, BYTES) == CUDA_SUCCESS &&
                   cuMemsetD32_v2(again, 99, BYTES / 4) == CUDA_SUCCESS &&
                   cuMemFree_v2(again) == CUDA_SUCCESS);
    for (;;)
        pause();
}

/* Only the context that has opened memory of another process opens more of it on its device. */
static bool is_refused_to_another_context(CUipcMemHandle handle)
{
    CUcontext other = NULL, first;
    CUdeviceptr pointer = 1;
    bool is_refused = cuCtxGetCurrent(&first) == CUDA_SUCCESS &&
                      cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS &&
                      cuIpcOpenMemHandle_v2(&pointer, handle, 1) == CUDA_ERROR_MAP_FAILED && pointer == 1;
    return cuCtxDestroy_v2(other) == CUDA_SUCCESS && cuCtxSetCurrent(first) == CUDA_SUCCESS && is_refused;
}

static void open_ipc(int line)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer = 0, same = 1;
    unsigned value = 0;
    if (!use_gpu())
        _exit(1);
    hear(line, &handle, sizeof(handle));
    done(line, cuIpcOpenMemHandle_v2(&pointer, handle, 0) == CUDA_ERROR_INVALID_VALUE &&
                   cuIpcOpenMemHandle_v2(&pointer, handle, 1) == CUDA_SUCCESS &&
                   cuIpcOpenMemHandle(&same, handle, 1) == CUDA_SUCCESS && same == pointer &&
                   cuMemcpyDtoH_v2(&value, pointer + BYTES - 4, 4) == CUDA_SUCCESS && value == 5 &&
                   cuMemsetD32_v2(pointer, 6, BYTES / 4) == CUDA_SUCCESS &&
                   cuMemFree_v2(pointer) == CUDA_ERROR_INVALID_VALUE);
    next(line);
    done(line, cuMemcpyDtoH_v2(&value, pointer, 4) == CUDA_SUCCESS && value == 6);
    next(line);
    done(line, is_refused_to_another_context(handle) && cuIpcCloseMemHandle(pointer) == CUDA_SUCCESS &&
                   cuIpcCloseMemHandle(pointer) == CUDA_SUCCESS &&
                   cuIpcCloseMemHandle(pointer) == CUDA_ERROR_INVALID_VALUE);
    for (;;)
        pause();
}

static struct child opener(const CUipcMemHandle *handle)
{
    struct child child = start(open_ipc);
    char byte = 1;
    assert_int_equal(send(child.line, handle, sizeof(*handle), MSG_NOSIGNAL), sizeof(*handle));
    assert_int_equal(recv(child.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    return child;
}

static struct child exporter(CUipcMemHandle *handle)
{
    struct child child = start(get_ipc);
    assert_int_equal(recv(child.line, handle, sizeof(*handle), 0), sizeof(*handle));
    return child;
}

static void opened_memory_is_the_exporter_s_and_counted_once(void **state)
{
    CUipcMemHandle handle;
    struct child maker = exporter(&handle);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    struct child first = opener(&handle);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(maker); /* it sees what the other wrote */
    step(first);
    step(first); /* closed */
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(maker); /* freed */
    assert_int_equal(free_bytes(), TOTAL);
    killed(maker);
    killed(first);
}

static void opened_memory_outlives_its_exporter(void **state)
{
    CUipcMemHandle handle;
    struct child maker = exporter(&handle);
    struct child first = opener(&handle);
    killed(maker);
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(first);
    killed(first);
    assert_int_equal(free_bytes(), TOTAL);
}

static void memory_that_is_freed_but_open_stays_as_it_is(void **state)
{
    CUipcMemHandle handle;
    struct child maker = exporter(&handle);
    struct child first = opener(&handle);
    step(maker);
    step(maker); /* freed, and other memory overwritten */
    assert_int_equal(free_bytes(), TOTAL - BYTES);
    step(first); /* its bytes are there */
    step(first); /* closed */
    assert_int_equal(free_bytes(), TOTAL);
    killed(maker);
    killed(first);
}

static int begin(void **state)
{
    simulated_remove();
    return 0;
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(exported_memory_is_counted_once_until_its_last_holder_dies, begin),
        cmocka_unit_test_setup(exported_memory_goes_when_all_let_go_of_it, begin),
        cmocka_unit_test_setup(what_is_not_shareable_memory_is_refused, begin),
        cmocka_unit_test_setup(external_memory_is_counted_with_its_holders_until_its_buffers_go, begin),
        cmocka_unit_test_setup(a_plain_file_as_external_memory_takes_nothing_of_the_device, begin),
        cmocka_unit_test_setup(opened_memory_is_the_exporter_s_and_counted_once, begin),
        cmocka_unit_test_setup(opened_memory_outlives_its_exporter, begin),
        cmocka_unit_test_setup(memory_that_is_freed_but_open_stays_as_it_is, begin),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
