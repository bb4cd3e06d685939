/* library_modules.c - modules of contexts: made from images, found, dropped. */
#include "simgpu/code/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simgpu/device/profile.h"
#include "simgpu/memory/blocks.h"
#include "simgpu/memory/memory.h"

static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, CUmod_st) modules = LIST_HEAD_INITIALIZER(modules); /* the living ones */

CUresult module_check(CUmodule module)
{
    SIM_TRY(sim_ready());
    if (!module || atomic_load(&module->kind) != SIM_MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

/* --- Making and dropping --------------------------------------------------------------------------- */

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
                                      global->size_bytes, global->is_managed, &module->globals[i]);
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

bool module_loading_is_lazy(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return constant(SIM_LAZY_LOADING) != 0 && !(mode && strcmp(mode, "EAGER") == 0);
}

CUresult module_load_code(CUmodule module)
{
    static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
    if (atomic_load_explicit(&module->is_loaded, memory_order_acquire))
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&load_lock);
    if (!atomic_load(&module->is_loaded)) {
        uint64_t bytes = constant_whole(SIM_MODULE_BYTES);
        cost_load_code(SIM_LOAD_NS);
        if (bytes > 0 && !blocks_take(module->context->gpu, MEMORY_MODULE, bytes)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            module->code_bytes = bytes;
            atomic_store_explicit(&module->is_loaded, true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&load_lock);
    return result;
}

static void code_give_back(CUmodule module)
{
    if (module->code_bytes > 0)
        blocks_give_back(module->context->gpu, MEMORY_MODULE, module->code_bytes);
    module->code_bytes = 0;
}

/* The built-in kernel that has the image kernel's name and parameter sizes, or NULL. */
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

CUresult module_make(CUmodule *module_out, CUcontext context, CUlibrary library, const void *bytes,
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
        if (result == CUDA_SUCCESS && !module_loading_is_lazy() &&
            (result = module_load_code(module)) != CUDA_SUCCESS)
            globals_give_back(module);
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
    pthread_mutex_lock(&modules_lock);
    LIST_INSERT_HEAD(&modules, module, entry);
    pthread_mutex_unlock(&modules_lock);
    *module_out = module;
    return CUDA_SUCCESS;
}

/* The structs stay, so that handles of dropped modules are told from living ones (sim.h); the image goes. */
void module_drop(CUmodule module)
{
    atomic_store(&module->kind, SIM_DESTROYED);
    pthread_mutex_lock(&modules_lock);
    LIST_REMOVE(module, entry);
    pthread_mutex_unlock(&modules_lock);
    for (uint32_t i = 0; i < module->image->kernel_count; i++) {
        atomic_store(&module->functions[i].kind, SIM_DESTROYED);
        free(module->functions[i].old);
        module->functions[i].old = NULL;
    }
    globals_give_back(module);
    code_give_back(module);
    free(module->globals);
    sim_image_free(module->image);
    module->image = NULL;
}

CUmodule module_find(CUlibrary library, CUcontext context)
{
    pthread_mutex_lock(&modules_lock);
    CUmodule module;
    LIST_FOREACH (module, &modules, entry)
        if ((!library || module->library == library) && (!context || module->context == context))
            break;
    pthread_mutex_unlock(&modules_lock);
    return module;
}

void library_drop_context(CUcontext context)
{
    for (CUmodule module; (module = module_find(NULL, context));)
        module_drop(module);
}

/* --- Modules --------------------------------------------------------------------------------------- */

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

/* The options are for the compiler, which a simulation does not have. We only write into the log of errors
 * why an image was refused, and set the lengths of both logs. */
void image_write_log(const struct error *error, unsigned option_count, const CUjit_option *options,
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
            option_values[i] = NULL; /* nothing is written there */
    if (!log_bytes)
        return;
    /* The size comes as a number in the place of a pointer, and the length written goes back there too. */
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
    image_write_log(&error, option_count, options, option_values);
    return result;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return module_load(module, image, SIM_IMAGE_UNKNOWN_BYTES);
}

/* Read a whole file, and put a zero behind it. */
CUresult image_read_file(const char *path, char **bytes, size_t *length)
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
    SIM_TRY(image_read_file(path, &bytes, &length));
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
    *mode = module_loading_is_lazy() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

CUresult function_find(CUmodule module, const char *name, CUfunction *function)
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

CUresult global_find(CUmodule module, const char *name, CUdeviceptr *pointer, size_t *bytes)
{
    const struct sim_global *global = sim_image_global(module->image, name);
    if (!global || global->kind != SIM_GLOBAL_MEMORY)
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
