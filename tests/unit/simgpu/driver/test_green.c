/* Tests of green contexts and of attributes of streams, on an H100's 132 multiprocessors. */
#include "simulated.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

static CUdevResource whole(void)
{
    CUdevResource resource;
    assert_cuda(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    return resource;
}

static CUgreenCtx green_of(CUdevResource *resource)
{
    CUdevResourceDesc description;
    CUgreenCtx green;
    assert_cuda(cuDevResourceGenerateDesc(&description, resource, 1));
    assert_cuda(cuGreenCtxCreate(&green, description, 0, 1));
    return green;
}

static void multiprocessors_are_split_in_the_sizes_there_are(void **state)
{
    CUdevResource input = whole(), groups[32], rest;
    unsigned count;
    assert_int_equal(input.sm.smCount, 132);
    assert_cuda(cuDevSmResourceSplitByCount(NULL, &count, &input, NULL, 0, 10));
    assert_int_equal(count, 8); /* of 16 each */
    count = 2;
    assert_cuda(cuDevSmResourceSplitByCount(groups, &count, &input, &rest, 0, 10));
    assert_int_equal(count, 2);
    assert_int_equal(groups[1].sm.smCount, 16);
    assert_int_equal(rest.sm.smCount, 100);
    count = 32;
    assert_cuda(cuDevSmResourceSplitByCount(groups, &count, &groups[0], &rest, 0, 16));
    assert_int_equal(count, 1);
    assert_int_equal(rest.type, CU_DEV_RESOURCE_TYPE_INVALID);
    assert_int_equal(cuDevSmResourceSplitByCount(groups, &count, &input, NULL, 0, 133),
                     CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    assert_int_equal(cuDevSmResourceSplitByCount(groups, &count, &rest, NULL, 0, 8),
                     CUDA_ERROR_INVALID_RESOURCE_TYPE);
}

static void a_green_context_retains_the_primary_context(void **state)
{
    CUdevResource resource = whole(), observed;
    unsigned flags;
    int active;
    CUgreenCtx green = green_of(&resource), of_stream;
    CUcontext context, of_stream_context;
    CUstream stream;
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 1);
    assert_cuda(cuGreenCtxGetDevResource(green, &observed, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(observed.sm.smCount, 132);
    assert_cuda(cuCtxFromGreenCtx(&context, green));
    assert_int_equal(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    assert_cuda(cuStreamGetCtx_v2(stream, &of_stream_context, &of_stream));
    assert_ptr_equal(of_stream, green);
    assert_ptr_equal(of_stream_context, context);
    assert_cuda(cuStreamDestroy_v2(stream));
    assert_cuda(cuGreenCtxDestroy(green));
    assert_int_equal(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);
}

static atomic_bool is_open;

static void wait_open(void *argument)
{
    while (!is_open)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void events_stand_for_all_of_its_streams_and_hold_them_all(void **state)
{
    CUdevResource resource = whole();
    CUgreenCtx first = green_of(&resource), second = green_of(&resource);
    CUstream streams[2], early, late;
    CUevent event;
    CUcontext context;
    for (unsigned i = 0; i < 2; i++)
        assert_cuda(cuGreenCtxStreamCreate(&streams[i], first, CU_STREAM_NON_BLOCKING, 0));
    assert_cuda(cuGreenCtxStreamCreate(&early, second, CU_STREAM_NON_BLOCKING, 0));
    assert_cuda(cuCtxFromGreenCtx(&context, first));
    assert_cuda(cuCtxPushCurrent_v2(context));
    assert_cuda(cuEventCreate(&event, 0));
    assert_cuda(cuLaunchHostFunc(streams[1], wait_open, NULL));
    assert_cuda(cuGreenCtxRecordEvent(first, event));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_cuda(cuStreamQuery(streams[0])); /* only told of, not held */
    assert_cuda(cuGreenCtxWaitEvent(second, event));
    assert_cuda(cuGreenCtxStreamCreate(&late, second, CU_STREAM_NON_BLOCKING, 0));
    assert_int_equal(cuStreamQuery(early), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery(late), CUDA_ERROR_NOT_READY);
    is_open = true;
    assert_cuda(cuStreamSynchronize(early));
    assert_cuda(cuStreamSynchronize(late));
    assert_cuda(cuEventQuery(event));
    assert_cuda(cuCtxPopCurrent_v2(NULL));
    assert_cuda(cuGreenCtxDestroy(first));
    assert_cuda(cuGreenCtxDestroy(second));
}

static void attributes_of_streams_are_kept_and_copied(void **state)
{
    CUcontext context;
    CUstream first, second;
    CUstreamAttrValue value = {0};
    int policy = 4;
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuStreamCreate(&first, 0));
    assert_cuda(cuStreamCreate(&second, 0));
    memcpy(&value, &policy, sizeof(policy));
    assert_cuda(cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    assert_cuda(cuStreamGetAttribute(second, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    assert_int_equal(value.priority, 1); /* the first member of all: automatic */
    assert_cuda(cuStreamCopyAttributes(second, first));
    assert_cuda(cuStreamGetAttribute(second, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    assert_int_equal(value.priority, 4);
    value.priority = 9;
    assert_int_equal(cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
                     CUDA_ERROR_INVALID_VALUE);
    value.priority = -3;
    assert_cuda(cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    assert_cuda(cuStreamGetPriority(first, &policy));
    assert_int_equal(policy, -3);

    CUdeviceptr managed, plain;
    assert_cuda(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_HOST));
    assert_cuda(cuMemAlloc_v2(&plain, 4096));
    assert_cuda(cuStreamAttachMemAsync(first, managed, 0, CU_MEM_ATTACH_SINGLE));
    assert_cuda(cuStreamAttachMemAsync(NULL, managed, 4096, CU_MEM_ATTACH_GLOBAL));
    assert_int_equal(cuStreamAttachMemAsync(NULL, managed, 0, CU_MEM_ATTACH_SINGLE),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamAttachMemAsync(first, managed, 1, CU_MEM_ATTACH_SINGLE),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamAttachMemAsync(first, plain, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuCtxDestroy_v2(context));
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_DEVICE=h100", "FAKECUDA_TOTAL_MEM=1GiB", NULL});
    if (cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multiprocessors_are_split_in_the_sizes_there_are),
        cmocka_unit_test(a_green_context_retains_the_primary_context),
        cmocka_unit_test(events_stand_for_all_of_its_streams_and_hold_them_all),
        cmocka_unit_test(attributes_of_streams_are_kept_and_copied),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
