/* triton - how Triton's launchers call the driver: functions from libcuda.so.1 by dlsym, a module a kernel, its shared memory opted
 * for, and cuLaunchKernelEx with attributes; an autotuner that clears the cache by a large memset between timed launches. */
#include "workload.h"

#include <dlfcn.h>

#define CACHE_BYTES (32 * MIB)
#define TRIES 4

typedef CUresult (*launch_function)(const CUlaunchConfig *, CUfunction, void **, void **);

static launch_function launch_ex;
static CUfunction kernel;
static CUstream stream;

static void find_launch(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    launch_ex = library ? (launch_function)dlsym(library, "cuLaunchKernelEx") : NULL;
    if (!launch_ex)
        gallery_fail("no cuLaunchKernelEx: %s", dlerror());
    kernel = gallery_kernel("gs_fill_u32");
    MUST(cuFuncSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_SHARED));
    MUST(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * KIB));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* With programmatic serialization, as launch_pdl=True asks for where the card is of 9.0. */
static void launch(CUdeviceptr at, uint32_t value, uint64_t words)
{
    CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION},
                                       {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};
    attributes[0].value.programmaticStreamSerializationAllowed = 1;
    attributes[1].value.clusterDim.x = attributes[1].value.clusterDim.y = attributes[1].value.clusterDim.z =
        1;
    CUlaunchConfig config = {.gridDimX = 8,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 128,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = 32 * KIB,
                             .hStream = stream,
                             .attrs = attributes,
                             .numAttrs =
                                 device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9 ? 2 : 0};
    MUST(launch_ex(&config, kernel, (void *[]){&at, &value, &words}, NULL));
}

static void tune(const struct tensor *cache, struct tensor *tensor)
{
    CUevent begun, ended;
    float ms;
    MUST(cuEventCreate(&begun, 0));
    MUST(cuEventCreate(&ended, 0));
    for (int i = 0; i < TRIES; i++) {
        MUST(cuMemsetD32Async(cache->at, 0, cache->bytes / 4, stream));
        MUST(cuEventRecord(begun, stream));
        launch(tensor->at + tensor->bytes - tensor->tail, (uint32_t)tensor->seed, tensor->tail / 4);
        MUST(cuEventRecord(ended, stream));
        MUST(cuEventSynchronize(ended));
        MUST(cuEventElapsedTime_v2(&ms, begun, ended));
    }
    MUST(cuEventDestroy_v2(begun));
    MUST(cuEventDestroy_v2(ended));
}

int main(int argument_count, char **words)
{
    const struct allocator allocator = {linear_alloc, linear_free, NULL};
    struct tensor cache = {.bytes = CACHE_BYTES}, tensor = {.bytes = 8 * MIB};
    gallery_begin(argument_count, words);
    find_launch();
    gallery_must(linear_alloc(&cache), "the cache's memory");
    gallery_must(linear_alloc(&tensor), "the tensor's memory");
    tensor_fill(&tensor);
    tensor.tail = tensor.bytes; /* all of it by the launches */
    tune(&cache, &tensor);
    gallery_pause("tuned");
    tensor_check(&tensor);
    tune(&cache, &tensor);
    tensor_check(&tensor);
    linear_free(&cache);
    train(&allocator);
    linear_free(&tensor);
    MUST(cuStreamDestroy_v2(stream));
    return gallery_end();
}
