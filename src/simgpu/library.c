/* library.c - modules and libraries: images that a program loads, and the functions in them. */
#include "simgpu/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simgpu/memory.h"
#include "simgpu/profile.h"

static pthread_mutex_t modules_turn = PTHREAD_MUTEX_INITIALIZER;
static CUmodule modules; /* the living ones */

static CUresult module_check(CUmodule module)
{
    SIM_TRY(sim_ready());
    if (!module || atomic_load(&module->kind) != SIM_MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

/* --- Making and dropping
 * ------------------------------------------------------------------------------------ */

static void globals_give_back(CUmodule module)
{
    struct memory_allocation gone;
    for (uint32_t i = 0; i < module->image->global_count; i++)
        if (module->globals[i])
            memory_give_back(module->globals[i], &gone);
}

static CUresult globals_take(CUmodule module)
{
    for (uint32_t i = 0; i < module->image->global_count; i++) {
        const struct sim_global *global = &module->image->globals[i];
        if (global->size_bytes == 0)
            continue;
        CUresult result = memory_take(module->context, module->context->gpu, MEMORY_MODULE,
                                      global->size_bytes, 0, &module->globals[i]);
        if (result != CUDA_SUCCESS) {
            globals_give_back(module);
            return result;
        }
        void *at = (void *)(uintptr_t)module->globals[i];
        if (global->data)
            memcpy(at, global->data, global->size_bytes);
        else
            memset(at, 0, global->size_bytes);
    }
    return CUDA_SUCCESS;
}

/* A built-in kernel, if the image's is that one: by its name and the sizes of its parameters. */
static const struct sim_kernel *kernel_match(const struct sim_kernel_image *image)
{
    const struct sim_kernel *kernel = sim_kernel_find(image->name);
    if (!kernel || kernel->parameter_count != image->parameter_count)
        return NULL;
    for (uint32_t i = 0; i < image->parameter_count; i++)
        if (kernel->parameter_bytes[i] != image->parameters[i].size_bytes)
            return NULL;
    return kernel;
}

/* `error` (NULL allowed) says what is wrong with an image. */
static CUresult module_make(CUmodule *module_out, CUcontext context, CUlibrary library, const void *bytes,
                            size_t limit_bytes, struct error *error)
{
    struct sim_image *image;
    SIM_TRY(sim_image_parse(bytes, limit_bytes, profile_architecture(), &image, error));
    CUmodule module = calloc(1, sizeof(*module));
    cleanup_free CUfunction functions =
        calloc(image->kernel_count ? image->kernel_count : 1, sizeof(*functions));
    cleanup_free uint64_t *globals = calloc(image->global_count ? image->global_count : 1, sizeof(*globals));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (module && functions && globals) {
        module->context = context;
        module->library = library;
        module->image = image;
        module->functions = functions;
        module->globals = globals;
        result = globals_take(module);
    }
    if (result != CUDA_SUCCESS) {
        free(module);
        sim_image_free(image);
        return result;
    }
    for (uint32_t i = 0; i < image->kernel_count; i++) {
        functions[i].module = module;
        functions[i].image = &image->kernels[i];
        functions[i].kernel = kernel_match(&image->kernels[i]);
        functions[i].attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
        atomic_store(&functions[i].kind, SIM_FUNCTION);
    }
    steal_pointer(functions);
    steal_pointer(globals);
    atomic_store(&module->kind, SIM_MODULE);
    pthread_mutex_lock(&modules_turn);
    module->next = modules;
    modules = module;
    pthread_mutex_unlock(&modules_turn);
    *module_out = module;
    return CUDA_SUCCESS;
}

/* The structs stay, so that handles of what is gone are told from living ones (sim.h); the image goes. */
static void module_drop(CUmodule module)
{
    atomic_store(&module->kind, SIM_DESTROYED);
    pthread_mutex_lock(&modules_turn);
    CUmodule *link = &modules;
    while (*link && *link != module)
        link = &(*link)->next;
    if (*link)
        *link = module->next;
    pthread_mutex_unlock(&modules_turn);
    for (uint32_t i = 0; i < module->image->kernel_count; i++)
        atomic_store(&module->functions[i].kind, SIM_DESTROYED);
    globals_give_back(module);
    free(module->globals);
    sim_image_free(module->image);
    module->image = NULL;
}

void library_drop_context(CUcontext context)
{
    for (;;) {
        pthread_mutex_lock(&modules_turn);
        CUmodule module = modules;
        while (module && module->context != context)
            module = module->next;
        pthread_mutex_unlock(&modules_turn);
        if (!module)
            return;
        module_drop(module);
    }
}

/* --- Modules
 * ------------------------------------------------------------------------------------------------ */

static CUresult module_load(CUmodule *module, const void *bytes, size_t limit_bytes)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(module && bytes);
    SIM_TRY(context_current(&context));
    return module_make(module, context, NULL, bytes, limit_bytes, NULL);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return module_load(module, image, SIM_IMAGE_UNKNOWN_BYTES);
}

/* The options are for the compiler, which a simulation does not have: all it does for them is to say in the
 * log of errors why an image was refused, and in both how long its log is. */
static void log_write(const struct error *error, unsigned option_count, const CUjit_option *options,
                      void **option_values)
{
    char *log = NULL;
    void **log_bytes = NULL;
    for (unsigned i = 0; i < option_count; i++)
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            log = option_values[i];
        else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            log_bytes = &option_values[i];
        else if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
            option_values[i] = NULL; /* nothing is told there */
    if (!log_bytes)
        return;
    /* The size comes as a number in the place of a pointer, and what was written goes back so. */
    size_t room = (size_t)(uintptr_t)*log_bytes, written = 0;
    if (log && room > 0) {
        int length = snprintf(log, room, "%s", error->message);
        written = length > 0 ? ((size_t)length < room ? (size_t)length : room - 1) : 0;
    }
    *log_bytes = (void *)(uintptr_t)written;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int option_count,
                            CUjit_option *options, void **option_values)
{
    CUcontext context;
    struct error error = {0};
    SIM_TRY(sim_ready());
    SIM_REQUIRE(module && image && (option_count == 0 || (options && option_values)));
    SIM_TRY(context_current(&context));
    CUresult result = module_make(module, context, NULL, image, SIM_IMAGE_UNKNOWN_BYTES, &error);
    log_write(&error, option_count, options, option_values);
    return result;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return module_load(module, image, SIM_IMAGE_UNKNOWN_BYTES);
}

/* A whole file, with a zero behind it. */
static CUresult file_read(const char *path, char **bytes, size_t *length)
{
    cleanup_file FILE *file = fopen(path, "re");
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    if (fseek(file, 0, SEEK_END) != 0)
        return CUDA_ERROR_INVALID_SOURCE;
    long end = ftell(file);
    rewind(file);
    cleanup_free char *text = end >= 0 ? malloc((size_t)end + 1) : NULL;
    if (!text)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (fread(text, 1, (size_t)end, file) != (size_t)end)
        return CUDA_ERROR_INVALID_SOURCE;
    text[end] = '\0';
    *length = (size_t)end;
    *bytes = steal_pointer(text);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    cleanup_free char *bytes = NULL;
    size_t length;
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(module && path);
    SIM_TRY(context_current(&context));
    SIM_TRY(file_read(path, &bytes, &length));
    return module_make(module, context, NULL, bytes, length, NULL);
}

CUresult cuModuleUnload(CUmodule module)
{
    SIM_TRY(module_check(module));
    if (module->library)
        return CUDA_ERROR_NOT_PERMITTED;
    module_drop(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(mode);
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

static CUresult function_find(CUmodule module, const char *name, CUfunction *function)
{
    const struct sim_kernel_image *kernel = sim_image_kernel(module->image, name);
    if (!kernel)
        return CUDA_ERROR_NOT_FOUND;
    *function = &module->functions[kernel - module->image->kernels];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(function && name);
    SIM_TRY(module_check(module));
    return function_find(module, name, function);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(count);
    SIM_TRY(module_check(module));
    *count = module->image->kernel_count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(functions);
    SIM_TRY(module_check(module));
    for (unsigned i = 0; i < count && i < module->image->kernel_count; i++)
        functions[i] = &module->functions[i];
    return CUDA_SUCCESS;
}

static CUresult global_find(CUmodule module, const char *name, CUdeviceptr *pointer, size_t *bytes)
{
    const struct sim_global *global = sim_image_global(module->image, name);
    if (!global)
        return CUDA_ERROR_NOT_FOUND;
    if (pointer)
        *pointer = module->globals[global - module->image->globals];
    if (bytes)
        *bytes = global->size_bytes;
    return CUDA_SUCCESS;
}

/* One of the out-parameters may be NULL. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE((pointer || bytes) && name);
    SIM_TRY(module_check(module));
    return global_find(module, name, pointer, bytes);
}

/* --- Libraries: loaded once, a module in each context that uses them
 * ------------------------------------------ */

struct CUlib_st {
    _Atomic unsigned kind;
    char *bytes; /* the image, NULL where it stays the program's (it must outlive the library then) */
    const void *image;
    size_t limit_bytes;
    struct sim_image *parsed; /* names and layouts, without a context */
    CUkernel kernels;
};

struct CUkern_st {
    _Atomic unsigned kind;
    CUlibrary library;
    const struct sim_kernel_image *image;
};

#define SIM_LIBRARY 0x51c0de07u
#define SIM_KERNEL 0x51c0de08u

static CUresult library_check(CUlibrary library)
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
    log_write(&error, jit_option_count, jit_options, jit_option_values);
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
    SIM_TRY(file_read(path, &bytes, &length));
    CUresult result = library_make(library, bytes, bytes, length, &error);
    log_write(&error, jit_option_count, jit_options, jit_option_values);
    SIM_TRY(result);
    steal_pointer(bytes);
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_TRY(library_check(library));
    atomic_store(&library->kind, SIM_DESTROYED);
    for (;;) {
        pthread_mutex_lock(&modules_turn);
        CUmodule module = modules;
        while (module && module->library != library)
            module = module->next;
        pthread_mutex_unlock(&modules_turn);
        if (!module)
            break;
        module_drop(module);
    }
    for (uint32_t i = 0; i < library->parsed->kernel_count; i++)
        atomic_store(&library->kernels[i].kind, SIM_DESTROYED);
    sim_image_free(library->parsed);
    library->parsed = NULL;
    free(library->bytes);
    return CUDA_SUCCESS;
}

/* The library's module in a context, loaded when it is first asked for. */
static CUresult library_module(CUlibrary library, CUcontext context, CUmodule *module_out)
{
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&loading);
    pthread_mutex_lock(&modules_turn);
    CUmodule module = modules;
    while (module && !(module->library == library && module->context == context))
        module = module->next;
    pthread_mutex_unlock(&modules_turn);
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

/* --- Functions
 * ---------------------------------------------------------------------------------------------- */

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

/* Whole modules are loaded at once (cuModuleGetLoadingMode). */
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(state);
    SIM_TRY(function_check(function));
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    return function_check(function);
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
