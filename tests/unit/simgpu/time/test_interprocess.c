/* Tests of events and semaphores that several processes use, each a child. The GPU has 64 MiB. */
#include "children.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "cuda/driver_more.h"

#define SPIN_US 150000ull

static void spin(CUstream stream, unsigned long long microseconds)
{
    CUmodule module;
    CUfunction function;
    void *arguments[] = {&microseconds};
    CHECK(cuModuleLoadData(&module, SIMULATED_PTX) == CUDA_SUCCESS);
    CHECK(cuModuleGetFunction(&function, module, "gs_spin_us") == CUDA_SUCCESS);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL) == CUDA_SUCCESS);
}

/* --- Events ---------------------------------------------------------------------------------------- */

static void event_maker(int line)
{
    CUevent event;
    CUipcEventHandle handle;
    CUstream stream;
    CHECK(use_gpu() && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(cuIpcGetEventHandle(&handle, event) == CUDA_SUCCESS);
    say(line, &handle, sizeof(handle));
    next(line); /* record it behind work that takes a while */
    spin(stream, SPIN_US);
    CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS && cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    done(line, true);
    next(line); /* both have seen it */
    done(line, cuEventSynchronize(event) == CUDA_SUCCESS && cuEventQuery(event) == CUDA_SUCCESS);
    next(line); /* the other has recorded it */
    done(line, cuEventQuery(event) == CUDA_ERROR_NOT_READY && cuEventSynchronize(event) == CUDA_SUCCESS &&
                   cuEventQuery(event) == CUDA_SUCCESS);
    next(line);
}

static void event_user(int line)
{
    CUevent event, behind;
    CUipcEventHandle handle, again;
    CUstream stream;
    float milliseconds;
    CHECK(use_gpu() && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    hear(line, &handle, sizeof(handle));
    CHECK(cuIpcOpenEventHandle(&event, handle) == CUDA_SUCCESS);
    CHECK(cuIpcGetEventHandle(&again, event) == CUDA_ERROR_INVALID_HANDLE);
    done(line, cuEventQuery(event) == CUDA_SUCCESS && cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS &&
                   cuStreamQuery(stream) == CUDA_SUCCESS); /* never recorded: nothing to wait for */
    next(line);
    CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS);
    CHECK(cuEventRecord(behind, stream) == CUDA_SUCCESS);
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY && cuEventQuery(behind) == CUDA_ERROR_NOT_READY);
    CHECK(cuEventSynchronize(behind) == CUDA_SUCCESS && cuEventQuery(event) == CUDA_SUCCESS);
    CHECK(cuEventElapsedTime(&milliseconds, event, event) == CUDA_ERROR_INVALID_HANDLE);
    done(line, true);
    next(line); /* record it here */
    spin(stream, SPIN_US);
    done(line, cuEventRecord(event, stream) == CUDA_SUCCESS && cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    next(line);
    done(line, cuEventDestroy_v2(event) == CUDA_SUCCESS);
}

static void an_event_is_recorded_in_one_process_and_waited_for_in_another(void **state)
{
    CUipcEventHandle handle;
    struct child maker = start(event_maker), user = start(event_user);
    assert_int_equal(recv(maker.line, &handle, sizeof(handle), 0), sizeof(handle));
    assert_int_equal(send(user.line, &handle, sizeof(handle), MSG_NOSIGNAL), sizeof(handle));
    char byte = 1;
    assert_int_equal(recv(user.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    step(maker);
    step(user);
    step(maker);
    step(user);
    step(maker);
    killed(maker);
    step(user); /* what was opened is used and destroyed, whatever becomes of its maker */
    killed(user);
}

static void event_misuser(int line)
{
    CUevent plain, event, opened;
    CUipcEventHandle handle, nothing = {{0}};
    CHECK(use_gpu());
    CHECK(cuEventCreate(&plain, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE); /* without timing only */
    CHECK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(cuIpcGetEventHandle(&handle, plain) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(cuIpcGetEventHandle(NULL, event) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcGetEventHandle(&handle, event) == CUDA_SUCCESS);
    CHECK(cuIpcOpenEventHandle(&opened, handle) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuIpcOpenEventHandle(&opened, nothing) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuCtxRecordEvent(NULL, event) != CUDA_SUCCESS);
    CHECK(cuEventDestroy_v2(event) == CUDA_SUCCESS);
    CHECK(cuIpcGetEventHandle(&handle, event) == CUDA_ERROR_INVALID_HANDLE);
    /* Their places are used again. */
    for (unsigned i = 0; i < 20000; i++) {
        CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        CHECK(cuEventRecord(event, NULL) == CUDA_SUCCESS && cuEventSynchronize(event) == CUDA_SUCCESS);
        CHECK(cuEventDestroy_v2(event) == CUDA_SUCCESS);
    }
}

static void events_that_are_not_for_it_are_not_shared(void **state)
{
    run(event_misuser);
}

/* --- Semaphores ------------------------------------------------------------------------------------ */

static CUexternalSemaphore import(int fd, CUexternalSemaphoreHandleType type)
{
    CUexternalSemaphore semaphore;
    const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC how = {.type = type, .handle.fd = dup(fd)};
    CHECK(cuImportExternalSemaphore(&semaphore, &how) == CUDA_SUCCESS);
    return semaphore;
}

static int file_of(_Atomic uint64_t **value)
{
    int fd = memfd_create("semaphore", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    *value = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(*value != MAP_FAILED);
    return fd;
}

static bool wait_for_stream(CUstream stream)
{
    return cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

static void timeline_user(int line)
{
    _Atomic uint64_t *value;
    CUstream stream;
    int fd = file_of(&value);
    CHECK(use_gpu() && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CUexternalSemaphore semaphore = import(fd, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD);
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.params.fence.value = 5};
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {.params.fence.value = 9};
    CHECK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream) == CUDA_SUCCESS);
    CHECK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY && atomic_load(value) == 0);
    atomic_store(value, 4);
    CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    atomic_store(value, 6); /* the other API's signal */
    CHECK(wait_for_stream(stream) && atomic_load(value) == 9);
    wait.params.fence.value = 9;
    CHECK(cuWaitExternalSemaphoresAsync_ptsz(&semaphore, &wait, 1, stream) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(stream) == CUDA_SUCCESS);
    spin(stream, SPIN_US);
    signal.params.fence.value = 10;
    CHECK(cuSignalExternalSemaphoresAsync_ptsz(&semaphore, &signal, 1, stream) == CUDA_SUCCESS);
    CHECK(atomic_load(value) == 9); /* behind the kernel */
    CHECK(wait_for_stream(stream) && atomic_load(value) == 10);
    CHECK(cuDestroyExternalSemaphore(semaphore) == CUDA_SUCCESS);
    CHECK(cuDestroyExternalSemaphore(semaphore) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream) == CUDA_ERROR_INVALID_HANDLE);
}

static void a_timeline_semaphore_is_waited_for_and_signalled_in_the_order_of_the_stream(void **state)
{
    run(timeline_user);
}

static void binary_user(int line)
{
    _Atomic uint64_t *value;
    CUstream waiting, signalling;
    int fd = file_of(&value);
    CHECK(use_gpu() && cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
          cuStreamCreate(&signalling, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CUexternalSemaphore semaphore = import(fd, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD);
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.flags = 0};
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {.flags = 0};
    for (unsigned round = 0; round < 3; round++) {
        CHECK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, waiting) == CUDA_SUCCESS);
        CHECK(cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY);
        CHECK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, signalling) == CUDA_SUCCESS);
        CHECK(wait_for_stream(waiting) && atomic_load(value) == 0); /* the wait took the signal */
    }
}

static void a_wait_for_a_binary_semaphore_takes_its_signal(void **state)
{
    run(binary_user);
}

static void semaphore_misuser(int line)
{
    CUexternalSemaphore semaphore;
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC how = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
                                               .handle.fd = -1};
    CHECK(use_gpu());
    CHECK(cuImportExternalSemaphore(&semaphore, &how) == CUDA_ERROR_INVALID_VALUE);
    how.handle.fd = memfd_create("too short", 0);
    CHECK(cuImportExternalSemaphore(&semaphore, &how) == CUDA_ERROR_INVALID_VALUE);
    how.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC;
    CHECK(cuImportExternalSemaphore(&semaphore, &how) == CUDA_ERROR_NOT_SUPPORTED);
    how.type = 0;
    CHECK(cuImportExternalSemaphore(&semaphore, &how) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDestroyExternalSemaphore(NULL) == CUDA_ERROR_INVALID_HANDLE);
}

static void what_is_not_a_semaphore_is_refused(void **state)
{
    run(semaphore_misuser);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=64MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_recorded_in_one_process_and_waited_for_in_another),
        cmocka_unit_test(events_that_are_not_for_it_are_not_shared),
        cmocka_unit_test(a_timeline_semaphore_is_waited_for_and_signalled_in_the_order_of_the_stream),
        cmocka_unit_test(a_wait_for_a_binary_semaphore_takes_its_signal),
        cmocka_unit_test(what_is_not_a_semaphore_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, simulated_unmake);
}
