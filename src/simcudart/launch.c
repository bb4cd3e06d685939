/* launch.c - launching kernels, and what is asked about them. */
#include "simcudart/simcudart.h"

/* What <<<grid, block, shared, stream>>> leaves for the kernel's stand-in function, which takes it at once.
 * A stack, as an argument of the launch may launch something itself. */
#define CONFIGURATIONS 64
static _Thread_local struct {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
} configurations[CONFIGURATIONS];
static _Thread_local unsigned configuration_count;

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream)
{
    if (configuration_count == CONFIGURATIONS)
        return (unsigned int)runtime_answer(cudaErrorInvalidConfiguration);
    configurations[configuration_count].grid = grid;
    configurations[configuration_count].block = block;
    configurations[configuration_count].shared_bytes = shared_bytes;
    configurations[configuration_count].stream = stream;
    configuration_count++;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (configuration_count == 0)
        return runtime_answer(cudaErrorMissingConfiguration);
    configuration_count--;
    *grid = configurations[configuration_count].grid;
    *block = configurations[configuration_count].block;
    *shared_bytes = configurations[configuration_count].shared_bytes;
    *(cudaStream_t *)stream = configurations[configuration_count].stream;
    return cudaSuccess;
}

static bool exceeds(unsigned int value, CUdevice_attribute attribute, CUdevice device)
{
    int limit = 0;
    return value == 0 || (DRIVER(cuDeviceGetAttribute)(&limit, attribute, device) == CUDA_SUCCESS &&
                          value > (unsigned int)limit);
}

/* The driver has one answer for everything wrong with a launch; the runtime has another one for a shape that
 * no device of this kind can launch. */
static cudaError_t launch_error(CUresult result, dim3 grid, dim3 block)
{
    CUdevice device;
    if (result != CUDA_ERROR_INVALID_VALUE || DRIVER(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return runtime_translate(result);
    bool is_shape = exceeds(grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, device) ||
                    exceeds(grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, device) ||
                    exceeds(grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, device) ||
                    exceeds(block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, device) ||
                    exceeds(block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, device) ||
                    exceeds(block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, device) ||
                    exceeds(block.x * block.y * block.z, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
    return is_shape ? cudaErrorInvalidConfiguration : cudaErrorInvalidValue;
}

static cudaError_t launch(enum form form, const void *kernel, dim3 grid, dim3 block, void **arguments,
                          size_t shared_bytes, cudaStream_t stream)
{
    CUfunction function;
    RUNTIME_TRY(program_function(kernel, &function));
    RUNTIME_REQUIRE(shared_bytes <= UINT32_MAX, cudaErrorInvalidValue);
    return launch_error(DRIVER_FORM(form, cuLaunchKernel, _ptsz)(function, grid.x, grid.y, grid.z, block.x,
                                                                 block.y, block.z, (unsigned int)shared_bytes,
                                                                 stream, arguments, NULL),
                        grid, block);
}
EXPORT_FORMS(cudaLaunchKernel, _ptsz, launch,
             (const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
              cudaStream_t stream),
             (kernel, grid, block, arguments, shared_bytes, stream))
EXPORT_FORMS(__cudaLaunchKernel, _ptsz, launch,
             (cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
              cudaStream_t stream),
             (kernel, grid, block, arguments, shared_bytes, stream))

static cudaError_t launch_cooperative(enum form form, const void *kernel, dim3 grid, dim3 block,
                                      void **arguments, size_t shared_bytes, cudaStream_t stream)
{
    CUfunction function;
    RUNTIME_TRY(program_function(kernel, &function));
    RUNTIME_REQUIRE(shared_bytes <= UINT32_MAX, cudaErrorInvalidValue);
    return launch_error(DRIVER_FORM(form, cuLaunchCooperativeKernel,
                                    _ptsz)(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                           (unsigned int)shared_bytes, stream, arguments),
                        grid, block);
}
EXPORT_FORMS(cudaLaunchCooperativeKernel, _ptsz, launch_cooperative,
             (const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
              cudaStream_t stream),
             (kernel, grid, block, arguments, shared_bytes, stream))

static CUlaunchConfig driver_configuration(const cudaLaunchConfig_t *configuration)
{
    return (CUlaunchConfig){
        .gridDimX = configuration->gridDim.x,
        .gridDimY = configuration->gridDim.y,
        .gridDimZ = configuration->gridDim.z,
        .blockDimX = configuration->blockDim.x,
        .blockDimY = configuration->blockDim.y,
        .blockDimZ = configuration->blockDim.z,
        .sharedMemBytes = (unsigned int)configuration->dynamicSmemBytes,
        .hStream = configuration->stream,
        .attrs = configuration->attrs,
        .numAttrs = configuration->numAttrs,
    };
}

static cudaError_t launch_extended(enum form form, const cudaLaunchConfig_t *configuration,
                                   const void *kernel, void **arguments)
{
    CUfunction function;
    RUNTIME_REQUIRE(configuration && configuration->dynamicSmemBytes <= UINT32_MAX, cudaErrorInvalidValue);
    RUNTIME_TRY(program_function(kernel, &function));
    CUlaunchConfig driver = driver_configuration(configuration);
    return launch_error(DRIVER_FORM(form, cuLaunchKernelEx, _ptsz)(&driver, function, arguments, NULL),
                        configuration->gridDim, configuration->blockDim);
}
EXPORT_FORMS(cudaLaunchKernelExC, _ptsz, launch_extended,
             (const cudaLaunchConfig_t *configuration, const void *kernel, void **arguments),
             (configuration, kernel, arguments))

static cudaError_t function_attributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    CUfunction function;
    RUNTIME_REQUIRE(attributes, cudaErrorInvalidValue);
    RUNTIME_TRY(program_function(kernel, &function));
    *attributes = (struct cudaFuncAttributes){0};
    struct {
        CUfunction_attribute attribute;
        size_t *size;
        int *value;
    } wanted[] = {
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, .size = &attributes->sharedSizeBytes},
        {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, .size = &attributes->constSizeBytes},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, .size = &attributes->localSizeBytes},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, .value = &attributes->maxThreadsPerBlock},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, .value = &attributes->numRegs},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, .value = &attributes->ptxVersion},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, .value = &attributes->binaryVersion},
        {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, .value = &attributes->cacheModeCA},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, .value = &attributes->maxDynamicSharedSizeBytes},
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, .value = &attributes->preferredShmemCarveout},
        {CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, .value = &attributes->clusterDimMustBeSet},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, .value = &attributes->requiredClusterWidth},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, .value = &attributes->requiredClusterHeight},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, .value = &attributes->requiredClusterDepth},
        {CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
         .value = &attributes->clusterSchedulingPolicyPreference},
        {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
         .value = &attributes->nonPortableClusterSizeAllowed},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int value = 0;
        RUNTIME_TRY(runtime_translate(DRIVER(cuFuncGetAttribute)(&value, wanted[i].attribute, function)));
        if (wanted[i].size)
            *wanted[i].size = (size_t)value;
        else
            *wanted[i].value = value;
    }
    return cudaSuccess;
}
EXPORT(cudaFuncGetAttributes, function_attributes,
       (struct cudaFuncAttributes * attributes, const void *kernel), (attributes, kernel))

static cudaError_t set_attribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    CUfunction function;
    RUNTIME_TRY(program_function(kernel, &function));
    return runtime_translate(DRIVER(cuFuncSetAttribute)(function, (CUfunction_attribute)attribute, value));
}
EXPORT(cudaFuncSetAttribute, set_attribute, (const void *kernel, enum cudaFuncAttribute attribute, int value),
       (kernel, attribute, value))

static cudaError_t set_cache(const void *kernel, int preference)
{
    CUfunction function;
    RUNTIME_TRY(program_function(kernel, &function));
    return runtime_translate(DRIVER(cuFuncSetCacheConfig)(function, (CUfunc_cache)preference));
}
EXPORT(cudaFuncSetCacheConfig, set_cache, (const void *kernel, int preference), (kernel, preference))

static cudaError_t set_banks(const void *kernel, int banks)
{
    CUfunction function;
    RUNTIME_TRY(program_function(kernel, &function));
    return runtime_translate(DRIVER(cuFuncSetSharedMemConfig)(function, (CUsharedconfig)banks));
}
EXPORT(cudaFuncSetSharedMemConfig, set_banks, (const void *kernel, int banks), (kernel, banks))

static cudaError_t get_name(const char **name, const void *host)
{
    CUkernel kernel;
    RUNTIME_REQUIRE(name, cudaErrorInvalidValue);
    RUNTIME_TRY(program_kernel(host, &kernel));
    return runtime_translate(DRIVER(cuKernelGetName)(name, kernel));
}
EXPORT(cudaFuncGetName, get_name, (const char **name, const void *host), (name, host))

static cudaError_t get_parameter(const void *kernel, size_t index, size_t *offset, size_t *bytes)
{
    CUfunction function;
    RUNTIME_TRY(program_function(kernel, &function));
    return runtime_translate(DRIVER(cuFuncGetParamInfo)(function, index, offset, bytes));
}
EXPORT(cudaFuncGetParamInfo, get_parameter, (const void *kernel, size_t index, size_t *offset, size_t *bytes),
       (kernel, index, offset, bytes))

static cudaError_t blocks_per_multiprocessor(int *blocks, const void *kernel, int block_threads,
                                             size_t shared_bytes, unsigned int flags)
{
    CUfunction function;
    RUNTIME_REQUIRE(blocks, cudaErrorInvalidValue);
    RUNTIME_TRY(program_function(kernel, &function));
    return runtime_translate(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(
        blocks, function, block_threads, shared_bytes, flags));
}
EXPORT(cudaOccupancyMaxActiveBlocksPerMultiprocessor, blocks_per_multiprocessor,
       (int *blocks, const void *kernel, int block_threads, size_t shared_bytes),
       (blocks, kernel, block_threads, shared_bytes, 0))
EXPORT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, blocks_per_multiprocessor,
       (int *blocks, const void *kernel, int block_threads, size_t shared_bytes, unsigned int flags),
       (blocks, kernel, block_threads, shared_bytes, flags))

static cudaError_t available_shared(size_t *bytes, const void *kernel, int blocks, int block_threads)
{
    CUfunction function;
    RUNTIME_REQUIRE(bytes, cudaErrorInvalidValue);
    RUNTIME_TRY(program_function(kernel, &function));
    return runtime_translate(
        DRIVER(cuOccupancyAvailableDynamicSMemPerBlock)(bytes, function, blocks, block_threads));
}
EXPORT(cudaOccupancyAvailableDynamicSMemPerBlock, available_shared,
       (size_t * bytes, const void *kernel, int blocks, int block_threads),
       (bytes, kernel, blocks, block_threads))

static cudaError_t active_clusters(int *clusters, const void *kernel, const cudaLaunchConfig_t *configuration)
{
    CUfunction function;
    RUNTIME_REQUIRE(clusters && configuration, cudaErrorInvalidValue);
    RUNTIME_TRY(program_function(kernel, &function));
    CUlaunchConfig driver = driver_configuration(configuration);
    return runtime_translate(DRIVER(cuOccupancyMaxActiveClusters)(clusters, function, &driver));
}
EXPORT(cudaOccupancyMaxActiveClusters, active_clusters,
       (int *clusters, const void *kernel, const cudaLaunchConfig_t *configuration),
       (clusters, kernel, configuration))

static cudaError_t cluster_size(int *blocks, const void *kernel, const cudaLaunchConfig_t *configuration)
{
    CUfunction function;
    RUNTIME_REQUIRE(blocks && configuration, cudaErrorInvalidValue);
    RUNTIME_TRY(program_function(kernel, &function));
    CUlaunchConfig driver = driver_configuration(configuration);
    return runtime_translate(DRIVER(cuOccupancyMaxPotentialClusterSize)(blocks, function, &driver));
}
EXPORT(cudaOccupancyMaxPotentialClusterSize, cluster_size,
       (int *blocks, const void *kernel, const cudaLaunchConfig_t *configuration),
       (blocks, kernel, configuration))

static cudaError_t library_kernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuLibraryGetKernel)(kernel, library, name)));
    program_adopt_kernel(*kernel);
    return cudaSuccess;
}
EXPORT(cudaLibraryGetKernel, library_kernel, (cudaKernel_t * kernel, cudaLibrary_t library, const char *name),
       (kernel, library, name))

static cudaError_t library_kernels(cudaKernel_t *kernels, unsigned int capacity, cudaLibrary_t library)
{
    unsigned int count = 0;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_translate(DRIVER(cuLibraryGetKernelCount)(&count, library)));
    RUNTIME_TRY(runtime_translate(DRIVER(cuLibraryEnumerateKernels)(kernels, capacity, library)));
    for (unsigned int i = 0; i < count && i < capacity; i++)
        program_adopt_kernel(kernels[i]);
    return cudaSuccess;
}
EXPORT(cudaLibraryEnumerateKernels, library_kernels,
       (cudaKernel_t * kernels, unsigned int capacity, cudaLibrary_t library), (kernels, capacity, library))

static cudaError_t set_attribute_for_device(cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value,
                                            int device)
{
    CUcontext context;
    CUcontext popped;
    RUNTIME_TRY(runtime_primary_context(device, &context));
    RUNTIME_TRY(runtime_translate(DRIVER(cuCtxPushCurrent_v2)(context)));
    cudaError_t error = set_attribute(kernel, attribute, value);
    DRIVER(cuCtxPopCurrent_v2)(&popped);
    return error;
}
EXPORT(cudaKernelSetAttributeForDevice, set_attribute_for_device,
       (cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value, int device),
       (kernel, attribute, value, device))
