/* Tests of the runtime as programs use it, in either version (CUDART_MAJOR), on two simulated GPUs:
 * registering device code as nvcc's start-up code does, launching, memory, devices and threads. */
#include "../simgpu/simulated.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "cuda/runtime_prototypes.h"

/* The simulated driver keeps its handles for good (sim.h), which is a leak to the sanitizer once they are
 * dropped. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcuda.so.1";
}

#define TOTAL_BYTES (64 * MIB)
#define assert_success(call) assert_int_equal(call, cudaSuccess)

/* What a host program has of its device code: stand-ins for the kernels, shadows of the variables. */
static void fill_stand_in(void)
{
}
static void absent_stand_in(void)
{
}
static void unregistered_stand_in(void)
{
}
static char counter_shadow, absent_shadow, unregistered_shadow;
static void **program;

static void **register_program(void)
{
    void **handle = __cudaRegisterFatBinary((void *)(uintptr_t)SIMULATED_PTX);
    __cudaRegisterFunction(handle, (const char *)fill_stand_in, NULL, "gs_fill_u32", -1, NULL, NULL, NULL,
                           NULL, NULL);
    __cudaRegisterFunction(handle, (const char *)absent_stand_in, NULL, "absent", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterVar(handle, &counter_shadow, NULL, "counter", 0, 16, 0, 0);
    __cudaRegisterVar(handle, &absent_shadow, NULL, "absent", 0, 16, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    return handle;
}

static cudaError_t fill(const void *kernel, void *pointer, uint32_t value, uint64_t count,
                        cudaStream_t stream)
{
    void *arguments[] = {&pointer, &value, &count};
    return cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 0, stream);
}

static int forget_errors(void **state)
{
    cudaSetDevice(0);
    cudaGetLastError();
    return 0;
}

static void a_registered_kernel_runs(void **state)
{
    uint32_t *device, host[64] = {0};
    assert_success(cudaMalloc((void **)&device, sizeof host));
    assert_success(fill((const void *)fill_stand_in, device, 0xabcd, 64, NULL));
    assert_success(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    assert_int_equal(host[0], 0xabcd);
    assert_int_equal(host[63], 0xabcd);
    assert_success(cudaFree(device));
}

static void a_kernel_runs_by_its_handles_too(void **state)
{
    uint32_t *device, host = 0;
    cudaKernel_t kernel, stand_in;
    cudaFunction_t function;
    assert_success(cudaMalloc((void **)&device, sizeof host));
    assert_success(cudaGetKernel(&kernel, (const void *)fill_stand_in));
    assert_success(cudaGetFuncBySymbol(&function, (const void *)fill_stand_in));
    assert_success(fill(kernel, device, 5, 1, NULL));
    assert_success(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    assert_int_equal(host, 5);

    assert_success(__cudaGetKernel(&stand_in, (const void *)fill_stand_in));
    uint32_t value = 6;
    uint64_t count = 1;
    void *arguments[] = {&device, &value, &count};
    assert_success(__cudaLaunchKernel(stand_in, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, NULL));
    assert_success(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    assert_int_equal(host, 6);
    assert_success(cudaFree(device));
}

static void kernels_that_are_not_there_are_invalid_functions(void **state)
{
    const char *name;
    assert_int_equal(fill((const void *)unregistered_stand_in, NULL, 0, 0, NULL),
                     cudaErrorInvalidDeviceFunction);
    assert_int_equal(fill((const void *)absent_stand_in, NULL, 0, 0, NULL), cudaErrorInvalidDeviceFunction);
    assert_int_equal(fill(NULL, NULL, 0, 0, NULL), cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaFuncGetName(&name, (const void *)unregistered_stand_in),
                     cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
}

static void impossible_shapes_are_an_invalid_configuration(void **state)
{
    void *arguments[] = {NULL, NULL, NULL};
    const void *kernel = (const void *)fill_stand_in;
    assert_int_equal(cudaLaunchKernel(kernel, (dim3){0, 1, 1}, (dim3){1, 1, 1}, arguments, 0, NULL),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){1025, 1, 1}, arguments, 0, NULL),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){64, 64, 1}, arguments, 0, NULL),
                     cudaErrorInvalidConfiguration);
}

static void call_configurations_nest(void **state)
{
    dim3 grid, block;
    size_t bytes;
    cudaStream_t stream;
    assert_int_equal(__cudaPushCallConfiguration((dim3){1, 2, 3}, (dim3){4, 5, 6}, 7, cudaStreamLegacy), 0);
    assert_int_equal(__cudaPushCallConfiguration((dim3){8, 1, 1}, (dim3){9, 1, 1}, 10, cudaStreamPerThread),
                     0);
    assert_success(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
    assert_int_equal(grid.x, 8);
    assert_int_equal(bytes, 10);
    assert_ptr_equal(stream, cudaStreamPerThread);
    assert_success(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
    assert_int_equal(grid.z, 3);
    assert_int_equal(block.y, 5);
    assert_int_equal(bytes, 7);
    assert_ptr_equal(stream, cudaStreamLegacy);
    assert_int_equal(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream),
                     cudaErrorMissingConfiguration);
}

static void variables_are_copied_by_their_symbol(void **state)
{
    uint32_t values[4] = {0}, two[2] = {50, 60};
    size_t bytes = 0;
    void *address;
    assert_success(cudaGetSymbolSize(&bytes, &counter_shadow));
    assert_int_equal(bytes, 16);
    assert_success(cudaMemcpyFromSymbol(values, &counter_shadow, 16, 0, cudaMemcpyDeviceToHost));
    assert_int_equal(values[3], 4); /* as the image says */
    assert_success(cudaMemcpyToSymbol(&counter_shadow, two, 8, 4, cudaMemcpyHostToDevice));
    assert_success(cudaGetSymbolAddress(&address, &counter_shadow));
    assert_success(cudaMemcpy(values, address, 16, cudaMemcpyDeviceToHost));
    assert_int_equal(values[0], 1);
    assert_int_equal(values[1], 50);
    assert_int_equal(values[2], 60);
    assert_int_equal(values[3], 4);
}

static void copies_stay_inside_the_variable(void **state)
{
    uint32_t values[5] = {0};
    assert_int_equal(cudaMemcpyFromSymbol(values, &counter_shadow, 17, 0, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyFromSymbol(values, &counter_shadow, 4, 16, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyFromSymbol(values, &counter_shadow, 4, SIZE_MAX, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyFromSymbol(values, &counter_shadow, 4, 0, cudaMemcpyHostToDevice),
                     cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaMemcpyToSymbol(&counter_shadow, values, 4, 0, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidMemcpyDirection);
}

static void variables_that_are_not_there_are_invalid_symbols(void **state)
{
    void *address;
    assert_int_equal(cudaGetSymbolAddress(&address, &unregistered_shadow), cudaErrorInvalidSymbol);
    assert_int_equal(cudaGetSymbolAddress(&address, &absent_shadow), cudaErrorInvalidSymbol);
    assert_int_equal(cudaGetSymbolAddress(&address, (const void *)fill_stand_in), cudaErrorInvalidSymbol);
}

static void an_unregistered_program_is_gone(void **state)
{
    static char shadow;
    void *address;
    void **handle = __cudaRegisterFatBinary((void *)(uintptr_t)SIMULATED_PTX);
    __cudaRegisterVar(handle, &shadow, NULL, "counter", 0, 16, 0, 0);
    assert_success(cudaGetSymbolAddress(&address, &shadow));
    __cudaUnregisterFatBinary(handle);
    assert_int_equal(cudaGetSymbolAddress(&address, &shadow), cudaErrorInvalidSymbol);
}

static void an_image_that_does_not_load_says_why(void **state)
{
    static char shadow;
    void *address;
    void **handle = __cudaRegisterFatBinary((void *)(uintptr_t) "this is no device code");
    __cudaRegisterVar(handle, &shadow, NULL, "counter", 0, 16, 0, 0);
    cudaError_t error = cudaGetSymbolAddress(&address, &shadow);
    assert_true(error == cudaErrorInvalidKernelImage || error == cudaErrorInvalidPtx);
    __cudaUnregisterFatBinary(handle);
}

static void memory_is_given_and_taken_back(void **state)
{
    size_t before, after, total, pitch;
    void *linear, *rows, *managed, *pinned, *nothing = &before;
    struct cudaPitchedPtr box;
    assert_success(cudaMemGetInfo(&before, &total));
    assert_int_equal(total, TOTAL_BYTES);
    assert_success(cudaMalloc(&linear, 4 * MIB));
    assert_success(cudaMallocPitch(&rows, &pitch, 1000, 1000));
    assert_true(pitch >= 1000 && pitch % 256 == 0);
    assert_success(cudaMalloc3D(&box, (struct cudaExtent){100, 50, 20}));
    assert_int_equal(box.xsize, 100);
    assert_int_equal(box.ysize, 50);
    assert_success(cudaMallocManaged(&managed, 1 * MIB, cudaMemAttachGlobal));
    assert_success(cudaMallocHost(&pinned, 4 * MIB));
    assert_success(cudaMemGetInfo(&after, &total));
    assert_true(before - after >= 4 * MIB + pitch * 1000 + box.pitch * 50 * 20);
    assert_success(cudaFree(linear));
    assert_success(cudaFree(rows));
    assert_success(cudaFree(box.ptr));
    assert_success(cudaFree(managed));
    assert_success(cudaFreeHost(pinned));
    assert_success(cudaMemGetInfo(&after, &total));
    assert_int_equal(after, before);
    assert_success(cudaMalloc(&nothing, 0));
    assert_null(nothing);
    assert_success(cudaFree(NULL));
    assert_success(cudaFreeHost(NULL));
}

static void too_much_is_refused_and_told_once(void **state)
{
    void *pointer;
    assert_int_equal(cudaMalloc(&pointer, TOTAL_BYTES + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaFree(&pointer), cudaErrorInvalidValue);
}

static void boxes_are_filled_slice_by_slice(void **state)
{
    struct cudaPitchedPtr box;
    unsigned char rows[12 * 8];
    assert_success(cudaMalloc3D(&box, (struct cudaExtent){8, 4, 3}));
    assert_success(cudaMemset3D(box, 1, (struct cudaExtent){8, 4, 3}));
    assert_success(cudaMemset3D(box, 2, (struct cudaExtent){5, 2, 3}));
    assert_success(cudaMemcpy2D(rows, 8, box.ptr, box.pitch, 8, 12, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 12; y++)
        for (int x = 0; x < 8; x++)
            assert_int_equal(rows[y * 8 + x], x < 5 && y % 4 < 2 ? 2 : 1);
    assert_int_equal(cudaMemcpy2D(rows, 8, box.ptr, box.pitch, 9, 1, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidPitchValue);
    assert_success(cudaFree(box.ptr));
}

static void copies_go_where_the_kind_says(void **state)
{
    uint32_t from = 77, to = 0;
    void *a, *b;
    assert_success(cudaMalloc(&a, 4));
    assert_success(cudaMalloc(&b, 4));
    assert_success(cudaMemcpy(a, &from, 4, cudaMemcpyHostToDevice));
    assert_success(cudaMemcpy(b, a, 4, cudaMemcpyDeviceToDevice));
    assert_success(cudaMemcpy(&to, b, 4, cudaMemcpyDefault));
    assert_int_equal(to, 77);
    assert_success(cudaMemcpy(&from, &to, 4, cudaMemcpyHostToHost));
    assert_int_equal(cudaMemcpy(a, &from, 4, (enum cudaMemcpyKind)5), cudaErrorInvalidMemcpyDirection);
    assert_success(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDefault));
    assert_success(cudaFree(a));
    assert_success(cudaFree(b));
}

static void an_address_tells_what_it_is(void **state)
{
    struct cudaPointerAttributes attributes;
    void *device, *managed, *pinned;
    assert_success(cudaMalloc(&device, 4096));
    assert_success(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    assert_success(cudaMallocHost(&pinned, 4096));
    assert_success(cudaPointerGetAttributes(&attributes, (char *)device + 100));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    assert_int_equal(attributes.device, 0);
    assert_ptr_equal(attributes.devicePointer, (char *)device + 100);
    assert_success(cudaPointerGetAttributes(&attributes, managed));
    assert_int_equal(attributes.type, cudaMemoryTypeManaged);
    assert_success(cudaPointerGetAttributes(&attributes, pinned));
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    assert_success(cudaPointerGetAttributes(&attributes, &attributes));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    assert_int_equal(attributes.device, cudaInvalidDeviceId);
    assert_null(attributes.devicePointer);
    assert_success(cudaFree(device));
    assert_success(cudaFree(managed));
    assert_success(cudaFreeHost(pinned));
}

static void events_and_streams_keep_their_order(void **state)
{
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float milliseconds = -1;
    uint32_t *device, host = 0;
    assert_success(cudaMalloc((void **)&device, 4));
    assert_success(cudaStreamCreate(&stream));
    assert_success(cudaEventCreate(&begin));
    assert_success(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
    assert_success(cudaEventRecord(begin, stream));
    assert_success(fill((const void *)fill_stand_in, device, 9, 1, stream));
    assert_success(cudaMemcpyAsync(&host, device, 4, cudaMemcpyDeviceToHost, stream));
    assert_success(cudaEventRecord(end, stream));
    assert_success(cudaEventSynchronize(end));
    assert_success(cudaStreamQuery(stream));
    assert_int_equal(host, 9);
    assert_success(cudaEventElapsedTime(&milliseconds, begin, end));
    assert_true(milliseconds >= 0);
    assert_success(cudaEventDestroy(begin));
    assert_success(cudaEventDestroy(end));
    assert_success(cudaStreamDestroy(stream));
    assert_success(cudaFree(device));
}

static void the_per_thread_forms_mean_another_stream_0(void **state)
{
    unsigned long long legacy = 0, own = 0, named = 0;
    assert_success(cudaStreamGetId(NULL, &legacy));
    assert_success(cudaStreamGetId_ptsz(NULL, &own));
    assert_success(cudaStreamGetId(cudaStreamPerThread, &named));
    assert_true(legacy != own);
    assert_int_equal(own, named);
}

static void properties_are_the_drivers(void **state)
{
    struct cudaDeviceProp prop;
    CUuuid uuid;
    int value;
#if CUDART_MAJOR == 12
    struct cudart_properties_11 old;
    struct {
        struct cudart_properties_11 prop;
        unsigned char behind[16];
    } guarded;
    memset(&guarded, 0x5a, sizeof guarded);
    assert_success(cudaGetDeviceProperties(&guarded.prop, 1));
    assert_int_equal(guarded.behind[0], 0x5a); /* not one byte more than CUDA 11's programs have */
    old = guarded.prop;
    assert_success(cudaGetDeviceProperties_v2(&prop, 1));
    assert_memory_equal(&old, &prop, sizeof old);
    assert_success(cudaDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1));
    assert_int_equal(prop.clockRate, value);
#else
    assert_success(cudaGetDeviceProperties(&prop, 1));
#endif
    assert_string_equal(prop.name, "GPU Slice Simulated GPU");
    assert_int_equal(prop.totalGlobalMem, TOTAL_BYTES);
    assert_cuda(cuDeviceGetUuid_v2(&uuid, 1));
    assert_memory_equal(&prop.uuid, &uuid, sizeof uuid);
    assert_success(cudaDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1));
    assert_int_equal(prop.multiProcessorCount, value);
    assert_success(cudaDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 1));
    assert_int_equal(prop.maxThreadsDim[2], value);
    assert_success(cudaDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1));
    assert_int_equal(prop.reservedSharedMemPerBlock, value);
    assert_success(cudaDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1));
    assert_int_equal(prop.unifiedFunctionPointers, value);
}

static void versions_are_told(void **state)
{
    int version;
    assert_success(cudaRuntimeGetVersion(&version));
    assert_int_equal(version / 1000, CUDART_MAJOR);
    assert_success(cudaDriverGetVersion(&version));
    assert_int_equal(version, 13000);
}

static void devices_are_those_there_are(void **state)
{
    int value = -1;
    assert_success(cudaGetDeviceCount(&value));
    assert_int_equal(value, 2);
    assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    assert_success(cudaGetDevice(&value));
    assert_int_equal(value, 0);
    assert_int_equal(cudaSetDeviceFlags(0x100), cudaErrorInvalidValue);
}

static void *see_device(void *argument)
{
    int *device = argument;
    cudaGetDevice(&device[0]);
    cudaSetDevice(1);
    cudaGetDevice(&device[1]);
    return NULL;
}

static void threads_choose_their_own_device(void **state)
{
    int seen[2] = {-1, -1}, mine = -1;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, see_device, seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_success(cudaGetDevice(&mine));
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[1], 1);
    assert_int_equal(mine, 0);
}

#define THREADS 8

/* The kernel and the variable are first used by all threads at once. */
static void *launch_often(void *argument)
{
    uint32_t *device, seen = 0;
    cudaSetDevice(1);
    if (cudaMalloc((void **)&device, 4) != cudaSuccess)
        return "could not allocate";
    for (uint32_t i = 1; i <= 200; i++) {
        if (fill((const void *)fill_stand_in, device, i, 1, cudaStreamPerThread) != cudaSuccess ||
            cudaMemcpyAsync(&seen, device, 4, cudaMemcpyDeviceToHost, cudaStreamPerThread) != cudaSuccess ||
            cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess || seen != i)
            return "saw another value than was written";
        if (cudaMemcpyFromSymbol(&seen, &counter_shadow, 4, 12, cudaMemcpyDeviceToHost) != cudaSuccess ||
            seen != 4)
            return "saw another variable";
    }
    return cudaFree(device) == cudaSuccess ? NULL : "could not free";
}

static void threads_launch_side_by_side(void **state)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, launch_often, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *complaint;
        assert_int_equal(pthread_join(threads[i], &complaint), 0);
        if (complaint)
            fail_msg("%s", (const char *)complaint);
    }
}

static void a_variable_is_another_one_on_each_device(void **state)
{
    uint32_t value = 1234, seen = 0;
    assert_success(cudaMemcpyToSymbol(&counter_shadow, &value, 4, 0, cudaMemcpyHostToDevice));
    assert_success(cudaSetDevice(1));
    assert_success(cudaMemcpyFromSymbol(&seen, &counter_shadow, 4, 0, cudaMemcpyDeviceToHost));
    assert_int_equal(seen, 1);
}

static void contexts_made_with_the_driver_are_used(void **state)
{
    CUcontext context, current;
    int device = -1;
    void *pointer;
    assert_cuda(cuCtxCreate_v2(&context, 0, 1));
    assert_success(cudaGetDevice(&device));
    assert_int_equal(device, 1);
    assert_success(cudaMalloc(&pointer, 4096));
    assert_cuda(cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)pointer));
    assert_ptr_equal(current, context);
    assert_cuda(cuCtxDestroy_v2(context));
}

static void an_entry_point_is_the_drivers(void **state)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult result;
    assert_success(cudaGetDriverEntryPoint("cuMemAlloc", &function, 0, &result));
    assert_int_equal(result, cudaDriverEntryPointSuccess);
    assert_ptr_equal(function, cuMemAlloc_v2);
    assert_success(cudaGetDriverEntryPoint_ptsz("cuStreamQuery", &function, 0, &result));
    assert_ptr_equal(function, cuStreamQuery_ptsz);
    assert_success(cudaGetDriverEntryPoint("cuNothing", &function, 0, &result));
    assert_int_equal(result, cudaDriverEntryPointSymbolNotFound);
    assert_null(function);
    assert_success(cudaGetDriverEntryPointByVersion("cuCtxCreate", &function, 4000, 0, &result));
    assert_ptr_equal(function, cuCtxCreate_v2);
}

/* In a process of its own, for what it does to devices stays. */
static int in_a_child(int (*body)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(body());
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int allocate_after_fork(void)
{
    void *pointer;
    return (int)cudaMalloc(&pointer, 4);
}

static void a_child_of_a_process_that_used_the_gpu_cannot(void **state)
{
    assert_success(cudaFree(NULL));
    assert_int_equal(in_a_child(allocate_after_fork), cudaErrorInitializationError);
}

static void a_fault_stays_until_the_device_is_reset(void **state)
{
    void *pointer;
    uint32_t value = 0;
    assert_success(fill((const void *)fill_stand_in, (void *)0x1000, 1, 1, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&pointer, 4), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_success(cudaDeviceReset());
    assert_success(cudaGetLastError());
    assert_success(cudaMalloc(&pointer, 4));
    assert_success(fill((const void *)fill_stand_in, pointer, 8, 1, NULL));
    assert_success(cudaMemcpy(&value, pointer, 4, cudaMemcpyDeviceToHost));
    assert_int_equal(value, 8);
    assert_success(cudaMemcpyFromSymbol(&value, &counter_shadow, 4, 0, cudaMemcpyDeviceToHost));
    assert_int_equal(value, 1); /* as new */
}

static void *reset_here(void *argument)
{
    return (void *)(uintptr_t)cudaDeviceReset();
}

static void a_reset_by_another_thread_is_noticed(void **state)
{
    pthread_t thread;
    void *error, *pointer;
    assert_success(cudaMalloc(&pointer, 4));
    assert_int_equal(pthread_create(&thread, NULL, reset_here, NULL), 0);
    assert_int_equal(pthread_join(thread, &error), 0);
    assert_int_equal((uintptr_t)error, cudaSuccess);
    assert_success(cudaMalloc(&pointer, 4));
    assert_success(cudaFree(pointer));
}

/* An array of 3 rows of 4 bytes: 7 bytes from the middle of its first row end in the middle of its third. */
static void bytes_run_on_from_row_to_row_of_an_array(void **state)
{
    const struct cudaChannelFormatDesc channels = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    const char bytes[] = "abcdefg";
    char seen[13] = {0}, part[8] = {0};
    cudaArray_t array;
    assert_int_equal(cudaMallocArray(&array, &channels, 4, 3, 0), cudaSuccess);
    memset(seen, '.', 12);
    assert_int_equal(cudaMemcpyToArray(array, 0, 0, seen, 12, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemcpyToArray(array, 2, 0, bytes, 7, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemcpyFromArray(seen, array, 0, 0, 12, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_string_equal(seen, "..abcdefg...");
    assert_int_equal(cudaMemcpyFromArrayAsync(part, array, 3, 0, 6, cudaMemcpyDeviceToHost, NULL),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    assert_string_equal(part, "bcdefg");
    assert_int_equal(cudaMemcpyToArray(array, 4, 0, bytes, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyToArray(array, 0, 2, bytes, 7, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeArray(array), cudaSuccess);
}

static void what_cannot_be_done_says_so(void **state)
{
    assert_int_equal(cudaMemcpyArrayToArray(NULL, 0, 0, NULL, 0, 0, 0, cudaMemcpyDefault),
                     cudaErrorNotSupported);
    assert_int_equal(cudaGetLastError(), cudaErrorNotSupported);
}

static void function_attributes_are_set_and_read(void **state)
{
    struct cudaFuncAttributes attributes;
    int blocks = 0;
    assert_success(cudaFuncSetAttribute((const void *)fill_stand_in,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    assert_success(cudaFuncGetAttributes(&attributes, (const void *)fill_stand_in));
    assert_int_equal(attributes.maxDynamicSharedSizeBytes, 65536);
    assert_int_equal(attributes.maxThreadsPerBlock, 1024);
    assert_success(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)fill_stand_in, 1024, 0));
    assert_int_equal(blocks, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_launch_side_by_side, forget_errors), /* first: nothing is loaded yet */
        cmocka_unit_test_setup(a_registered_kernel_runs, forget_errors),
        cmocka_unit_test_setup(a_kernel_runs_by_its_handles_too, forget_errors),
        cmocka_unit_test_setup(kernels_that_are_not_there_are_invalid_functions, forget_errors),
        cmocka_unit_test_setup(impossible_shapes_are_an_invalid_configuration, forget_errors),
        cmocka_unit_test_setup(call_configurations_nest, forget_errors),
        cmocka_unit_test_setup(variables_are_copied_by_their_symbol, forget_errors),
        cmocka_unit_test_setup(copies_stay_inside_the_variable, forget_errors),
        cmocka_unit_test_setup(variables_that_are_not_there_are_invalid_symbols, forget_errors),
        cmocka_unit_test_setup(an_unregistered_program_is_gone, forget_errors),
        cmocka_unit_test_setup(an_image_that_does_not_load_says_why, forget_errors),
        cmocka_unit_test_setup(function_attributes_are_set_and_read, forget_errors),
        cmocka_unit_test_setup(memory_is_given_and_taken_back, forget_errors),
        cmocka_unit_test_setup(too_much_is_refused_and_told_once, forget_errors),
        cmocka_unit_test_setup(boxes_are_filled_slice_by_slice, forget_errors),
        cmocka_unit_test_setup(copies_go_where_the_kind_says, forget_errors),
        cmocka_unit_test_setup(an_address_tells_what_it_is, forget_errors),
        cmocka_unit_test_setup(events_and_streams_keep_their_order, forget_errors),
        cmocka_unit_test_setup(the_per_thread_forms_mean_another_stream_0, forget_errors),
        cmocka_unit_test_setup(properties_are_the_drivers, forget_errors),
        cmocka_unit_test_setup(versions_are_told, forget_errors),
        cmocka_unit_test_setup(devices_are_those_there_are, forget_errors),
        cmocka_unit_test_setup(threads_choose_their_own_device, forget_errors),
        cmocka_unit_test_setup(a_variable_is_another_one_on_each_device, forget_errors),
        cmocka_unit_test_setup(contexts_made_with_the_driver_are_used, forget_errors),
        cmocka_unit_test_setup(an_entry_point_is_the_drivers, forget_errors),
        cmocka_unit_test_setup(a_child_of_a_process_that_used_the_gpu_cannot, forget_errors),
        cmocka_unit_test_setup(bytes_run_on_from_row_to_row_of_an_array, forget_errors),
        cmocka_unit_test_setup(what_cannot_be_done_says_so, forget_errors),
        cmocka_unit_test_setup(a_reset_by_another_thread_is_noticed, forget_errors),
        cmocka_unit_test_setup(a_fault_stays_until_the_device_is_reset, forget_errors),
    };
    simulated_choose(
        (char *[]){"FAKECUDA_GPUS=2", "FAKECUDA_TOTAL_MEM=67108864", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    program = register_program();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    __cudaUnregisterFatBinary(program);
    simulated_remove();
    return failed;
}
