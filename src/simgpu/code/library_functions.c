/* library_functions.c - kernels of libraries and functions of modules: finding, asking and setting what they
 * are like. */
#include "simgpu/code/library.h"
#include "simgpu/device/profile.h"

static CUresult kernel_check(CUkernel kernel)
{
    SIM_TRY(sim_ready());
    if (!kernel || atomic_load(&kernel->kind) != SIM_KERNEL)
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

CUresult function_resolve(CUfunction handle, CUcontext context, CUfunction *function)
{
    if (!handle)
        return CUDA_ERROR_INVALID_HANDLE;
    unsigned kind = atomic_load_explicit(&handle->kind, memory_order_acquire);
    if (kind == SIM_FUNCTION) {
        *function = handle;
        return CUDA_SUCCESS;
    }
    if (kind != SIM_KERNEL)
        return CUDA_ERROR_INVALID_HANDLE;
    CUkernel kernel = (CUkernel)(void *)handle;
    CUmodule module;
    SIM_TRY(library_module(kernel->library, context, &module));
    return function_find(module, kernel->image->name, function);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(function);
    SIM_TRY(kernel_check(kernel));
    SIM_TRY(context_current(&context));
    return function_resolve((CUfunction)(void *)kernel, context, function);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(library);
    SIM_TRY(kernel_check(kernel));
    *library = kernel->library;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(name);
    SIM_TRY(kernel_check(kernel));
    *name = kernel->image->name;
    return CUDA_SUCCESS;
}

static CUresult parameter_info(const struct sim_kernel_image *image, size_t index, size_t *offset,
                               size_t *bytes)
{
    SIM_REQUIRE(offset && index < image->parameter_count);
    *offset = image->parameters[index].offset_bytes;
    if (bytes)
        *bytes = image->parameters[index].size_bytes;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    SIM_TRY(kernel_check(kernel));
    return parameter_info(kernel->image, index, offset, bytes);
}

CUresult function_check(CUfunction function)
{
    SIM_TRY(sim_ready());
    if (!function || atomic_load(&function->kind) != SIM_FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    SIM_TRY(function_check(function));
    return parameter_info(function->image, index, offset, bytes);
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(name);
    SIM_TRY(function_check(function));
    *name = function->image->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(module);
    SIM_TRY(function_check(function));
    *module = function->module;
    return CUDA_SUCCESS;
}

/* A module is loaded as a whole, even when its first launch loads it (cuModuleGetLoadingMode). */
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(state);
    SIM_TRY(function_check(function));
    *state = atomic_load(&function->module->is_loaded) ? CU_FUNCTION_LOADING_STATE_LOADED
                                                       : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    SIM_TRY(function_check(function));
    return module_load_code(function->module);
}

unsigned function_max_threads(const struct sim_kernel_image *image)
{
    return image->max_threads && image->max_threads < 1024 ? image->max_threads : 1024;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value && attribute < CU_FUNC_ATTRIBUTE_MAX);
    SIM_TRY(function_check(function));
    const struct sim_image *image = function->module->image;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)function_max_threads(function->image);
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)function->image->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)function->image->shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32; /* nothing was compiled; a usual number */
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = (int)(image->kind == SIM_IMAGE_PTX ? image->architecture : profile_architecture());
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)profile_architecture();
        break;
    default:
        *value = function->attributes[attribute];
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SIM_TRY(function_check(function));
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        SIM_REQUIRE(value >= 0 &&
                    value <= profile_value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        SIM_REQUIRE(value >= -1 && value <= 100);
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        SIM_REQUIRE(value >= 0);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SIM_TRY(function_check(function));
    SIM_REQUIRE(config <= CU_FUNC_CACHE_PREFER_EQUAL);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    SIM_TRY(function_check(function));
    SIM_REQUIRE(config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    return CUDA_SUCCESS;
}

static CUresult kernel_function(CUkernel kernel, CUdevice device, CUfunction *function)
{
    CUcontext context;
    SIM_TRY(kernel_check(kernel));
    SIM_TRY(device_check(device));
    SIM_TRY(context_current(&context));
    return function_resolve((CUfunction)(void *)kernel, context, function);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    CUfunction function;
    SIM_TRY(kernel_function(kernel, device, &function));
    return cuFuncGetAttribute(value, attribute, function);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    CUfunction function;
    SIM_TRY(kernel_function(kernel, device, &function));
    return cuFuncSetAttribute(function, attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    CUfunction function;
    SIM_TRY(kernel_function(kernel, device, &function));
    return cuFuncSetCacheConfig(function, config);
}
