/* puppet.c - a program on the driver API that does what it is told, line by line, and answers each with one
 * line: the driver's result, then values. It finds the driver as most programs do, by dlopen and dlsym.
 *
 *   context D, retain D, release D, reset D, destroy I       contexts; I: the number that `context` answered
 *   alloc B, managed B, pitch W H, async B, vmm B D, vmmhost B, map I    memory; answers the number of the
 * thing free I, freeasync I, unmap I, drop I (a vmm handle)      by that number null, zero, freenull wrong
 * calls sync, trim, info, total D, nvml D race T B KIND         T threads allocate B bytes each until
 * refused; answers how often they were not churn T N B           T threads allocate and free up to B bytes N
 * times fork                  a child reads on until `exit`; then the parent answers exec, close, pid, exit
 *
 *   array B                                                  the number of the thing, of B bytes in whole KiB
 *   capture M, captured                                      a stream is captured in mode M; and no more
 *   graph B F                                                one that takes B bytes and gives them back, launched, or uploaded
 *
 * More of them, of what processes share, are in puppet_share.c. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "cuda/nvml.h"
#include "puppet.h"

void *driver;
struct thing things[THINGS];
unsigned count;

void answer(const char *format, ...)
{
    char line[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, values);
    va_end(values);
    line[length] = '\n';
    if (write(1, line, (size_t)length + 1) < 0)
        _exit(3);
}

void answer_thing(CUresult result)
{
    if (result == CUDA_SUCCESS)
        count++;
    answer("%d %u", (int)result, result == CUDA_SUCCESS ? (count - 1) % THINGS : 0);
}

static CUresult make_physical(CUmemGenericAllocationHandle *handle, size_t bytes, CUmemLocationType type,
                              int id)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {type, id}};
    return call(cuMemCreate)(handle, bytes, &how, 0);
}

static CUresult take(const char *kind, size_t bytes, struct thing *thing)
{
    size_t pitch;
    if (strcmp(kind, "managed") == 0)
        return call(cuMemAllocManaged)(&thing->address, bytes, CU_MEM_ATTACH_GLOBAL);
    if (strcmp(kind, "async") == 0)
        return call(cuMemAllocAsync)(&thing->address, bytes, NULL);
    if (strcmp(kind, "vmm") == 0)
        return make_physical(&thing->handle, bytes, CU_MEM_LOCATION_TYPE_DEVICE, 0);
    if (strcmp(kind, "pitch") == 0)
        return call(cuMemAllocPitch_v2)(&thing->address, &pitch, bytes, 1, 4);
    return call(cuMemAlloc_v2)(&thing->address, bytes);
}

static CUresult make_array(CUarray *array, size_t bytes)
{
    const CUDA_ARRAY_DESCRIPTOR how = {
        .Width = 1024, .Height = bytes / 1024, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    return call(cuArrayCreate_v2)(array, &how);
}

static CUresult map(const struct thing *physical, struct thing *mapping)
{
    CUresult result = call(cuMemAddressReserve)(&mapping->address, physical->bytes, 0, 0, 0);
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAllocationProp properties;
    mapping->bytes = physical->bytes;
    if (!result)
        result = call(cuMemGetAllocationPropertiesFromHandle)(&properties, physical->handle);
    if (!result && properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        access.location = properties.location;
    if (!result)
        result = call(cuMemMap)(mapping->address, physical->bytes, 0, physical->handle, 0);
    return result ? result : call(cuMemSetAccess)(mapping->address, physical->bytes, &access, 1);
}

/* --- Threads --------------------------------------------------------------------------------------- */

struct work {
    CUcontext context;
    const char *kind;
    size_t bytes;
    unsigned rounds, seed, done;
};

static void *race(void *argument)
{
    struct work *work = argument;
    struct thing thing;
    call(cuCtxSetCurrent)(work->context);
    while (take(work->kind, work->bytes, &thing) == CUDA_SUCCESS)
        work->done++;
    return NULL;
}

static void *churn(void *argument)
{
    struct work *work = argument;
    CUdeviceptr held[4] = {0};
    call(cuCtxSetCurrent)(work->context);
    for (unsigned i = 0; i < work->rounds; i++) {
        unsigned at = i % 4;
        if (held[at] && call(cuMemFree_v2)(held[at]) != CUDA_SUCCESS)
            return NULL;
        held[at] = 0;
        if (call(cuMemAlloc_v2)(&held[at], 1 + (size_t)rand_r(&work->seed) % work->bytes) == CUDA_SUCCESS)
            work->done++;
    }
    for (unsigned at = 0; at < 4; at++)
        if (held[at])
            call(cuMemFree_v2)(held[at]);
    return NULL;
}

static void run_threads(void *(*what)(void *), unsigned threads, unsigned rounds, size_t bytes,
                        const char *kind)
{
    pthread_t ids[64];
    struct work work[64];
    CUcontext context;
    unsigned done = 0;
    call(cuCtxGetCurrent)(&context);
    for (unsigned i = 0; i < threads && i < 64; i++) {
        work[i] = (struct work){context, kind, bytes, rounds, i + 1, 0};
        pthread_create(&ids[i], NULL, what, &work[i]);
    }
    for (unsigned i = 0; i < threads && i < 64; i++) {
        pthread_join(ids[i], NULL);
        done += work[i].done;
    }
    answer("0 %u", done);
}

static CUstream captured;

static CUresult capture(CUstreamCaptureMode mode)
{
    CUresult result = captured ? CUDA_SUCCESS : call(cuStreamCreate)(&captured, CU_STREAM_NON_BLOCKING);
    return result ? result : call(cuStreamBeginCapture_v2)(captured, mode);
}

static CUresult end_capture(void)
{
    CUgraph graph;
    return call(cuStreamEndCapture)(captured, &graph);
}

/* A graph that takes memory and gives it back, launched; or with flag 2 (CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) uploaded. */
static CUresult run_graph(size_t bytes, unsigned long long flags)
{
    CUdeviceptr address;
    CUgraph graph;
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = flags};
    CUresult result = capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result == CUDA_SUCCESS)
        result = call(cuMemAllocAsync)(&address, bytes, captured);
    if (result == CUDA_SUCCESS)
        result = call(cuMemFreeAsync)(address, captured);
    if (result == CUDA_SUCCESS)
        result = call(cuStreamEndCapture)(captured, &graph);
    if (result == CUDA_SUCCESS)
        result = call(cuGraphInstantiateWithParams)(&exec, graph, &how);
    if (result == CUDA_SUCCESS && !flags)
        result = call(cuGraphLaunch)(exec, captured);
    return result == CUDA_SUCCESS ? call(cuStreamSynchronize)(captured) : result;
}

static void nvml(unsigned index)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        answer("%d", NVML_ERROR_LIBRARY_NOT_FOUND);
        return;
    }
    nvmlReturn_t (*init)(void) = (nvmlReturn_t(*)(void))dlsym(library, "nvmlInit_v2");
    nvmlReturn_t (*get)(unsigned, nvmlDevice_t *) =
        (nvmlReturn_t(*)(unsigned, nvmlDevice_t *))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_t *) =
        (nvmlReturn_t(*)(nvmlDevice_t, nvmlMemory_t *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    nvmlReturn_t (*info_v2)(nvmlDevice_t, nvmlMemory_v2_t *) =
        (nvmlReturn_t(*)(nvmlDevice_t, nvmlMemory_v2_t *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    nvmlDevice_t device;
    nvmlMemory_t memory = {0};
    nvmlMemory_v2_t second = {.version = NVML_MEMORY_V2};
    init();
    nvmlReturn_t result = get(index, &device);
    if (result == NVML_SUCCESS)
        result = info(device, &memory);
    if (result == NVML_SUCCESS)
        result = info_v2(device, &second);
    answer("%d %llu %llu %llu %llu %llu %llu %llu", result, memory.total, memory.free, memory.used,
           second.total, second.free, second.used, second.reserved);
}

static void branch(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        answer("0 child");
        return;
    }
    waitpid(child, &status, 0);
    answer("%d parent", WIFEXITED(status) ? WEXITSTATUS(status) : 255);
}

static void obey(const char *line, char *const arguments[])
{
    char verb[32] = "", kind[32] = "";
    unsigned long long a = 0, b = 0, c = 0;
    struct thing *next = &things[count % THINGS], *given;
    size_t free_bytes = 0, total_bytes = 0, pitch = 0;
    CUmemoryPool pool;
    CUarray array;

    sscanf(line, "%31s %llu %llu %llu", verb, &a, &b, &c);
    given = &things[a % THINGS];
#define IS(word) (strcmp(verb, word) == 0)
    if (IS("context"))
        answer_thing(call(cuCtxCreate_v2)(&next->context, 0, (CUdevice)a));
    else if (IS("retain")) {
        CUresult result = call(cuDevicePrimaryCtxRetain)(&next->context, (CUdevice)a);
        if (result == CUDA_SUCCESS)
            call(cuCtxSetCurrent)(next->context);
        answer_thing(result);
    } else if (IS("release"))
        answer("%d", call(cuDevicePrimaryCtxRelease_v2)((CUdevice)a));
    else if (IS("reset"))
        answer("%d", call(cuDevicePrimaryCtxReset_v2)((CUdevice)a));
    else if (IS("destroy"))
        answer("%d", call(cuCtxDestroy_v2)(given->context));
    else if (IS("alloc") || IS("managed") || IS("async"))
        answer_thing(take(verb, a, next));
    else if (IS("array"))
        answer_thing(make_array(&array, a));
    else if (IS("pitch"))
        answer_thing(call(cuMemAllocPitch_v2)(&next->address, &pitch, a, b, 4));
    else if (IS("vmm")) {
        next->bytes = a;
        answer_thing(make_physical(&next->handle, a, CU_MEM_LOCATION_TYPE_DEVICE, (int)b));
    } else if (IS("vmmhost"))
        answer_thing(make_physical(&next->handle, a, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0));
    else if (IS("map"))
        answer_thing(map(given, next));
    else if (IS("unmap"))
        answer("%d", call(cuMemUnmap)(given->address, given->bytes));
    else if (IS("drop"))
        answer("%d", call(cuMemRelease)(given->handle));
    else if (IS("free"))
        answer("%d", call(cuMemFree_v2)(given->address));
    else if (IS("freeasync"))
        answer("%d", call(cuMemFreeAsync)(given->address, NULL));
    else if (IS("null"))
        answer("%d", call(cuMemAlloc_v2)(NULL, 1));
    else if (IS("zero"))
        answer("%d", call(cuMemAlloc_v2)(&next->address, 0));
    else if (IS("freenull"))
        answer("%d", call(cuMemFree_v2)(0));
    else if (IS("capture"))
        answer("%d", (int)capture((CUstreamCaptureMode)a));
    else if (IS("captured"))
        answer("%d", (int)end_capture());
    else if (IS("graph"))
        answer("%d", (int)run_graph(a, b));
    else if (IS("sync"))
        answer("%d", call(cuCtxSynchronize)());
    else if (IS("trim")) {
        CUresult result = call(cuDeviceGetMemPool)(&pool, 0);
        answer("%d", result ? result : call(cuMemPoolTrimTo)(pool, 0));
    } else if (IS("info")) {
        CUresult result = call(cuMemGetInfo_v2)(&free_bytes, &total_bytes);
        answer("%d %zu %zu", result, free_bytes, total_bytes);
    } else if (IS("total")) {
        CUresult result = call(cuDeviceTotalMem_v2)(&total_bytes, (CUdevice)a);
        answer("%d %zu", result, total_bytes);
    } else if (IS("nvml"))
        nvml((unsigned)a);
    else if (IS("race") && sscanf(line, "%*s %*u %*u %31s", kind) == 1)
        run_threads(race, (unsigned)a, 0, b, kind);
    else if (IS("churn"))
        run_threads(churn, (unsigned)a, (unsigned)b, c, "alloc");
    else if (IS("fork"))
        branch();
    else if (IS("exec")) {
        execv("/proc/self/exe", arguments);
        answer("255");
    } else if (IS("close")) {
        for (int fd = 3; fd < 4096; fd++)
            close(fd);
        answer("0");
    } else if (IS("init"))
        answer("%d", call(cuInit)(0));
    else if (IS("pid"))
        answer("0 %d", (int)getpid());
    else if (IS("exit"))
        _exit(0);
    else if (!obey_share(verb, line))
        answer("254 %s", verb);
}

/* Byte by byte: what follows belongs to whoever is here then, a child or another image. */
static int read_line(char *line, size_t bytes)
{
    size_t length = 0;
    while (length < bytes - 1 && read(0, line + length, 1) == 1 && line[length] != '\n')
        length++;
    int any = length > 0 || line[0] == '\n';
    line[length] = '\0';
    return any;
}

int main(int argc, char *argv[])
{
    char line[512];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "puppet: %s\n", dlerror());
        return 1;
    }
    if (getenv("PUPPET_STARTS_LATE"))
        answer("0 ready");
    else
        answer("%d ready", call(cuInit)(0));
    while (line[0] = '\0', read_line(line, sizeof(line)))
        obey(line, argv);
    return 0;
}
