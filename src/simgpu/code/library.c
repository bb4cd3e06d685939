/* library.c - libraries: loaded once, a module in each context that uses them. */
#include "simgpu/code/library.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "simgpu/device/profile.h"

CUresult library_check(CUlibrary library)
{
    SIM_TRY(sim_ready());
    if (!library || atomic_load(&library->kind) != SIM_LIBRARY)
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

static CUresult library_make(CUlibrary *library_out, char *bytes, const void *image, size_t limit_bytes,
                             struct error *error)
{
    struct sim_image *parsed;
    SIM_TRY(sim_image_parse(image, limit_bytes, profile_architecture(), &parsed, error));
    CUlibrary library = calloc(1, sizeof(*library));
    CUkernel kernels = calloc(parsed->kernel_count ? parsed->kernel_count : 1, sizeof(*kernels));
    if (!library || !kernels) {
        free(library);
        free(kernels);
        sim_image_free(parsed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *library = (struct CUlib_st){.kind = SIM_LIBRARY,
                                 .bytes = bytes,
                                 .image = image,
                                 .limit_bytes = limit_bytes,
                                 .parsed = parsed,
                                 .kernels = kernels};
    for (uint32_t i = 0; i < parsed->kernel_count; i++) {
        kernels[i].library = library;
        kernels[i].image = &parsed->kernels[i];
        atomic_store(&kernels[i].kind, SIM_KERNEL);
    }
    *library_out = library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                           void **jit_option_values, unsigned int jit_option_count, CUlibraryOption *options,
                           void **option_values, unsigned int option_count)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(library && code && (jit_option_count == 0 || (jit_options && jit_option_values)));
    struct error error = {0};
    CUresult result = library_make(library, NULL, code, SIM_IMAGE_UNKNOWN_BYTES, &error);
    image_write_log(&error, jit_option_count, jit_options, jit_option_values);
    return result;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
                               void **jit_option_values, unsigned int jit_option_count,
                               CUlibraryOption *options, void **option_values, unsigned int option_count)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(library && path && (jit_option_count == 0 || (jit_options && jit_option_values)));
    cleanup_free char *bytes = NULL;
    size_t length;
    struct error error = {0};
    SIM_TRY(image_read_file(path, &bytes, &length));
    CUresult result = library_make(library, bytes, bytes, length, &error);
    image_write_log(&error, jit_option_count, jit_options, jit_option_values);
    SIM_TRY(result);
    steal_pointer(bytes);
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_TRY(library_check(library));
    atomic_store(&library->kind, SIM_DESTROYED);
    for (CUmodule module; (module = module_find(library, NULL));)
        module_drop(module);
    for (uint32_t i = 0; i < library->parsed->kernel_count; i++)
        atomic_store(&library->kernels[i].kind, SIM_DESTROYED);
    sim_image_free(library->parsed);
    library->parsed = NULL;
    free(library->bytes);
    return CUDA_SUCCESS;
}

/* The library's module in a context, loaded when it is first asked for. */
CUresult library_module(CUlibrary library, CUcontext context, CUmodule *module_out)
{
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&loading);
    CUmodule module = module_find(library, context);
    CUresult result = CUDA_SUCCESS;
    if (!module)
        result = module_make(&module, context, library, library->image, library->limit_bytes, NULL);
    pthread_mutex_unlock(&loading);
    if (result == CUDA_SUCCESS)
        *module_out = module;
    return result;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(module);
    SIM_TRY(library_check(library));
    SIM_TRY(context_current(&context));
    return library_module(library, context, module);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernel && name);
    SIM_TRY(library_check(library));
    const struct sim_kernel_image *image = sim_image_kernel(library->parsed, name);
    if (!image)
        return CUDA_ERROR_NOT_FOUND;
    *kernel = &library->kernels[image - library->parsed->kernels];
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(count);
    SIM_TRY(library_check(library));
    *count = library->parsed->kernel_count;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(kernels);
    SIM_TRY(library_check(library));
    for (unsigned i = 0; i < count && i < library->parsed->kernel_count; i++)
        kernels[i] = &library->kernels[i];
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
    CUcontext context;
    CUmodule module;
    SIM_TRY(sim_ready());
    SIM_REQUIRE((pointer || bytes) && name);
    SIM_TRY(library_check(library));
    SIM_TRY(context_current(&context));
    SIM_TRY(library_module(library, context, &module));
    return global_find(module, name, pointer, bytes);
}
