/* contexts.c - claims about initialisation, devices, contexts and finding entry points. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpucheck/claims/claim.h"

static void before_init(void)
{
    int count, version;
    const char *text;
    CUcontext context;
    CUdeviceptr pointer;
    claim_result("cuDriverGetVersion needs no cuInit", CUDA_SUCCESS, cuDriverGetVersion(&version));
    claim_result("cuDriverGetVersion of NULL", CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(NULL));
    claim_result("cuDeviceGetCount before cuInit", CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    claim_result("cuCtxGetCurrent before cuInit", CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
    claim_result("cuMemAlloc before cuInit", CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&pointer, 1));
    claim_result("cuDevicePrimaryCtxRetain before cuInit", CUDA_ERROR_NOT_INITIALIZED,
                 cuDevicePrimaryCtxRetain(&context, 0));
    claim_result("cuGetErrorName needs no cuInit", CUDA_SUCCESS,
                 cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    claim_result("cuGetErrorName of no result", CUDA_ERROR_INVALID_VALUE,
                 cuGetErrorName((CUresult)12345, &text));
    claim_true("cuGetErrorName of no result sets NULL", "NULL", text == NULL);
    claim_result("cuGetErrorString of no result", CUDA_ERROR_INVALID_VALUE,
                 cuGetErrorString((CUresult)12345, &text));
    claim_result("cuInit with a flag", CUDA_ERROR_INVALID_VALUE, cuInit(1));
    claim_result("cuInit", CUDA_SUCCESS, cuInit(0));
    claim_result("cuInit a second time", CUDA_SUCCESS, cuInit(0));
}

static void after_fork(void)
{
    need("cuInit", cuInit(0));
    int ends[2];
    CUresult results[2] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN};
    if (pipe(ends) < 0)
        _exit(3);
    pid_t child = fork();
    if (child == 0) {
        int count;
        alarm(5); /* the group's own is not inherited */
        results[0] = cuInit(0);
        results[1] = cuDeviceGetCount(&count);
        _exit(write(ends[1], results, sizeof(results)) == (ssize_t)sizeof(results) ? 0 : 3);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], results, sizeof(results)) != (ssize_t)sizeof(results))
        _exit(3);
    waitpid(child, NULL, 0);
    claim_result("cuInit in a child forked after cuInit", CUDA_ERROR_NOT_INITIALIZED, results[0]);
    claim_result("cuDeviceGetCount in a child forked after cuInit", CUDA_ERROR_NOT_INITIALIZED, results[1]);
}

static void devices(void)
{
    int count, value;
    CUdevice device;
    size_t bytes;
    char text[64];
    need("cuInit", cuInit(0));
    need("cuDeviceGetCount", cuDeviceGetCount(&count));
    claim_result("cuDeviceGetCount of NULL", CUDA_ERROR_INVALID_VALUE, cuDeviceGetCount(NULL));
    claim_result("cuDeviceGet of an ordinal too high", CUDA_ERROR_INVALID_DEVICE,
                 cuDeviceGet(&device, count));
    claim_result("cuDeviceGet of ordinal -1", CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
    claim_result("cuDeviceGet of NULL", CUDA_ERROR_INVALID_VALUE, cuDeviceGet(NULL, 0));
    claim_result("cuDeviceGetName with no room", CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(text, 0, 0));
    claim_result("cuDeviceTotalMem of NULL", CUDA_ERROR_INVALID_VALUE, cuDeviceTotalMem_v2(NULL, 0));
    claim_result("cuDeviceTotalMem of no device", CUDA_ERROR_INVALID_DEVICE,
                 cuDeviceTotalMem_v2(&bytes, count));
    claim_result("cuDeviceGetAttribute of attribute 0", CUDA_ERROR_INVALID_VALUE,
                 cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0));
    claim_result("cuDeviceGetAttribute into NULL", CUDA_ERROR_INVALID_VALUE,
                 cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    need("cuDeviceGetAttribute", cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    claim_number("a warp's threads", 32, (uint64_t)value);
    need("cuDeviceGetAttribute", cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 0));
    claim_number("the alignment of textures in bytes", 512, (uint64_t)value);
    need("cuDeviceGetPCIBusId", cuDeviceGetPCIBusId(text, sizeof(text), 0));
    claim_number("the length of a PCI bus id", 12, strlen(text));
    claim_result("cuDeviceGetPCIBusId with too little room", CUDA_ERROR_INVALID_VALUE,
                 cuDeviceGetPCIBusId(text + 16, 5, 0));
    claim_result("cuDeviceGetByPCIBusId of what cuDeviceGetPCIBusId said", CUDA_SUCCESS,
                 cuDeviceGetByPCIBusId(&device, text));
    claim_number("cuDeviceGetByPCIBusId finds the device", 0, (uint64_t)device);
    claim_result("cuDeviceGetByPCIBusId of no id", CUDA_ERROR_INVALID_VALUE,
                 cuDeviceGetByPCIBusId(&device, "x"));
    value = 1;
    claim_result("cuDeviceCanAccessPeer of a device and itself", CUDA_SUCCESS,
                 cuDeviceCanAccessPeer(&value, 0, 0));
    claim_number("a device is no peer of itself", 0, (uint64_t)value);
}

static void no_context(void)
{
    CUcontext context = (CUcontext)&context;
    CUdevice device;
    CUdeviceptr pointer;
    CUstream stream;
    CUevent event;
    size_t bytes;
    void *host;
    need("cuInit", cuInit(0));
    claim_result("cuCtxGetCurrent without a context", CUDA_SUCCESS, cuCtxGetCurrent(&context));
    claim_true("cuCtxGetCurrent without a context sets NULL", "NULL", context == NULL);
    claim_result("cuCtxGetDevice without a context", CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    claim_result("cuCtxSynchronize without a context", CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    claim_result("cuCtxPopCurrent without a context", CUDA_ERROR_INVALID_CONTEXT,
                 cuCtxPopCurrent_v2(&context));
    claim_result("cuMemAlloc without a context", CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&pointer, 1));
    claim_result("cuMemGetInfo without a context", CUDA_ERROR_INVALID_CONTEXT,
                 cuMemGetInfo_v2(&bytes, &bytes));
    claim_result("cuMemHostAlloc without a context", CUDA_ERROR_INVALID_CONTEXT, cuMemHostAlloc(&host, 1, 0));
    claim_result("cuStreamCreate without a context", CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    claim_result("cuEventCreate without a context", CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&event, 0));
    claim_result("cuStreamSynchronize of the default stream without a context", CUDA_ERROR_INVALID_CONTEXT,
                 cuStreamSynchronize(NULL));
    claim_result("cuCtxSetCurrent of NULL without a context", CUDA_SUCCESS, cuCtxSetCurrent(NULL));
}

static void contexts(void)
{
    CUcontext first, second, current;
    CUdeviceptr pointer;
    unsigned flags;
    size_t before, after, total;
    need("cuInit", cuInit(0));
    claim_result("cuCtxCreate of NULL", CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(NULL, 0, 0));
    claim_result("cuCtxCreate on no device", CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&first, 0, 4711));
    claim_result("cuCtxCreate with two ways to wait", CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(&first, 3, 0));
    need("cuCtxCreate_v2", cuCtxCreate_v2(&first, CU_CTX_SCHED_SPIN, 0));
    need("cuCtxGetCurrent", cuCtxGetCurrent(&current));
    claim_true("cuCtxCreate makes the context current", "current", current == first);
    need("cuMemGetInfo_v2", cuMemGetInfo_v2(&before, &total));
    need("cuCtxCreate_v2", cuCtxCreate_v2(&second, 0, 0));
    need("cuMemGetInfo_v2", cuMemGetInfo_v2(&after, &total));
    claim_true("a second context of a process takes memory", "less is free", after < before);
    need("cuCtxGetCurrent", cuCtxGetCurrent(&current));
    claim_true("cuCtxCreate pushes on the context before", "the new one", current == second);
    claim_result("cuCtxDestroy of the current context", CUDA_SUCCESS, cuCtxDestroy_v2(second));
    need("cuCtxGetCurrent", cuCtxGetCurrent(&current));
    claim_true("cuCtxDestroy pops the current context", "the one before", current == first);
    claim_result("cuCtxDestroy of NULL", CUDA_ERROR_INVALID_VALUE, cuCtxDestroy_v2(NULL));
    claim_result("cuCtxGetFlags", CUDA_SUCCESS, cuCtxGetFlags(&flags));
    claim_number("cuCtxGetFlags tells the way to wait", CU_CTX_SCHED_SPIN, flags & CU_CTX_SCHED_MASK);
    claim_result("cuCtxPushCurrent of NULL", CUDA_ERROR_INVALID_VALUE, cuCtxPushCurrent_v2(NULL));
    need("cuCtxPushCurrent_v2", cuCtxPushCurrent_v2(first));
    claim_result("cuCtxPushCurrent of a context that is current", CUDA_SUCCESS, cuCtxPushCurrent_v2(first));
    need("cuCtxPopCurrent_v2", cuCtxPopCurrent_v2(&current));
    need("cuCtxPopCurrent_v2", cuCtxPopCurrent_v2(&current));
    claim_true("cuCtxPopCurrent tells what it popped", "the top", current == first);
    need("cuCtxCreate_v2", cuCtxCreate_v2(&second, 0, 0));
    need("cuCtxSetCurrent", cuCtxSetCurrent(first));
    need("cuCtxDestroy_v2", cuCtxDestroy_v2(second));
    /* The stack may still hold `second` below `first`; the current context lives. */
    claim_result("cuMemAlloc in another context than one destroyed", CUDA_SUCCESS,
                 cuMemAlloc_v2(&pointer, 1));
    need("cuCtxCreate_v2", cuCtxCreate_v2(&second, 0, 0));
    need("cuCtxPushCurrent_v2", cuCtxPushCurrent_v2(first));
    need("cuCtxDestroy_v2", cuCtxDestroy_v2(second));
    need("cuCtxPopCurrent_v2", cuCtxPopCurrent_v2(&current));
    claim_result("cuMemAlloc when the current context was destroyed", CUDA_ERROR_CONTEXT_IS_DESTROYED,
                 cuMemAlloc_v2(&pointer, 1));
}

static void primary_context(void)
{
    CUcontext first, second;
    unsigned flags;
    int active = -1;
    need("cuInit", cuInit(0));
    claim_result("cuDevicePrimaryCtxRelease before any retain", CUDA_ERROR_INVALID_CONTEXT,
                 cuDevicePrimaryCtxRelease_v2(0));
    need("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &active));
    claim_number("the primary context is inactive at first", 0, (uint64_t)active);
    need("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&first, 0));
    need("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&second, 0));
    claim_true("retaining twice gives one context", "the same", first == second);
    need("cuCtxGetCurrent", cuCtxGetCurrent(&second));
    claim_true("cuDevicePrimaryCtxRetain makes nothing current", "NULL", second == NULL);
    need("cuDevicePrimaryCtxRelease_v2", cuDevicePrimaryCtxRelease_v2(0));
    need("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &active));
    claim_number("one release of two retains keeps it active", 1, (uint64_t)active);
    need("cuDevicePrimaryCtxRelease_v2", cuDevicePrimaryCtxRelease_v2(0));
    need("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &active));
    claim_number("the last release ends it", 0, (uint64_t)active);
    claim_result("cuDevicePrimaryCtxRelease once too often", CUDA_ERROR_INVALID_CONTEXT,
                 cuDevicePrimaryCtxRelease_v2(0));
    need("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&second, 0));
    claim_true("a primary context retained anew has its old handle", "the same", first == second);
    claim_result("cuCtxDestroy of a primary context", CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(second));
    claim_result("cuDevicePrimaryCtxReset", CUDA_SUCCESS, cuDevicePrimaryCtxReset_v2(0));
    need("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &active));
    claim_number("a reset primary context is inactive", 0, (uint64_t)active);
    claim_result("cuDevicePrimaryCtxSetFlags with an unknown flag", CUDA_ERROR_INVALID_VALUE,
                 cuDevicePrimaryCtxSetFlags_v2(0, 1u << 20));
}

static void limits(void)
{
    size_t value;
    need_context();
    claim_result("cuCtxGetLimit of NULL", CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE));
    need("cuCtxGetLimit", cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    claim_number("a thread's stack in bytes", 1024, value);
    need("cuCtxGetLimit", cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    claim_number("the heap of device code in bytes", 8 * MIB, value);
    claim_result("cuCtxGetLimit of no limit", CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&value, CU_LIMIT_MAX));
}

static void *address_of(const char *name, int version, cuuint64_t flags)
{
    void *address = NULL;
    CUdriverProcAddressQueryResult status;
    need("cuGetProcAddress_v2", cuGetProcAddress_v2(name, &address, version, flags, &status));
    return address;
}

/* Compares with the symbol if the resolver gives symbols' addresses; else with what the resolver gives for other
 * queries. */
static bool is_function(const void *driver, const void *found, const char *symbol, const void *same,
                        const void *other)
{
    bool apart = address_of("cuInit", 12000, 0) != dlsym((void *)driver, "cuInit");
    return apart ? found == same && found != other : found == dlsym((void *)driver, symbol);
}

static void resolution(void)
{
    enum { PER_THREAD = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
    void *address, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CUdriverProcAddressQueryResult status;
    claim_result("cuGetProcAddress needs no cuInit", CUDA_SUCCESS,
                 cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, &status));
    claim_true("a name without version means the version asked for", "cuMemAlloc_v2",
               is_function(driver, address, "cuMemAlloc_v2", address_of("cuMemAlloc", 3020, 0),
                           address_of("cuMemAlloc", 2000, 0)));
    claim_number("the status of a name found", CU_GET_PROC_ADDRESS_SUCCESS, status);
    /* cuda.h 13.0: success, with NULL, whether the status is wanted or not. */
    claim_result("cuGetProcAddress of an unknown name", CUDA_SUCCESS,
                 cuGetProcAddress_v2("cuNoSuchName", &address, 12000, 0, &status));
    claim_number("the status of an unknown name", CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
    claim_true("an unknown name's address is NULL", "NULL", address == NULL);
    claim_result("cuGetProcAddress of a name newer than the version", CUDA_SUCCESS,
                 cuGetProcAddress_v2("cuMemAllocAsync", &address, 10000, 0, &status));
    claim_number("the status of a name newer than the version", CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
                 status);
    claim_result("cuGetProcAddress of a name newer than the version, no status", CUDA_SUCCESS,
                 cuGetProcAddress_v2("cuMemAllocAsync", &address, 10000, 0, NULL));
    claim_true("the address of a name newer than the version is NULL", "NULL", address == NULL);
    claim_result("cuGetProcAddress of NULL", CUDA_ERROR_INVALID_VALUE,
                 cuGetProcAddress_v2(NULL, &address, 12000, 0, &status));
    claim_result("cuGetProcAddress into NULL", CUDA_ERROR_INVALID_VALUE,
                 cuGetProcAddress_v2("cuInit", NULL, 12000, 0, &status));
    claim_result("cuGetProcAddress with both kinds of default stream", CUDA_ERROR_INVALID_VALUE,
                 cuGetProcAddress_v2("cuInit", &address, 12000, 3, &status));
    address = address_of("cuStreamSynchronize", 12000, PER_THREAD);
    claim_true("the per-thread flag gives the per-thread form", "cuStreamSynchronize_ptsz",
               is_function(driver, address, "cuStreamSynchronize_ptsz", address,
                           address_of("cuStreamSynchronize", 12000, 0)));
    address = address_of("cuCtxGetDevice", 12000, PER_THREAD);
    claim_true("a name without a per-thread form stays as it is", "cuCtxGetDevice",
               is_function(driver, address, "cuCtxGetDevice", address_of("cuCtxGetDevice", 12000, 0), NULL));
}

const struct group groups_of_contexts[] = {
    {"init", before_init},      {"fork", after_fork},       {"devices", devices},
    {"no-context", no_context}, {"contexts", contexts},     {"primary", primary_context},
    {"limits", limits},         {"resolution", resolution}, {NULL, NULL},
};
