/* Tests of what calls cost where the constants say so (constants.def), as under a card's profile. Costs are lower bounds,
 * so a busy machine does not fail these. */
#include "simulated.h"

#include <pthread.h>
#include <sys/wait.h>

#include "base/clock.h"

#define MS UINT64_C(1000000)
#define assert_takes(least_ns, call)                                                                         \
    do {                                                                                                     \
        uint64_t begin_ns_ = monotonic_ns();                                                                 \
        assert_cuda(call);                                                                                   \
        assert_in_range(monotonic_ns() - begin_ns_, least_ns, UINT64_MAX);                                   \
    } while (0)

static CUcontext context;

static CUfunction new_function(CUmodule *module)
{
    CUfunction function;
    assert_cuda(cuModuleLoadData(module, SIMULATED_PTX));
    assert_cuda(cuModuleGetFunction(&function, *module, "unknown"));
    return function;
}

static CUresult launch(CUfunction function)
{
    CUdeviceptr nothing = 0;
    void *arguments[] = {&nothing};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static void each_call_costs_what_its_row_says(void **state)
{
    CUmodule module;
    CUfunction function = new_function(&module);
    CUevent plain, timed;
    CUdeviceptr address;
    assert_cuda(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    assert_cuda(cuEventCreate(&timed, 0));
    assert_cuda(launch(function)); /* loads the code */
    assert_takes(2 * MS, launch(function));
    assert_takes(3 * MS, cuEventRecord(plain, NULL));
    assert_takes(4 * MS, cuEventRecord(timed, NULL));
    assert_takes(5 * MS, cuStreamQuery(NULL));
    assert_takes(5 * MS, cuEventQuery(timed));
    assert_takes(6 * MS, cuMemAlloc_v2(&address, 4096));
    assert_takes(2 * MS, cuMemsetD8_v2(address, 0, 4096));
    assert_takes(6 * MS, cuMemFree_v2(address));
    assert_takes(6 * MS + 4 * MS, cuMemAlloc_v2(&address, 256 * MIB));
    assert_cuda(cuMemFree_v2(address));
    assert_cuda(cuModuleUnload(module));
}

static void a_wait_ends_some_time_after_the_work(void **state)
{
    CUmodule module;
    CUfunction function;
    uint64_t us = 20000;
    void *arguments[] = {&us};
    assert_cuda(cuModuleLoadData(&module, SIMULATED_PTX));
    assert_cuda(cuModuleGetFunction(&function, module, "gs_spin_us"));
    assert_cuda(cuFuncLoad(function));
    uint64_t begin_ns = monotonic_ns();
    assert_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    assert_cuda(cuStreamSynchronize(NULL));
    assert_in_range(monotonic_ns() - begin_ns, 20 * MS + 7 * MS, UINT64_MAX);
    assert_cuda(cuModuleUnload(module));
}

static void a_kernel_that_is_not_known_takes_some_time_too(void **state)
{
    CUmodule module;
    CUfunction function = new_function(&module);
    CUevent events[2];
    float milliseconds;
    assert_cuda(cuEventCreate(&events[0], 0));
    assert_cuda(cuEventCreate(&events[1], 0));
    assert_cuda(cuEventRecord(events[0], NULL));
    assert_cuda(launch(function));
    assert_cuda(cuEventRecord(events[1], NULL));
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuEventElapsedTime(&milliseconds, events[0], events[1]));
    assert_true(milliseconds > 0.0f);
    assert_cuda(cuModuleUnload(module));
}

static void code_is_loaded_inside_the_first_launch_and_takes_memory(void **state)
{
    CUmodule module;
    CUmoduleLoadingMode mode;
    CUfunctionLoadingState loaded;
    assert_cuda(cuModuleGetLoadingMode(&mode));
    assert_int_equal(mode, CU_MODULE_LAZY_LOADING);
    CUfunction function = new_function(&module);
    uint64_t before = simulated_free_bytes();
    assert_cuda(cuFuncIsLoaded(&loaded, function));
    assert_int_equal(loaded, CU_FUNCTION_LOADING_STATE_UNLOADED);
    assert_takes(50 * MS, launch(function));
    assert_cuda(cuFuncIsLoaded(&loaded, function));
    assert_int_equal(loaded, CU_FUNCTION_LOADING_STATE_LOADED);
    assert_int_equal(before - simulated_free_bytes(), 3 * MIB);
    assert_cuda(cuModuleUnload(module));
    assert_in_range(simulated_free_bytes(), before, UINT64_MAX);
}

static void *launch_in_a_thread(void *function)
{
    return (void *)(uintptr_t)(cuCtxSetCurrent(context) || launch(function));
}

/* Two threads that load code do so one after the other. */
static void code_is_loaded_under_a_lock_of_the_process(void **state)
{
    CUmodule modules[2];
    pthread_t threads[2];
    void *failed;
    CUfunction functions[2] = {new_function(&modules[0]), new_function(&modules[1])};
    uint64_t begin_ns = monotonic_ns();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, launch_in_a_thread, functions[i]), 0);
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
        assert_cuda(cuModuleUnload(modules[i]));
    }
    assert_in_range(monotonic_ns() - begin_ns, 100 * MS, UINT64_MAX);
}

/* A process's allocations wait for those of others: the kernel module's lock is one for all. */
static void processes_allocate_one_after_the_other(void **state)
{
    uint64_t begin_ns = monotonic_ns();
    pid_t children[3];
    for (unsigned i = 0; i < 3; i++)
        if ((children[i] = fork()) == 0) {
            execl("/proc/self/exe", "test_costs", "allocate", (char *)NULL);
            _exit(1);
        }
    for (unsigned i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_in_range(monotonic_ns() - begin_ns, 3 * 2 * 6 * MS,
                    UINT64_MAX); /* each a context and some memory */
}

static int allocate(void)
{
    CUdeviceptr address;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuMemAlloc_v2(&address, 4096);
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(int argc, char *argv[])
{
    if (argc > 1)
        return allocate();
    simulated_choose(
        (char *[]){"FAKECUDA_TOTAL_MEM=1GiB", "FAKECUDA_CONTEXT_BYTES=1MiB", "FAKECUDA_CONSTANTS=h100",
                   "FAKECUDA_BLOCK_BYTES=0", "FAKECUDA_MODULE_BYTES=3MiB", "FAKECUDA_LAUNCH_NS=2e6",
                   "FAKECUDA_EVENT_NS=3e6", "FAKECUDA_EVENT_TIMED_NS=4e6", "FAKECUDA_QUERY_NS=5e6",
                   "FAKECUDA_ALLOC_NS=6e6", "FAKECUDA_ALLOC_GIB_NS=16e6", "FAKECUDA_WAKE_NS=7e6",
                   "FAKECUDA_LOAD_NS=50e6", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_costs_what_its_row_says),
        cmocka_unit_test(a_wait_ends_some_time_after_the_work),
        cmocka_unit_test(a_kernel_that_is_not_known_takes_some_time_too),
        cmocka_unit_test(code_is_loaded_inside_the_first_launch_and_takes_memory),
        cmocka_unit_test(code_is_loaded_under_a_lock_of_the_process),
        cmocka_unit_test(processes_allocate_one_after_the_other),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
