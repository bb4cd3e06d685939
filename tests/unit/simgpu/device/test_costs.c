/* Tests of what calls cost where the constants say so (constants.def), as under a card's profile. Costs are lower bounds,
 * so a busy machine does not fail these. */
#include "simulated.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "simgpu/driver/fakecuda.h"
#include "simgpu/nvml/nvml.h"

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

static CUdeviceptr map_pieces(unsigned count)
{
    const CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUdeviceptr address;
    assert_cuda(cuMemAddressReserve(&address, count * 2 * MIB, 0, 0, 0));
    for (unsigned i = 0; i < count; i++) {
        CUmemGenericAllocationHandle handle;
        assert_cuda(cuMemCreate(&handle, 2 * MIB, &how, 0));
        assert_cuda(cuMemMap(address + i * 2 * MIB, 2 * MIB, 0, handle, 0));
        assert_cuda(cuMemRelease(handle));
    }
    return address;
}

static void what_is_mapped_costs_by_the_handle(void **state)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = map_pieces(3);
    assert_takes(3 * 4 * MS, cuMemSetAccess(address, 6 * MIB, &access, 1));
    assert_takes(3 * 4 * MS, cuMemUnmap(address, 6 * MIB));
    assert_cuda(cuMemAddressFree(address, 6 * MIB));
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

/* What is beyond the usual stack of 1 KiB, for all threads that can be resident; given back with the context. */
static void a_kernel_with_local_memory_takes_it_for_all_threads(void **state)
{
    CUmodule module;
    CUfunction function;
    CUcontext own;
    int processors, threads;
    assert_cuda(cuCtxCreate_v2(&own, 0, 0));
    assert_cuda(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n"
                                          ".visible .entry local(){\n.local .align 16 .b8 stack[65][8];\n"
                                          ".local .b32 x;\nst.local.u32 [stack], %r1;\nret;}\n"));
    assert_cuda(cuModuleGetFunction(&function, module, "local"));
    assert_cuda(cuFuncLoad(function));
    assert_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512)); /* what a kernel needs counts whatever this says */
    assert_cuda(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    assert_cuda(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0));
    uint64_t before = simulated_free_bytes();
    assert_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(before, simulated_free_bytes()); /* 520 bytes fit the usual stack */
    assert_cuda(cuModuleUnload(module));
    assert_cuda(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n"
                                          ".visible .entry local(){\n.local .b8 stack[1280];\nret;}\n"));
    assert_cuda(cuModuleGetFunction(&function, module, "local"));
    assert_cuda(cuFuncLoad(function));
    before = simulated_free_bytes();
    for (unsigned i = 0; i < 2; i++) {
        assert_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        assert_int_equal(before - simulated_free_bytes(), 256u * (unsigned)processors * (unsigned)threads);
    }
    assert_cuda(cuCtxDestroy_v2(own));
    assert_cuda(cuCtxSetCurrent(context));
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

/* --- Beside another process ---------------------------------------------------------------------------- */

static CUresult spin_for(uint64_t us)
{
    CUmodule module;
    CUfunction spin;
    void *arguments[] = {&us};
    CUresult result = cuModuleLoadData(&module, SIMULATED_PTX);
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(&spin, module, "gs_spin_us");
    if (result == CUDA_SUCCESS)
        result = cuFuncLoad(spin);
    return result ? result : cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

/* Keeps the GPU busy until it is killed. */
static int spin(void)
{
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || spin_for(60000000))
        return 1;
    pause();
    return 0;
}

/* How long the GPU computed for a process so far. */
static uint64_t computed_ns(pid_t pid)
{
    struct fakecuda_compute places[64];
    uint64_t now_ns;
    int count = fakecuda_compute(0, &now_ns, places, 64);
    for (int i = 0; i < count && i < 64; i++)
        if (places[i].pid == pid)
            return places[i].computed_ns;
    return 0;
}

static void events_around_a_kernel_tell_of_other_processes_slices_too(void **state)
{
    CUevent events[2];
    float milliseconds;
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test_costs", "spin", (char *)NULL);
        _exit(1);
    }
    while (computed_ns(child) == 0)
        usleep(1000);
    assert_cuda(cuEventCreate(&events[0], 0));
    assert_cuda(cuEventCreate(&events[1], 0));
    uint64_t before_ns = computed_ns(getpid());
    assert_cuda(cuEventRecord(events[0], NULL));
    assert_cuda(spin_for(20000));
    assert_cuda(cuEventRecord(events[1], NULL));
    assert_cuda(cuEventSynchronize(events[1]));
    assert_cuda(cuEventElapsedTime(&milliseconds, events[0], events[1]));
    assert_int_equal(computed_ns(getpid()) - before_ns, 20 * MS); /* the judge's account is exact */
    assert_true(milliseconds > 35.0f);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* --- After the driver's exit handler ----------------------------------------------------------------- */

static CUmodule kept_module;
static CUevent kept_event;
static const char *at_exit;

/* Was there before the driver, so it runs behind the driver's own. */
static void use_the_driver(void)
{
    signal(SIGSEGV, SIG_DFL); /* a sanitizer has a handler of its own */
    if (strcmp(at_exit, "unload") == 0)
        _exit(cuModuleUnload(kept_module) == CUDA_ERROR_DEINITIALIZED ? 0 : 1);
    if (strcmp(at_exit, "query") == 0)
        _exit((int)cuEventQuery(kept_event) + 100);
}

static int exit_and_use(const char *how)
{
    at_exit = how;
    return atexit(use_the_driver) || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
           cuCtxSetCurrent(context) || cuModuleLoadData(&kept_module, SIMULATED_PTX) ||
           cuEventCreate(&kept_event, 0);
}

static int status_of(const char *how)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test_costs", how, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_call_with_a_handle_crashes_after_the_driver_s_exit_handler(void **state)
{
    int status = status_of("query");
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void a_call_that_needs_the_driver_alone_is_told_that_it_is_gone(void **state)
{
    assert_int_equal(status_of("unload"), 0);
}

/* --- What NVML may not tell --------------------------------------------------------------------------- */

/* The first entry of the list of who uses the GPU; its bytes. */
static int tell_bytes(const char *how)
{
    nvmlDevice_t device;
    nvmlProcessInfo_v2_t infos[8];
    unsigned count = 8;
    if (exit_and_use("") || nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device) ||
        nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos) || count == 0)
        return 2;
    unsigned long long expected = strcmp(how, "absent") == 0 ? NVML_VALUE_NOT_AVAILABLE_U64 : 0;
    return infos[0].usedGpuMemory == expected ? 0 : 1;
}

static void figures_of_processes_may_be_absent_or_0(void **state)
{
    setenv("FAKECUDA_NVML_NO_FIGURES", "1", 1);
    assert_int_equal(status_of("absent"), 0);
    setenv("FAKECUDA_NVML_NO_FIGURES", "2", 1);
    assert_int_equal(status_of("zero"), 0);
    unsetenv("FAKECUDA_NVML_NO_FIGURES");
}

static void a_list_of_processes_takes_its_time(void **state)
{
    nvmlDevice_t device;
    unsigned count = 0;
    assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    uint64_t begin_ns = monotonic_ns();
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL),
                     NVML_ERROR_INSUFFICIENT_SIZE);
    assert_in_range(monotonic_ns() - begin_ns, 30 * MS, UINT64_MAX);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
}

static int initialise(void **state)
{
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(int argc, char *argv[])
{
    if (argc > 1)
        return strcmp(argv[1], "spin") == 0                                     ? spin()
               : strcmp(argv[1], "allocate") == 0                               ? allocate()
               : strcmp(argv[1], "absent") == 0 || strcmp(argv[1], "zero") == 0 ? tell_bytes(argv[1])
                                                                                : exit_and_use(argv[1]);
    simulated_choose(
        (char *[]){"FAKECUDA_TOTAL_MEM=1GiB", "FAKECUDA_CONTEXT_BYTES=1MiB", "FAKECUDA_CONSTANTS=h100",
                   "FAKECUDA_BLOCK_BYTES=0", "FAKECUDA_MODULE_BYTES=3MiB", "FAKECUDA_LAUNCH_NS=2e6",
                   "FAKECUDA_EVENT_NS=3e6", "FAKECUDA_EVENT_TIMED_NS=4e6", "FAKECUDA_QUERY_NS=5e6",
                   "FAKECUDA_ALLOC_NS=6e6", "FAKECUDA_ALLOC_GIB_NS=16e6", "FAKECUDA_WAKE_NS=7e6",
                   "FAKECUDA_LOAD_NS=50e6", "FAKECUDA_NVML_LIST_NS=30e6", "FAKECUDA_MAP_CHUNK_NS=4e6",
                   "FAKECUDA_TIMER_RUNS_ON=0", /* who watches the clock computes for as long as it says */
                   NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_costs_what_its_row_says),
        cmocka_unit_test(what_is_mapped_costs_by_the_handle),
        cmocka_unit_test(a_wait_ends_some_time_after_the_work),
        cmocka_unit_test(a_kernel_that_is_not_known_takes_some_time_too),
        cmocka_unit_test(code_is_loaded_inside_the_first_launch_and_takes_memory),
        cmocka_unit_test(a_kernel_with_local_memory_takes_it_for_all_threads),
        cmocka_unit_test(code_is_loaded_under_a_lock_of_the_process),
        cmocka_unit_test(processes_allocate_one_after_the_other),
        cmocka_unit_test(events_around_a_kernel_tell_of_other_processes_slices_too),
        cmocka_unit_test(a_call_with_a_handle_crashes_after_the_driver_s_exit_handler),
        cmocka_unit_test(a_call_that_needs_the_driver_alone_is_told_that_it_is_gone),
        cmocka_unit_test(figures_of_processes_may_be_absent_or_0),
        cmocka_unit_test(a_list_of_processes_takes_its_time),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
