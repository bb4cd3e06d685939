/* Tests of pools' memory that several processes hold: it is counted once, until the last of them is gone.
 * This process never touches the GPU itself; it passes descriptors and pointers between its children. */
#include "children.h"

#define TOTAL (64 * MIB)
#define BYTES (8 * MIB)
#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static const CUmemPoolProps shareable = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .handleTypes = POSIX_FD,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

/* What goes on to importers. */
struct offer {
    CUmemPoolPtrExportData big, small;
};

static void export_pool(int line)
{
    CUmemoryPool pool;
    CUdeviceptr big, small, again[4];
    struct offer offer;
    unsigned value = 0;
    int fd;
    if (!use_gpu() || cuMemPoolCreate(&pool, &shareable) != CUDA_SUCCESS ||
        cuMemAllocFromPoolAsync(&big, BYTES, pool, NULL) != CUDA_SUCCESS ||
        cuMemAllocFromPoolAsync(&small, 1000, pool, NULL) != CUDA_SUCCESS ||
        cuMemsetD32_v2(big, 41, BYTES / 4) != CUDA_SUCCESS || cuMemsetD32_v2(small, 43, 250) != CUDA_SUCCESS)
        _exit(1);
    if (cuMemPoolExportToShareableHandle(&fd, pool, POSIX_FD, 0) != CUDA_SUCCESS ||
        cuMemPoolExportPointer(&offer.big, big) != CUDA_SUCCESS ||
        cuMemPoolExportPointer(&offer.small, small) != CUDA_SUCCESS)
        _exit(2);
    say_fd(line, fd);
    close(fd);
    say(line, &offer, sizeof(offer));
    next(line);
    done(line, cuMemcpyDtoH_v2(&value, big, 4) == CUDA_SUCCESS && value == 42);
    next(line);
    /* Whoever has imported it goes on with it; what we take now is other memory. */
    bool well = cuMemFreeAsync(big, NULL) == CUDA_SUCCESS && cuMemFree_v2(small) == CUDA_SUCCESS &&
                cuMemFree_v2(big) == CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < 4; i++)
        well = well && cuMemAllocFromPoolAsync(&again[i], 1000, pool, NULL) == CUDA_SUCCESS &&
               cuMemsetD32_v2(again[i], 99, 250) == CUDA_SUCCESS;
    well = well && cuMemAllocFromPoolAsync(&big, BYTES, pool, NULL) == CUDA_SUCCESS &&
           cuMemsetD32_v2(big, 99, BYTES / 4) == CUDA_SUCCESS && cuMemFreeAsync(big, NULL) == CUDA_SUCCESS;
    done(line, well && cuCtxSynchronize() == CUDA_SUCCESS);
    next(line);
    for (unsigned i = 0; i < 4; i++)
        well = well && cuMemFreeAsync(again[i], NULL) == CUDA_SUCCESS;
    done(line,
         well && cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static void import_pool(int line)
{
    CUmemoryPool pool = NULL;
    CUdeviceptr big = 0, small = 0, other;
    CUmemPoolPtrExportData no_more;
    struct offer offer;
    unsigned value = 0, little = 0;
    if (!use_gpu())
        _exit(1);
    int fd = hear_fd(line);
    hear(line, &offer, sizeof(offer));
    CUresult result = cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX_FD, 0);
    close(fd);
    done(line, result == CUDA_SUCCESS && cuMemPoolImportPointer(&big, pool, &offer.big) == CUDA_SUCCESS &&
                   cuMemPoolImportPointer(&small, pool, &offer.small) == CUDA_SUCCESS &&
                   cuMemcpyDtoH_v2(&value, big + BYTES - 4, 4) == CUDA_SUCCESS && value >= 41 &&
                   cuMemcpyDtoH_v2(&little, small, 4) == CUDA_SUCCESS && little == 43 &&
                   cuMemsetD32_v2(big, 42, BYTES / 4) == CUDA_SUCCESS &&
                   /* It stands for another process's: nothing is taken from it or exported again. */
                   cuMemAllocFromPoolAsync(&other, 512, pool, NULL) == CUDA_ERROR_INVALID_VALUE &&
                   cuDeviceSetMemPool(0, pool) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemPoolExportPointer(&no_more, big) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemPoolExportToShareableHandle(&fd, pool, POSIX_FD, 0) == CUDA_ERROR_INVALID_VALUE);
    next(line);
    done(line, cuMemcpyDtoH_v2(&value, big, 4) == CUDA_SUCCESS && value == 42 &&
                   cuMemcpyDtoH_v2(&little, small + 996, 4) == CUDA_SUCCESS && little == 43);
    next(line);
    /* Pointers outlive the pool that they came through. */
    done(line, cuMemPoolDestroy(pool) == CUDA_SUCCESS &&
                   cuMemPoolImportPointer(&other, pool, &offer.big) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemFree_v2(big + 512) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemFreeAsync(big, NULL) == CUDA_SUCCESS && cuMemFree_v2(small) == CUDA_SUCCESS &&
                   cuMemFree_v2(big) == CUDA_ERROR_INVALID_VALUE &&
                   cuMemFreeAsync(small, NULL) == CUDA_ERROR_INVALID_VALUE);
    for (;;)
        pause();
}

static void export_host_pool(int line)
{
    CUmemPoolProps on_host = shareable;
    CUmemoryPool pool;
    CUdeviceptr kept = 0, next_one;
    CUmemPoolPtrExportData data;
    int fd = -1;
    on_host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (!use_gpu() || cuMemPoolCreate(&pool, &on_host) != CUDA_SUCCESS ||
        cuMemAllocFromPoolAsync(&kept, BYTES, pool, NULL) != CUDA_SUCCESS ||
        cuMemPoolExportToShareableHandle(&fd, pool, POSIX_FD, 0) != CUDA_SUCCESS ||
        cuMemPoolExportPointer(&data, kept) != CUDA_SUCCESS)
        _exit(1);
    *(volatile unsigned *)(uintptr_t)kept = 41;
    say_fd(line, fd);
    close(fd);
    say(line, &data, sizeof(data));
    next(line);
    bool well = cuMemFreeAsync(kept, NULL) == CUDA_SUCCESS &&
                cuMemAllocFromPoolAsync(&next_one, BYTES, pool, NULL) == CUDA_SUCCESS && next_one != kept;
    if (well)
        *(volatile unsigned *)(uintptr_t)next_one = 99;
    done(line, well);
    /* What nobody has imported is used again. */
    next(line);
    for (unsigned i = 0; i < 1000 && well; i++)
        well = cuMemPoolExportPointer(&data, next_one) == CUDA_SUCCESS &&
               cuMemFreeAsync(next_one, NULL) == CUDA_SUCCESS &&
               cuMemAllocFromPoolAsync(&next_one, BYTES, pool, NULL) == CUDA_SUCCESS;
    done(line, well);
    for (;;)
        pause();
}

static void import_host_pool(int line)
{
    CUmemoryPool pool = NULL;
    CUdeviceptr pointer = 0;
    CUmemPoolPtrExportData data;
    CUmemorytype type = 0;
    int fd = hear_fd(line);
    hear(line, &data, sizeof(data));
    if (!use_gpu() ||
        cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX_FD, 0) != CUDA_SUCCESS ||
        cuMemPoolImportPointer(&pointer, pool, &data) != CUDA_SUCCESS ||
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) != CUDA_SUCCESS)
        _exit(1);
    done(line, type == CU_MEMORYTYPE_HOST && *(volatile unsigned *)(uintptr_t)pointer == 41);
    next(line);
    done(line,
         *(volatile unsigned *)(uintptr_t)pointer == 41 && cuMemFreeAsync(pointer, NULL) == CUDA_SUCCESS);
    for (;;)
        pause();
}

static void expect_well(struct child child)
{
    char byte = 1;
    assert_int_equal(recv(child.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
}

static struct child exporter(int *fd, struct offer *offer)
{
    struct child child = start(export_pool);
    *fd = hear_fd(child.line);
    assert_true(*fd >= 0);
    assert_int_equal(recv(child.line, offer, sizeof(*offer), 0), sizeof(*offer));
    return child;
}

static struct child importer(int fd, const struct offer *offer)
{
    struct child child = start(import_pool);
    say_fd(child.line, fd);
    say(child.line, offer, sizeof(*offer));
    expect_well(child);
    return child;
}

/* The exporter's pool: 8 MiB, and a step of 2 MiB of which 1024 bytes are used. */
#define POOL (BYTES + 2 * MIB)
#define SHARED (BYTES + 1024)

static void imported_pointers_are_the_exporter_s_memory_counted_once(void **state)
{
    struct offer offer;
    int fd;
    struct child maker = exporter(&fd, &offer);
    assert_int_equal(free_bytes(), TOTAL - POOL);
    struct child first = importer(fd, &offer), second = importer(fd, &offer);
    assert_int_equal(free_bytes(), TOTAL - POOL);
    step(maker); /* it sees what the others wrote */
    step(first);
    step(first); /* freed */
    killed(second);
    assert_int_equal(free_bytes(), TOTAL - POOL);
    killed(maker);
    close(fd);
    assert_int_equal(free_bytes(), TOTAL);
    killed(first);
}

static void imported_memory_outlives_its_killed_exporter(void **state)
{
    struct offer offer;
    int fd;
    struct child maker = exporter(&fd, &offer);
    struct child first = importer(fd, &offer);
    killed(maker);
    assert_int_equal(free_bytes(), TOTAL - SHARED);
    /* As long as somebody holds it, others can import it too. */
    struct child second = importer(fd, &offer);
    assert_int_equal(free_bytes(), TOTAL - SHARED);
    step(first);
    killed(first);
    assert_int_equal(free_bytes(), TOTAL - SHARED);
    step(second);
    step(second);
    assert_int_equal(free_bytes(), TOTAL);
    killed(second);
    close(fd);
}

static void memory_freed_by_its_exporter_stays_as_it_is_while_imported(void **state)
{
    struct offer offer;
    int fd;
    struct child maker = exporter(&fd, &offer);
    struct child first = importer(fd, &offer);
    step(maker);
    step(maker); /* freed, and other memory overwritten */
    assert_int_equal(free_bytes(), TOTAL - SHARED - 2 * MIB);
    step(first); /* its bytes are there */
    step(maker); /* all that the maker has goes */
    assert_int_equal(free_bytes(), TOTAL - SHARED);
    step(first);
    assert_int_equal(free_bytes(), TOTAL);
    killed(maker);
    killed(first);
    close(fd);
}

static void import_nothing(int line)
{
    CUmemoryPool pool;
    CUdeviceptr pointer;
    struct offer offer;
    if (!use_gpu())
        _exit(1);
    int fd = hear_fd(line);
    hear(line, &offer, sizeof(offer));
    CUresult result = cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX_FD, 0);
    close(fd);
    done(line, result == CUDA_SUCCESS &&
                   cuMemPoolImportPointer(&pointer, pool, &offer.big) == CUDA_ERROR_INVALID_VALUE);
    for (;;)
        pause();
}

static void what_nobody_holds_any_more_is_not_imported(void **state)
{
    struct offer offer;
    int fd;
    struct child maker = exporter(&fd, &offer);
    killed(maker);
    assert_int_equal(free_bytes(), TOTAL);
    struct child late = start(import_nothing);
    say_fd(late.line, fd);
    say(late.line, &offer, sizeof(offer));
    expect_well(late);
    assert_int_equal(free_bytes(), TOTAL);
    killed(late);
    close(fd);
}

static void wrong_pools(int line)
{
    CUmemoryPool pool, other, imported, own;
    CUdeviceptr pointer, taken;
    CUmemPoolPtrExportData data, nothing = {{0}};
    CUmemPoolProps properties = shareable;
    int fd = -1;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    done(line,
         use_gpu() && cuDeviceGetDefaultMemPool(&own, 0) == CUDA_SUCCESS &&
             cuMemPoolExportToShareableHandle(&fd, own, POSIX_FD, 0) == CUDA_ERROR_INVALID_VALUE &&
             cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS &&
             cuMemPoolExportToShareableHandle(&fd, pool, POSIX_FD, 0) == CUDA_ERROR_INVALID_VALUE &&
             cuMemAllocFromPoolAsync(&pointer, 512, pool, NULL) == CUDA_SUCCESS &&
             cuMemPoolExportPointer(&data, pointer) == CUDA_ERROR_INVALID_VALUE &&
             cuMemPoolCreate(&pool, &shareable) == CUDA_SUCCESS &&
             cuMemPoolCreate(&other, &shareable) == CUDA_SUCCESS &&
             cuMemPoolExportToShareableHandle(&fd, pool, POSIX_FD, 1) == CUDA_ERROR_INVALID_VALUE &&
             cuMemPoolExportToShareableHandle(&fd, pool, 0, 0) == CUDA_ERROR_INVALID_VALUE &&
             cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
                 CUDA_ERROR_NOT_SUPPORTED &&
             cuMemPoolExportToShareableHandle(&fd, other, POSIX_FD, 0) == CUDA_SUCCESS &&
             cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)line, POSIX_FD, 0) ==
                 CUDA_ERROR_INVALID_VALUE &&
             cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)fd, POSIX_FD, 0) ==
                 CUDA_SUCCESS &&
             cuMemAllocFromPoolAsync(&pointer, 512, pool, NULL) == CUDA_SUCCESS &&
             cuMemPoolExportPointer(&data, pointer + 256) == CUDA_ERROR_INVALID_VALUE &&
             cuMemPoolExportPointer(&data, pointer) == CUDA_SUCCESS &&
             cuMemPoolImportPointer(&taken, imported, &data) == CUDA_ERROR_INVALID_VALUE && /* another's */
             cuMemPoolImportPointer(&taken, imported, &nothing) == CUDA_ERROR_INVALID_VALUE &&
             cuMemPoolImportPointer(&taken, other, &data) == CUDA_ERROR_INVALID_VALUE);
}

static void what_cannot_be_shared_is_refused(void **state)
{
    struct child child = start(wrong_pools);
    expect_well(child);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    close(child.line);
}

static int begin(void **state)
{
    simulated_remove();
    return 0;
}

static void memory_of_a_host_pool_goes_to_another_process_and_takes_nothing_of_a_gpu(void **state)
{
    CUmemPoolPtrExportData data;
    struct child maker = start(export_host_pool), taker = start(import_host_pool);
    int fd = hear_fd(maker.line);
    assert_int_equal(recv(maker.line, &data, sizeof(data), 0), sizeof(data));
    say_fd(taker.line, fd);
    close(fd);
    say(taker.line, &data, sizeof(data));
    expect_well(taker);
    assert_int_equal(free_bytes(), TOTAL);
    step(maker);
    step(taker);
    step(maker);
    assert_int_equal(free_bytes(), TOTAL);
    killed(taker);
    killed(maker);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_host_pool_goes_to_another_process_and_takes_nothing_of_a_gpu),
        cmocka_unit_test_setup(imported_pointers_are_the_exporter_s_memory_counted_once, begin),
        cmocka_unit_test_setup(imported_memory_outlives_its_killed_exporter, begin),
        cmocka_unit_test_setup(memory_freed_by_its_exporter_stays_as_it_is_while_imported, begin),
        cmocka_unit_test_setup(what_nobody_holds_any_more_is_not_imported, begin),
        cmocka_unit_test_setup(what_cannot_be_shared_is_refused, begin),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
