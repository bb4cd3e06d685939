/* Tests of streams that wait for values in memory and write them. */
#include "simulated.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

static CUcontext context;
static CUmodule module;

static CUstream stream(void)
{
    CUstream made;
    assert_cuda(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static CUdeviceptr word(void)
{
    CUdeviceptr made;
    assert_cuda(cuMemAlloc_v2(&made, 8));
    assert_cuda(cuMemsetD32_v2(made, 0, 2));
    return made;
}

static void spin(CUstream on, unsigned long long microseconds)
{
    CUfunction function;
    void *arguments[] = {&microseconds};
    assert_cuda(cuModuleGetFunction(&function, module, "gs_spin_us"));
    assert_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, arguments, NULL));
}

static void a_wait_that_is_satisfied_holds_nothing_back(void **state)
{
    CUstream waiting = stream();
    CUdeviceptr at = word();
    assert_cuda(cuMemsetD32_v2(at, 5, 1));
    assert_cuda(cuStreamWaitValue32_v2(waiting, at, 5, CU_STREAM_WAIT_VALUE_EQ));
    assert_cuda(cuStreamWaitValue32_v2(waiting, at, 4, CU_STREAM_WAIT_VALUE_GEQ));
    assert_cuda(cuStreamWaitValue32_v2(waiting, at, 1, CU_STREAM_WAIT_VALUE_AND));
    assert_cuda(cuStreamWaitValue32_v2(waiting, at, 1, CU_STREAM_WAIT_VALUE_NOR));
    /* Half the range behind is "at least" too: the comparison is cyclic. */
    assert_cuda(cuStreamWaitValue32_v2(waiting, at, 0x90000000u, CU_STREAM_WAIT_VALUE_GEQ));
    assert_cuda(cuStreamQuery(waiting));
}

static void a_wait_is_released_by_a_store_of_the_host(void **state)
{
    CUstream waiting = stream(), other = stream();
    CUevent behind;
    void *host;
    assert_cuda(cuMemHostAlloc(&host, 4096, 0));
    memset(host, 0, 4096);
    assert_cuda(cuEventCreate(&behind, 0));
    assert_cuda(cuStreamWaitValue64_v2(waiting, (CUdeviceptr)(uintptr_t)host, 7, CU_STREAM_WAIT_VALUE_EQ));
    spin(waiting, 1);
    assert_cuda(cuEventRecord(behind, waiting));
    spin(other, 1);
    assert_cuda(cuStreamSynchronize(other)); /* other streams go on */
    assert_int_equal(cuEventQuery(behind), CUDA_ERROR_NOT_READY);
    __atomic_store_n((uint64_t *)host, 7, __ATOMIC_RELEASE);
    assert_cuda(cuStreamSynchronize(waiting));
    assert_cuda(cuEventQuery(behind));
    assert_cuda(cuMemFreeHost(host));
}

static void a_wait_is_released_by_another_streams_write_in_its_turn(void **state)
{
    CUstream waiting = stream(), writing = stream();
    CUdeviceptr at = word();
    CUevent start, end;
    float milliseconds;
    assert_cuda(cuEventCreate(&start, 0));
    assert_cuda(cuEventCreate(&end, 0));
    assert_cuda(cuEventRecord(start, writing));
    assert_cuda(cuStreamWaitValue32_v2(waiting, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
    spin(writing, 30000);
    assert_cuda(cuStreamWriteValue32_v2(writing, at, 1, 0));
    assert_int_equal(__atomic_load_n((uint32_t *)(uintptr_t)at, __ATOMIC_ACQUIRE),
                     0); /* the write waits for the kernel before it */
    assert_cuda(cuEventRecord(end, waiting));
    assert_cuda(cuEventSynchronize(end));
    assert_cuda(cuEventElapsedTime(&milliseconds, start, end));
    assert_true(milliseconds >= 30);
    assert_int_equal(__atomic_load_n((uint32_t *)(uintptr_t)at, __ATOMIC_ACQUIRE), 1);
}

static void the_host_sees_a_write_without_asking_the_driver(void **state)
{
    CUstream writing = stream();
    CUdeviceptr at = word();
    spin(writing, 2000);
    assert_cuda(cuStreamWriteValue64_v2(writing, at, UINT64_C(0x123456789abcdef0), 0));
    for (unsigned i = 0; i < 20000 && __atomic_load_n((uint64_t *)(uintptr_t)at, __ATOMIC_ACQUIRE) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    assert_true(__atomic_load_n((uint64_t *)(uintptr_t)at, __ATOMIC_ACQUIRE) == UINT64_C(0x123456789abcdef0));
}

static void a_wait_is_released_by_another_process(void **state)
{
    uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    assert_cuda(cuMemHostRegister_v2(shared, 4096, 0));
    CUstream waiting = stream();
    assert_cuda(cuStreamWaitValue32_v2(waiting, (CUdeviceptr)(uintptr_t)shared, 1, CU_STREAM_WAIT_VALUE_EQ));
    assert_int_equal(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    pid_t child = fork();
    if (child == 0) {
        __atomic_store_n(shared, 1, __ATOMIC_RELEASE);
        _exit(0);
    }
    assert_cuda(cuStreamSynchronize(waiting));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_cuda(cuMemHostUnregister(shared));
    munmap(shared, 4096);
}

/* More streams than gates, released in the opposite order of their waiting; and a queue of waits in one
 * stream. */
static void many_streams_and_many_waits_all_come_through(void **state)
{
    enum { STREAMS = 8, ROUNDS = 200 };
    CUstream streams[STREAMS];
    CUdeviceptr words[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++) {
        streams[i] = stream();
        words[i] = word();
        assert_cuda(cuStreamWaitValue32_v2(streams[i], words[i], 1, CU_STREAM_WAIT_VALUE_EQ));
    }
    for (unsigned i = STREAMS; i-- > 0;) {
        assert_int_equal(cuStreamQuery(streams[i]), CUDA_ERROR_NOT_READY);
        __atomic_store_n((uint32_t *)(uintptr_t)words[i], 1, __ATOMIC_RELEASE);
        assert_cuda(cuStreamSynchronize(streams[i]));
    }
    /* Ping-pong: each stream's next step waits for the other's last. */
    assert_cuda(cuMemsetD32_v2(words[0], 0, 1));
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned side = 0; side < 2; side++) {
            assert_cuda(cuStreamWaitValue32_v2(streams[side], words[0], round * 2 + side + 1,
                                               CU_STREAM_WAIT_VALUE_EQ));
            assert_cuda(cuStreamWriteValue32_v2(streams[side], words[0], round * 2 + side + 2, 0));
        }
    __atomic_store_n((uint32_t *)(uintptr_t)words[0], 1, __ATOMIC_RELEASE);
    assert_cuda(cuStreamSynchronize(streams[0]));
    assert_cuda(cuStreamSynchronize(streams[1]));
    assert_int_equal(*(uint32_t *)(uintptr_t)words[0], ROUNDS * 2 + 1);
}

static void a_batch_runs_in_order(void **state)
{
    CUstream batched = stream();
    CUdeviceptr at = word(), go = word();
    CUstreamBatchMemOpParams operations[] = {
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = go, .value = 1}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = at, .value = 10}},
        {.memoryBarrier = {.operation = CU_STREAM_MEM_OP_BARRIER}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = at, .value = 20}},
    };
    assert_cuda(cuStreamBatchMemOp_v2(batched, 4, operations, 0));
    assert_int_equal(__atomic_load_n((uint32_t *)(uintptr_t)at, __ATOMIC_ACQUIRE), 0);
    __atomic_store_n((uint32_t *)(uintptr_t)go, 1, __ATOMIC_RELEASE);
    assert_cuda(cuStreamSynchronize(batched));
    assert_int_equal(__atomic_load_n((uint32_t *)(uintptr_t)at, __ATOMIC_ACQUIRE), 20);
}

static void what_is_wrong_is_refused(void **state)
{
    CUstream some = stream();
    CUdeviceptr at = word();
    CUstreamBatchMemOpParams operation = {.operation = (CUstreamBatchMemOpType)99};
    assert_int_equal(cuStreamWaitValue32_v2(some, at + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamWaitValue64_v2(some, at + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamWaitValue32_v2(some, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamWaitValue32_v2(some, 4096, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamWaitValue32_v2(some, at, 0, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamWaitValue32_v2(some, at, 0, CU_STREAM_WAIT_VALUE_FLUSH),
                     CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuStreamWriteValue32_v2(some, at, 0, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamBatchMemOp_v2(some, 0, &operation, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamBatchMemOp_v2(some, 1, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamBatchMemOp_v2(some, 1, &operation, 0), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_CONTEXT_BYTES=0", NULL});
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
        cuModuleLoadData(&module, SIMULATED_PTX) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_that_is_satisfied_holds_nothing_back),
        cmocka_unit_test(a_wait_is_released_by_a_store_of_the_host),
        cmocka_unit_test(a_wait_is_released_by_another_streams_write_in_its_turn),
        cmocka_unit_test(the_host_sees_a_write_without_asking_the_driver),
        cmocka_unit_test(a_wait_is_released_by_another_process),
        cmocka_unit_test(many_streams_and_many_waits_all_come_through),
        cmocka_unit_test(a_batch_runs_in_order),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
