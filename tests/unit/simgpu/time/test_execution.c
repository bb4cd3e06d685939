/* Tests of contexts, streams, events and launches, as a program sees them. Times are the simulation's. */
#include "simulated.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

static CUcontext context;
static CUmodule module;

static CUfunction function(const char *name)
{
    CUfunction found;
    assert_cuda(cuModuleGetFunction(&found, module, name));
    return found;
}

static void spin(CUstream stream, unsigned long long microseconds)
{
    void *arguments[] = {&microseconds};
    assert_cuda(cuLaunchKernel(function("gs_spin_us"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static CUevent event(void)
{
    CUevent made;
    assert_cuda(cuEventCreate(&made, CU_EVENT_DEFAULT));
    return made;
}

static CUstream stream(unsigned flags)
{
    CUstream made;
    assert_cuda(cuStreamCreate(&made, flags));
    return made;
}

/* What streams wait for that are held: however slow the host is, nothing behind it is done before it is let go. */
static uint64_t *gate;

static void hold(CUstream held)
{
    if (!gate)
        assert_cuda(cuMemHostAlloc((void **)&gate, sizeof(*gate), 0));
    __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
    assert_cuda(cuStreamWaitValue64_v2(held, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void let_go(void)
{
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

static float elapsed(CUevent start, CUevent end)
{
    float milliseconds = -1;
    assert_cuda(cuEventElapsedTime(&milliseconds, start, end));
    return milliseconds;
}

static void a_built_in_kernel_computes(void **state)
{
    CUdeviceptr x, y;
    float a = 2.0f, host[100];
    cuuint64_t count = 100;
    assert_cuda(cuMemAlloc_v2(&x, sizeof(host)));
    assert_cuda(cuMemAlloc_v2(&y, sizeof(host)));
    for (unsigned i = 0; i < 100; i++)
        host[i] = (float)i;
    assert_cuda(cuMemcpyHtoD_v2(x, host, sizeof(host)));
    assert_cuda(cuMemcpyHtoD_v2(y, host, sizeof(host)));
    void *arguments[] = {&count, &a, &x, &y};
    assert_cuda(cuLaunchKernel(function("gs_saxpy_f32"), 1, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
    /* The same once more, with the parameters in a buffer. */
    struct {
        cuuint64_t count;
        float a;
        CUdeviceptr x, y;
    } buffer = {count, a, x, y};
    size_t bytes = sizeof(buffer);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    assert_cuda(cuLaunchKernel(function("gs_saxpy_f32"), 1, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    assert_cuda(cuMemcpyDtoH_v2(host, y, sizeof(host)));
    for (unsigned i = 0; i < 100; i++)
        assert_true(host[i] == 5.0f * (float)i);
    assert_cuda(cuMemFree_v2(x));
    assert_cuda(cuMemFree_v2(y));
}

static void a_module_s_globals_have_their_contents_and_cost_memory(void **state)
{
    CUdeviceptr pointer;
    size_t bytes;
    unsigned values[4];
    assert_cuda(cuModuleGetGlobal_v2(&pointer, &bytes, module, "counter"));
    assert_int_equal(bytes, 16);
    assert_cuda(cuMemcpyDtoH_v2(values, pointer, sizeof(values)));
    assert_int_equal(values[3], 4);
    assert_int_equal(cuModuleGetGlobal_v2(&pointer, &bytes, module, "none"), CUDA_ERROR_NOT_FOUND);
    CUfunction none;
    assert_int_equal(cuModuleGetFunction(&none, module, "none"), CUDA_ERROR_NOT_FOUND);
}

static void a_launch_that_cannot_be_is_refused(void **state)
{
    CUfunction kernel = function("unknown");
    unsigned long long value = 0;
    void *arguments[] = {&value};
    assert_int_equal(cuLaunchKernel(kernel, 0, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(kernel, 1, 1, 1, 1025, 1, 1, 0, NULL, arguments, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLaunchCooperativeKernel(kernel, 100000, 1, 1, 1024, 1, 1, 0, NULL, arguments),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_cuda(cuLaunchCooperativeKernel(kernel, 114, 1, 1, 1024, 1, 1, 0, NULL, arguments));
    CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    assert_cuda(cuLaunchKernelEx(&config, kernel, arguments, NULL));
}

static void events_measure_what_is_between_them(void **state)
{
    CUstream work = stream(CU_STREAM_NON_BLOCKING);
    CUevent start = event(), middle = event(), end = event();
    assert_cuda(cuEventRecord(start, work));
    spin(work, 200000); /* in which the host does the rest */
    assert_cuda(cuEventRecord(middle, work));
    spin(work, 5000);
    assert_cuda(cuEventRecord(end, work));
    float unknown;
    assert_int_equal(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuEventElapsedTime(&unknown, start, end), CUDA_ERROR_NOT_READY);
    assert_cuda(cuEventSynchronize(end));
    assert_cuda(cuEventQuery(end));
    assert_float_equal(elapsed(middle, end), 5.0f, 0.001f);
    assert_true(elapsed(start, middle) >= 200.0f); /* and the host's time between record and launch */
    assert_cuda(cuStreamDestroy_v2(work));
}

static void an_event_s_time_outlives_thousands_of_later_launches(void **state)
{
    CUstream work = stream(CU_STREAM_NON_BLOCKING);
    CUevent first = event(), second = event();
    spin(work, 200000); /* in which the host does the next */
    assert_cuda(cuEventRecord(first, work));
    spin(work, 700);
    assert_cuda(cuEventRecord(second, work));
    for (unsigned i = 0; i < 5000; i++)
        spin(work, 1);
    assert_cuda(cuStreamSynchronize(work));
    assert_float_equal(elapsed(first, second), 0.7f, 0.001f);
    assert_cuda(cuStreamDestroy_v2(work));
}

static void a_stream_waits_for_another_s_event(void **state)
{
    CUstream one = stream(CU_STREAM_NON_BLOCKING), other = stream(CU_STREAM_NON_BLOCKING);
    CUevent done = event(), after = event();
    hold(one);
    assert_cuda(cuEventRecord(done, one));
    assert_cuda(cuStreamQuery(other));
    assert_cuda(cuStreamWaitEvent(other, done, 0));
    assert_int_equal(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    let_go();
    assert_cuda(cuEventRecord(after, other));
    assert_cuda(cuEventSynchronize(after));
    assert_cuda(cuStreamQuery(one));
    assert_cuda(cuStreamDestroy_v2(one));
    assert_cuda(cuStreamDestroy_v2(other));
}

static void the_legacy_stream_waits_for_blocking_ones_and_they_for_it(void **state)
{
    CUstream blocking = stream(CU_STREAM_DEFAULT), free_running = stream(CU_STREAM_NON_BLOCKING);
    hold(free_running);
    assert_cuda(cuStreamQuery(NULL));
    let_go();
    assert_cuda(cuStreamSynchronize(free_running));
    hold(blocking);
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    let_go();
    assert_cuda(cuStreamSynchronize(blocking));
    assert_cuda(cuStreamQuery(NULL));
    hold(NULL);
    assert_int_equal(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY); /* the thread's own is blocking too */
    let_go();
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuStreamQuery(blocking));
    assert_cuda(cuStreamDestroy_v2(blocking));
    assert_cuda(cuStreamDestroy_v2(free_running));
}

static void handles_of_what_was_destroyed_are_nobody_else_s_for_long(void **state)
{
    CUstream old_stream = stream(CU_STREAM_NON_BLOCKING);
    CUevent old_event = event();
    assert_cuda(cuStreamDestroy_v2(old_stream));
    assert_cuda(cuEventDestroy_v2(old_event));
    for (unsigned i = 0; i < 1000; i++) {
        CUstream another = stream(CU_STREAM_NON_BLOCKING);
        CUevent mark = event();
        assert_ptr_not_equal(another, old_stream);
        assert_ptr_not_equal(mark, old_event);
        assert_int_equal(cuStreamQuery(old_stream), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(cuEventQuery(old_event), CUDA_ERROR_INVALID_HANDLE);
        assert_cuda(cuStreamDestroy_v2(another));
        assert_cuda(cuEventDestroy_v2(mark));
    }
}

static void copies_take_the_link_s_time_beside_kernels(void **state)
{
    const size_t bytes = 1 * MIB; /* FAKECUDA_LINK_GBPS is 1 */
    CUdeviceptr device;
    void *host;
    CUstream copying = stream(CU_STREAM_NON_BLOCKING), computing = stream(CU_STREAM_NON_BLOCKING);
    CUevent start = event(), copied = event(), computed = event();
    assert_cuda(cuMemAlloc_v2(&device, bytes));
    assert_cuda(cuMemHostAlloc(&host, bytes, 0));
    /* Both begin when the first kernel is done, however slow the host is. */
    spin(computing, 200000);
    assert_cuda(cuEventRecord(start, computing));
    assert_cuda(cuStreamWaitEvent(copying, start, 0));
    spin(computing, 6000);
    assert_cuda(cuEventRecord(computed, computing));
    assert_cuda(cuMemcpyHtoDAsync_v2(device, host, bytes, copying));
    assert_cuda(cuEventRecord(copied, copying));
    assert_cuda(cuCtxSynchronize());
    assert_float_equal(elapsed(start, computed), 6.0f, 0.001f);
    assert_float_equal(elapsed(start, copied), (float)bytes / 1e6f, 0.001f);
    assert_cuda(cuMemFreeHost(host));
    assert_cuda(cuMemFree_v2(device));
}

static atomic_int host_calls;

static void count_call(void *argument)
{
    assert_int_equal(atomic_fetch_add(&host_calls, 1), (int)(intptr_t)argument);
}

static void host_functions_run_in_the_stream_s_order(void **state)
{
    CUstream work = stream(CU_STREAM_NON_BLOCKING);
    hold(work);
    assert_cuda(cuLaunchHostFunc(work, count_call, (void *)0));
    assert_cuda(cuLaunchHostFunc(work, count_call, (void *)1));
    assert_int_equal(atomic_load(&host_calls), 0);
    let_go();
    spin(work, 1000);
    assert_cuda(cuStreamSynchronize(work));
    assert_int_equal(atomic_load(&host_calls), 2);
    assert_cuda(cuStreamDestroy_v2(work));
}

/* --- Contexts -------------------------------------------------------------------------------------- */

static void a_destroyed_context_is_told_from_none(void **state)
{
    CUcontext made, current;
    CUdeviceptr pointer;
    assert_cuda(cuCtxCreate_v2(&made, 0, 0));
    assert_cuda(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, made);
    assert_cuda(cuCtxPushCurrent_v2(made));
    assert_cuda(cuCtxDestroy_v2(made)); /* pops one */
    assert_int_equal(cuMemAlloc_v2(&pointer, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(cuCtxSetCurrent(made), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_cuda(cuCtxPopCurrent_v2(&current));
    assert_cuda(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, context);
    assert_cuda(cuCtxPopCurrent_v2(&current));
    assert_int_equal(cuMemAlloc_v2(&pointer, 1), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxPopCurrent_v2(&current), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuCtxPushCurrent_v2(context));
}

static void the_primary_context_lives_from_first_retain_to_last_release(void **state)
{
    CUcontext first, second;
    unsigned flags;
    int active;
    assert_cuda(cuDevicePrimaryCtxRetain(&first, 1));
    assert_cuda(cuDevicePrimaryCtxRetain(&second, 1));
    assert_ptr_equal(first, second);
    assert_cuda(cuDevicePrimaryCtxRelease_v2(1));
    assert_cuda(cuDevicePrimaryCtxGetState(1, &flags, &active));
    assert_int_equal(active, 1);
    assert_cuda(cuDevicePrimaryCtxRelease_v2(1));
    assert_cuda(cuDevicePrimaryCtxGetState(1, &flags, &active));
    assert_int_equal(active, 0);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuDevicePrimaryCtxRetain(&first, 2), CUDA_ERROR_INVALID_DEVICE);
}

static void a_context_costs_memory(void **state)
{
    size_t before, after, total;
    CUcontext made;
    assert_cuda(cuMemGetInfo_v2(&before, &total));
    assert_cuda(cuCtxCreate_v2(&made, 0, 0));
    assert_cuda(cuMemGetInfo_v2(&after, &total));
    assert_int_equal(before - after, 10 * MIB);
    assert_cuda(cuCtxDestroy_v2(made));
    assert_cuda(cuMemGetInfo_v2(&after, &total));
    assert_int_equal(before, after);
}

static void a_kernel_s_fault_stays_with_its_context(void **state)
{
    CUcontext made;
    CUmodule loaded;
    CUfunction fill;
    CUdeviceptr nowhere = 0x1000, pointer;
    unsigned value = 1;
    cuuint64_t count = 4;
    void *arguments[] = {&nowhere, &value, &count};
    assert_cuda(cuCtxCreate_v2(&made, 0, 0));
    assert_cuda(cuModuleLoadData(&loaded, SIMULATED_PTX));
    assert_cuda(cuModuleGetFunction(&fill, loaded, "gs_fill_u32"));
    assert_cuda(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemAlloc_v2(&pointer, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_cuda(cuCtxDestroy_v2(made));
    assert_cuda(cuCtxSynchronize());
    /* The context took its module with it. */
    assert_int_equal(cuModuleUnload(loaded), CUDA_ERROR_INVALID_HANDLE);
}

static void *use_in_thread(void *result)
{
    CUcontext current = context;
    CUdeviceptr pointer;
    CUresult *results = result;
    cuCtxGetCurrent(&current);
    results[0] = current == NULL ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    results[1] = cuMemAlloc_v2(&pointer, 1);
    return NULL;
}

static void a_new_thread_has_no_context(void **state)
{
    pthread_t thread;
    CUresult results[2];
    assert_int_equal(pthread_create(&thread, NULL, use_in_thread, results), 0);
    pthread_join(thread, NULL);
    assert_int_equal(results[0], CUDA_SUCCESS);
    assert_int_equal(results[1], CUDA_ERROR_INVALID_CONTEXT);
}

static void a_forked_child_is_not_initialised(void **state)
{
    pid_t child = fork();
    if (child == 0) {
        int count;
        _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                      cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_cuda(cuCtxSynchronize());
}

static void devices_are_queried(void **state)
{
    int count, value;
    CUdevice device;
    CUuuid first, second;
    char text[32];
    assert_cuda(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    assert_int_equal(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    assert_cuda(cuDeviceGetUuid_v2(&first, 0));
    assert_cuda(cuDeviceGetUuid_v2(&second, 1));
    assert_memory_not_equal(first.bytes, second.bytes, 16);
    assert_cuda(cuDeviceGetPCIBusId(text, sizeof(text), 1));
    assert_string_equal(text, "0000:02:00.0");
    assert_cuda(cuDeviceGetByPCIBusId(&device, text));
    assert_int_equal(device, 1);
    assert_cuda(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    assert_int_equal(value, 9);
    assert_int_equal(cuDeviceGetAttribute(&value, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuDriverGetVersion(&value));
    assert_int_equal(value, 13000);
}

static int initialise(void **state)
{
    int count;
    if (cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED)
        return -1;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuModuleLoadData(&module, SIMULATED_PTX);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=256MiB", "FAKECUDA_CONTEXT_BYTES=10MiB",
                                "FAKECUDA_GPUS=2", "FAKECUDA_LINK_GBPS=1", "FAKECUDA_KERNEL_NS=0", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_queried),
        cmocka_unit_test(a_built_in_kernel_computes),
        cmocka_unit_test(a_module_s_globals_have_their_contents_and_cost_memory),
        cmocka_unit_test(a_launch_that_cannot_be_is_refused),
        cmocka_unit_test(events_measure_what_is_between_them),
        cmocka_unit_test(an_event_s_time_outlives_thousands_of_later_launches),
        cmocka_unit_test(a_stream_waits_for_another_s_event),
        cmocka_unit_test(the_legacy_stream_waits_for_blocking_ones_and_they_for_it),
        cmocka_unit_test(handles_of_what_was_destroyed_are_nobody_else_s_for_long),
        cmocka_unit_test(copies_take_the_link_s_time_beside_kernels),
        cmocka_unit_test(host_functions_run_in_the_stream_s_order),
        cmocka_unit_test(a_destroyed_context_is_told_from_none),
        cmocka_unit_test(the_primary_context_lives_from_first_retain_to_last_release),
        cmocka_unit_test(a_context_costs_memory),
        cmocka_unit_test(a_kernel_s_fault_stays_with_its_context),
        cmocka_unit_test(a_new_thread_has_no_context),
        cmocka_unit_test(a_forked_child_is_not_initialised),
    };
    int failed = cmocka_run_group_tests(tests, initialise, NULL);
    simulated_remove();
    return failed;
}
