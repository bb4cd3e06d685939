/* streams.c - claims about streams, events, host functions, launches and faults. */
#include <stddef.h>
#include <time.h>

#include "gpucheck/claims/claim.h"

static void streams(void)
{
    CUstream stream, blocking, other;
    struct gate gate;
    unsigned flags = 99;
    int least, greatest;
    CUcontext context = need_context(), observed;
    claim_result("cuStreamCreate of NULL", CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
    claim_result("cuStreamCreate with an unknown flag", CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 2));
    need("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    need("cuStreamCreate", cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    need("cuStreamGetFlags", cuStreamGetFlags(stream, &flags));
    claim_number("a non-blocking stream says so", CU_STREAM_NON_BLOCKING, flags);
    need("cuStreamGetFlags", cuStreamGetFlags(NULL, &flags));
    claim_number("the default stream's flags", CU_STREAM_DEFAULT, flags);
    need("cuStreamGetCtx", cuStreamGetCtx(stream, &observed));
    claim_true("a stream tells its context", "the same", observed == context);
    need("cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange(&least, &greatest));
    claim_number("the least priority", 0, (uint64_t)least);
    claim_true("the greatest priority is a lower number", "below 0", greatest < 0);
    need("cuStreamCreateWithPriority", cuStreamCreateWithPriority(&other, 0, -1000));
    int priority = 0;
    need("cuStreamGetPriority", cuStreamGetPriority(other, &priority));
    claim_true("a priority out of range is brought into it", "the greatest", priority == greatest);

    claim_result("cuStreamQuery of an idle stream", CUDA_SUCCESS, cuStreamQuery(stream));
    gate_close(&gate, stream);
    claim_result("cuStreamQuery of a stream with work", CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    claim_result("the default stream does not wait for a non-blocking one", CUDA_SUCCESS,
                 cuStreamQuery(NULL));
    claim_result("cuStreamSynchronize of another stream returns", CUDA_SUCCESS,
                 cuStreamSynchronize(blocking));
    gate_open(&gate);
    claim_result("cuStreamSynchronize waits", CUDA_SUCCESS, cuStreamSynchronize(stream));
    claim_result("cuStreamQuery after cuStreamSynchronize", CUDA_SUCCESS, cuStreamQuery(stream));

    gate_close(&gate, blocking);
    claim_result("the default stream waits for a blocking one", CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    claim_result("blocking streams do not wait for each other", CUDA_SUCCESS, cuStreamQuery(other));
    gate_open(&gate);
    need("cuCtxSynchronize", cuCtxSynchronize());
    gate_close(&gate, CU_STREAM_PER_THREAD);
    claim_result("the default stream waits for a thread's own", CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    gate_open(&gate);
    need("cuCtxSynchronize", cuCtxSynchronize());
    gate_close(&gate, NULL);
    CUevent event;
    need("cuEventCreate", cuEventCreate(&event, 0));
    need("cuEventRecord", cuEventRecord(event, blocking));
    claim_result("a blocking stream waits for the default stream", CUDA_ERROR_NOT_READY, cuEventQuery(event));
    need("cuEventRecord", cuEventRecord(event, stream));
    claim_result("a non-blocking stream does not", CUDA_SUCCESS, cuEventQuery(event));
    need("cuEventRecord", cuEventRecord(event, CU_STREAM_PER_THREAD));
    claim_result("the per-thread default stream waits for the default stream", CUDA_ERROR_NOT_READY,
                 cuEventQuery(event));
    gate_open(&gate);
    need("cuCtxSynchronize", cuCtxSynchronize());

    gate_close(&gate, stream);
    claim_result("cuStreamDestroy of a stream with work returns", CUDA_SUCCESS, cuStreamDestroy_v2(stream));
    gate_open(&gate);
    claim_result("cuCtxSynchronize waits for a destroyed stream's work", CUDA_SUCCESS, cuCtxSynchronize());
    claim_result("cuStreamDestroy of the default stream", CUDA_ERROR_INVALID_HANDLE,
                 cuStreamDestroy_v2(NULL));
}

static void events(void)
{
    CUevent first, second, untimed;
    CUstream stream, other;
    struct gate gate;
    float milliseconds = -1;
    need_context();
    need("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    need("cuStreamCreate", cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    claim_result("cuEventCreate of NULL", CUDA_ERROR_INVALID_VALUE, cuEventCreate(NULL, 0));
    claim_result("cuEventCreate with an unknown flag", CUDA_ERROR_INVALID_VALUE, cuEventCreate(&first, 64));
    claim_result("cuEventCreate between processes with timing", CUDA_ERROR_INVALID_VALUE,
                 cuEventCreate(&first, CU_EVENT_INTERPROCESS));
    need("cuEventCreate", cuEventCreate(&first, 0));
    need("cuEventCreate", cuEventCreate(&second, 0));
    need("cuEventCreate", cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    claim_result("cuEventQuery before any record", CUDA_SUCCESS, cuEventQuery(first));
    claim_result("cuEventSynchronize before any record", CUDA_SUCCESS, cuEventSynchronize(first));
    claim_result("cuEventElapsedTime before any record", CUDA_ERROR_INVALID_HANDLE,
                 cuEventElapsedTime(&milliseconds, first, second));
    need("cuEventRecord", cuEventRecord(first, stream));
    gate_close(&gate, stream);
    need("cuEventRecord", cuEventRecord(second, stream));
    need("cuEventRecord", cuEventRecord(untimed, stream));
    claim_result("cuEventQuery behind work", CUDA_ERROR_NOT_READY, cuEventQuery(second));
    claim_result("cuEventElapsedTime behind work", CUDA_ERROR_NOT_READY,
                 cuEventElapsedTime(&milliseconds, first, second));
    need("cuStreamWaitEvent", cuStreamWaitEvent(other, second, 0));
    claim_result("a stream waits for an event", CUDA_ERROR_NOT_READY, cuStreamQuery(other));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    gate_open(&gate);
    need("cuEventSynchronize", cuEventSynchronize(second));
    claim_result("an event's other waiters go on with it", CUDA_SUCCESS, cuStreamSynchronize(other));
    need("cuEventElapsedTime", cuEventElapsedTime(&milliseconds, first, second));
    claim_true("the time between events is that of the work between", "20 ms or more", milliseconds >= 19.9f);
    claim_result("cuEventElapsedTime without timing", CUDA_ERROR_INVALID_HANDLE,
                 cuEventElapsedTime(&milliseconds, first, untimed));
    need("cuEventElapsedTime", cuEventElapsedTime(&milliseconds, second, first));
    claim_true("the time backwards is negative", "-20 ms or less", milliseconds <= -19.9f);
    claim_result("cuEventElapsedTime into NULL", CUDA_ERROR_INVALID_VALUE,
                 cuEventElapsedTime(NULL, first, second));
}

static _Atomic int calls, order_broken;

static void count_call(void *expected)
{
    if (calls++ != (int)(intptr_t)expected)
        order_broken = 1;
}

static void count_callback(CUstream stream, CUresult status, void *expected)
{
    count_call(status == CUDA_SUCCESS ? expected : (void *)(intptr_t)-1);
}

static void host_functions(void)
{
    CUstream stream;
    struct gate gate;
    need_context();
    need("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    claim_result("cuLaunchHostFunc of NULL", CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream, NULL, NULL));
    claim_result("cuStreamAddCallback with flags", CUDA_ERROR_INVALID_VALUE,
                 cuStreamAddCallback(stream, count_callback, NULL, 1));
    gate_close(&gate, stream);
    for (int i = 0; i < 10; i++)
        if (i % 2)
            need("cuStreamAddCallback", cuStreamAddCallback(stream, count_callback, (void *)(intptr_t)i, 0));
        else
            need("cuLaunchHostFunc", cuLaunchHostFunc(stream, count_call, (void *)(intptr_t)i));
    claim_number("host functions wait for work before them", 0, (uint64_t)calls);
    gate_open(&gate);
    need("cuStreamSynchronize", cuStreamSynchronize(stream));
    claim_number("synchronising waits for host functions", 10, (uint64_t)calls);
    claim_number("host functions run in order", 0, (uint64_t)order_broken);
}

static void modules(void)
{
    CUmodule module;
    CUfunction function, other;
    CUdeviceptr pointer;
    static const char nothing[64] = "\177ELF this is no image";
    static const char empty[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .global .align 4 .u32 numbers[4];\n.visible .entry one() { ret; }\n";
    size_t bytes;
    int value;
    need_context();
    claim_result("cuModuleLoadData of NULL", CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
    claim_result("cuModuleLoadData of a damaged cubin", CUDA_ERROR_INVALID_IMAGE,
                 cuModuleLoadData(&module, nothing));
    claim_result("cuModuleLoad of no file", CUDA_ERROR_FILE_NOT_FOUND,
                 cuModuleLoad(&module, "/no/such/file"));
    need("cuModuleLoadData", cuModuleLoadData(&module, empty));
    claim_result("cuModuleGetFunction of an unknown name", CUDA_ERROR_NOT_FOUND,
                 cuModuleGetFunction(&function, module, "two"));
    need("cuModuleGetFunction", cuModuleGetFunction(&function, module, "one"));
    need("cuModuleGetFunction", cuModuleGetFunction(&other, module, "one"));
    claim_true("one name is one function", "the same", function == other);
    need("cuModuleGetGlobal_v2", cuModuleGetGlobal_v2(&pointer, &bytes, module, "numbers"));
    claim_number("the bytes of a global", 16, bytes);
    need("cuFuncGetAttribute", cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    claim_number("most threads of a block", 1024, (uint64_t)value);
    claim_result("cuLaunchKernel of no blocks", CUDA_ERROR_INVALID_VALUE,
                 cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    claim_result("cuLaunchKernel of too many threads", CUDA_ERROR_INVALID_VALUE,
                 cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
    claim_result("cuLaunchKernel of no function", CUDA_ERROR_INVALID_HANDLE,
                 cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    claim_result("cuLaunchKernel", CUDA_SUCCESS,
                 cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    need("cuCtxSynchronize", cuCtxSynchronize());
    claim_result("cuModuleUnload", CUDA_SUCCESS, cuModuleUnload(module));
}

static void kernels(void)
{
    CUdeviceptr pointer;
    unsigned value = 77, observed = 0;
    unsigned long long count = 1;
    need_context();
    CUfunction store = need_store_kernel();
    need("cuMemAlloc_v2", cuMemAlloc_v2(&pointer, 4));
    void *arguments[] = {&pointer, &value, &count};
    need("cuLaunchKernel", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    need("cuMemcpyDtoH_v2", cuMemcpyDtoH_v2(&observed, pointer, 4));
    claim_number("a copy on the default stream sees what the kernel before it wrote", 77, observed);
    CUdeviceptr nowhere = 16;
    arguments[0] = &nowhere;
    claim_result("launching a kernel that will fail", CUDA_SUCCESS,
                 cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    claim_result("its fault shows when the host synchronises", CUDA_ERROR_ILLEGAL_ADDRESS,
                 cuCtxSynchronize());
    claim_result("and in every later call of the context: cuMemAlloc", CUDA_ERROR_ILLEGAL_ADDRESS,
                 cuMemAlloc_v2(&pointer, 4));
    claim_result("and in every later call of the context: cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS,
                 cuStreamQuery(NULL));
}

const struct group groups_of_streams[] = {
    {"streams", streams}, {"events", events},   {"host-calls", host_functions},
    {"modules", modules}, {"kernels", kernels}, {NULL, NULL},
};
