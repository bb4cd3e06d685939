/* Tests of faults on demand and of how busy a GPU is said to be. Each fault has a process of its own:
 * FAKECUDA_FAULT is read by cuInit. */
#include "simulated.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "cuda/nvml.h"
#include "simgpu/nvml/nvml.h"

static CUfunction need_spin(void)
{
    CUcontext context;
    CUmodule module;
    CUfunction function = NULL;
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
        cuModuleLoadData(&module, SIMULATED_PTX) != CUDA_SUCCESS ||
        cuModuleGetFunction(&function, module, "gs_spin_us") != CUDA_SUCCESS)
        _exit(100);
    return function;
}

static CUresult spin(CUfunction function, unsigned long long microseconds)
{
    void *arguments[] = {&microseconds};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

/* Run in a child with FAKECUDA_FAULT; what it returns is its exit status. */
static int in_child(const char *fault, int (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        setenv("FAKECUDA_FAULT", fault, 1);
        alarm(30);
        _exit(body());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int allocate_five_times(void)
{
    int results = 0;
    need_spin(); /* its context and its module's global ask for memory: two requests */
    for (unsigned i = 0; i < 5; i++) {
        CUdeviceptr pointer;
        results |= (cuMemAlloc_v2(&pointer, MIB) == CUDA_SUCCESS) << i;
    }
    return results;
}

static void the_nth_request_for_memory_does_not_fit(void **state)
{
    assert_int_equal(in_child("oom@4", allocate_five_times), 0x1d);
    assert_int_equal(in_child("oom@4+", allocate_five_times), 0x01);
    assert_int_equal(in_child("", allocate_five_times), 0x1f);
}

static int fault_at_the_second_launch(void)
{
    CUdeviceptr pointer;
    CUfunction function = need_spin();
    if (spin(function, 10) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS)
        return 1;
    if (spin(function, 10) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_ERROR_LAUNCH_FAILED)
        return 2;
    if (cuMemAlloc_v2(&pointer, 1) != CUDA_ERROR_LAUNCH_FAILED)
        return 3;
    /* It is the context's: another one works. */
    CUcontext other;
    return cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS && cuMemAlloc_v2(&pointer, 1) == CUDA_SUCCESS ? 0 : 4;
}

static void an_xid_stays_with_its_context(void **state)
{
    assert_int_equal(in_child("xid@2", fault_at_the_second_launch), 0);
}

static int lose_the_gpu(void)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    CUdeviceptr pointer;
    CUfunction function = need_spin();
    if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS ||
        nvmlDeviceGetMemoryInfo(device, &memory) != NVML_SUCCESS)
        return 1;
    spin(function, 10);
    if (cuMemAlloc_v2(&pointer, 1) != CUDA_ERROR_DEVICE_UNAVAILABLE)
        return 2;
    return nvmlDeviceGetMemoryInfo(device, &memory) == NVML_ERROR_GPU_IS_LOST ? 0 : 3;
}

static void a_lost_gpu_is_lost_for_nvml_too(void **state)
{
    assert_int_equal(in_child("lost@1", lose_the_gpu), 0);
    assert_int_equal(in_child("", allocate_five_times), 0x1f); /* nobody was left: it is back */
}

static atomic_int *asked, *answered; /* shared with children */

_Noreturn static void hang_until_killed(void)
{
    spin(need_spin(), 10);
    atomic_store(asked, 1);
    for (;;)
        pause();
}

static void a_hung_driver_answers_nobody_until_its_process_has_gone(void **state)
{
    asked = mmap(NULL, 2 * sizeof(*asked), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(asked, MAP_FAILED);
    answered = asked + 1;
    pid_t hangs = fork();
    if (hangs == 0) {
        setenv("FAKECUDA_FAULT", "hang@1", 1);
        hang_until_killed();
    }
    while (!atomic_load(asked))
        usleep(1000);
    pid_t asks = fork();
    if (asks == 0) {
        nvmlDevice_t device;
        nvmlMemory_t memory;
        if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS)
            _exit(1);
        atomic_store(asked, 2);
        bool is_well = nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS;
        atomic_store(answered, 1);
        _exit(is_well ? 0 : 2);
    }
    while (atomic_load(asked) < 2)
        usleep(1000);
    usleep(50000);
    assert_int_equal(atomic_load(answered), 0);
    int status;
    kill(hangs, SIGKILL);
    waitpid(hangs, &status, 0);
    waitpid(asks, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    munmap(asked, 2 * sizeof(*asked));
}

static int initialise_only(void)
{
    return cuInit(0) == CUDA_SUCCESS;
}

static void what_is_not_a_fault_is_refused(void **state)
{
    assert_int_equal(in_child("oom", initialise_only), 0);
    assert_int_equal(in_child("oom@0", initialise_only), 0);
    assert_int_equal(in_child("oom@1,flood@2", initialise_only), 0);
    assert_int_equal(in_child("oom@10,xid@3", initialise_only), 1);
}

static int be_busy(void)
{
    CUfunction function = need_spin();
    nvmlDevice_t device;
    nvmlUtilization_t utilization;
    nvmlProcessUtilizationSample_t samples[4];
    unsigned count = 4;
    if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS ||
        nvmlDeviceGetUtilizationRates(device, &utilization) != NVML_SUCCESS)
        return 1;
    if (utilization.gpu != 0)
        return 2;
    if (nvmlDeviceGetProcessUtilization(device, samples, &count, 0) != NVML_ERROR_NOT_FOUND)
        return 3;
    /* Two kernels, the second of which runs still when we ask: all of the last sample was busy. */
    spin(function, 200000);
    spin(function, 10000000);
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    if (nvmlDeviceGetUtilizationRates(device, &utilization) != NVML_SUCCESS || utilization.gpu != 100)
        return 4;
    count = 0;
    if (nvmlDeviceGetProcessUtilization(device, NULL, &count, 0) != NVML_ERROR_INSUFFICIENT_SIZE ||
        count != 1)
        return 5;
    if (nvmlDeviceGetProcessUtilization(device, samples, &count, 0) != NVML_SUCCESS || count != 1 ||
        samples[0].pid != (unsigned)getpid() || samples[0].smUtil < 30 || samples[0].memUtil != 0)
        return 6;
    return 0;
}

static void nvml_tells_how_busy_the_gpu_and_each_process_is(void **state)
{
    assert_int_equal(in_child("", be_busy), 0);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=1GiB", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_request_for_memory_does_not_fit),
        cmocka_unit_test(an_xid_stays_with_its_context),
        cmocka_unit_test(a_lost_gpu_is_lost_for_nvml_too),
        cmocka_unit_test(a_hung_driver_answers_nobody_until_its_process_has_gone),
        cmocka_unit_test(what_is_not_a_fault_is_refused),
        cmocka_unit_test(nvml_tells_how_busy_the_gpu_and_each_process_is),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
