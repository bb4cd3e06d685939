/* program.c - device code that host programs register, and its kernels and variables.
 *
 * nvcc's start-up code calls the __cudaRegister functions before main(). They load nothing and need no
 * driver, so a host program that never uses the GPU pays nothing. A program becomes driver libraries
 * (CUlibrary) when something of it is first used; the driver loads them into each context that needs them. */
#include "simcudart/simcudart.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#define FATBIN_WRAPPER_MAGIC 0x466243b1

/* What __cudaRegisterFatBinary() gets: nvcc's wrapper around one fatbin. Version 2 is for relocatable device
 * code: `linked` lists what was linked, and NULL ends it. */
struct fatbin_wrapper {
    int magic;
    int version;
    const void *fatbin;
    const void *const *linked;
};

enum entity_kind {
    ENTITY_KERNEL,
    ENTITY_VARIABLE,
    ENTITY_MANAGED,
    ENTITY_HANDLE, /* a kernel handle that the program has, of a registered kernel or of a library it loaded
                      itself */
};

/* Something that the program has an address for. Its name lives as long as the host program. */
struct entity {
    enum entity_kind kind;
    struct program *program; /* NULL: a kernel of a library that is not ours */
    const void *host;
    const char *name;
    CUkernel kernel;           /* of a kernel, once it is known */
    void **managed_host;       /* ENTITY_MANAGED: where the host's code finds the address */
    struct entity *of_program; /* the program's next */
    struct entity *in_bucket;  /* the bucket's next */
};

struct program {
    const struct fatbin_wrapper *wrapper;
    struct entity *entities;
    bool is_loaded;
    bool is_shown;     /* the host's code sees the managed variables, */
    unsigned shown_at; /* by runtime_resets() then */
    CUlibrary *libraries;
    size_t library_count;
    LIST_ENTRY(program) entry;
};

#define BUCKETS 1024
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything here */
static struct entity *by_host[BUCKETS];
static LIST_HEAD(, program) programs = LIST_HEAD_INITIALIZER(programs);

static struct entity **bucket_of(const void *host)
{
    return &by_host[(((uintptr_t)host * 0x9e3779b97f4a7c15u) >> 54) % BUCKETS];
}

static struct entity *find(const void *host)
{
    struct entity *entity = *bucket_of(host);
    while (entity && entity->host != host)
        entity = entity->in_bucket;
    return entity;
}

static struct entity *find_kernel(const void *kernel)
{
    struct entity *entity = find(kernel);
    return entity && (entity->kind == ENTITY_KERNEL || entity->kind == ENTITY_HANDLE) ? entity : NULL;
}

static struct entity *find_variable(const void *symbol)
{
    struct entity *entity = find(symbol);
    if (entity && (entity->kind == ENTITY_VARIABLE || entity->kind == ENTITY_MANAGED))
        return entity;
    /* To the host's code the name of a managed variable means its present address. */
    struct program *program;
    LIST_FOREACH (program, &programs, entry)
        for (entity = program->entities; entity; entity = entity->of_program)
            if (entity->kind == ENTITY_MANAGED && *entity->managed_host == symbol)
                return entity;
    return NULL;
}

/* Start-up code has no way to be told that memory is short, and the program would miss its kernels later. */
static void *need(void *allocated)
{
    if (!allocated)
        abort();
    return allocated;
}

static struct entity *add_entity(struct program *program, enum entity_kind kind, const void *host,
                                 const char *name)
{
    struct entity *entity = need(calloc(1, sizeof *entity));
    entity->kind = kind;
    entity->program = program;
    entity->host = host;
    entity->name = name;
    if (program) {
        entity->of_program = program->entities;
        program->entities = entity;
    }
    entity->in_bucket = *bucket_of(host);
    *bucket_of(host) = entity;
    return entity;
}

static void drop(struct entity *entity)
{
    struct entity **link = bucket_of(entity->host);
    while (*link != entity)
        link = &(*link)->in_bucket;
    *link = entity->in_bucket;
    free(entity);
}

void **__cudaRegisterFatBinary(void *wrapper)
{
    struct program *program = need(calloc(1, sizeof *program));
    program->wrapper = wrapper;
    pthread_mutex_lock(&lock);
    LIST_INSERT_HEAD(&programs, program, entry);
    pthread_mutex_unlock(&lock);
    return (void **)program;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
}

static struct entity *register_entity(void **handle, enum entity_kind kind, const void *host,
                                      const char *name)
{
    pthread_mutex_lock(&lock);
    struct entity *entity = add_entity((struct program *)handle, kind, host, name);
    pthread_mutex_unlock(&lock);
    return entity;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            void *thread_id, void *block_id, dim3 *block, dim3 *grid, int *warp)
{
    register_entity(handle, ENTITY_KERNEL, host, name);
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
                       int constant, int global)
{
    register_entity(handle, ENTITY_VARIABLE, host, name);
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external,
                              size_t bytes, int constant, int global)
{
    register_entity(handle, ENTITY_MANAGED, host, name)->managed_host = host;
}

/* Host variables and functions that device code may refer to where the system allows it: ours never does. */
void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes)
{
}

void __cudaRegisterUnifiedTable(void **handle, void *table)
{
}

static void unload(struct program *program)
{
    while (program->library_count)
        DRIVER(cuLibraryUnload)(program->libraries[--program->library_count]);
    free(program->libraries);
    program->libraries = NULL;
}

void __cudaUnregisterFatBinary(void **handle)
{
    struct program *program = (struct program *)handle;
    pthread_mutex_lock(&lock);
    for (struct entity *entity = program->entities, *next; entity; entity = next) {
        next = entity->of_program;
        drop(entity);
    }
    LIST_REMOVE(program, entry);
    unload(program);
    pthread_mutex_unlock(&lock);
    free(program);
}

static cudaError_t load_images(struct program *program, const void *const *images)
{
    size_t count = 0;
    while (images[count])
        count++;
    program->libraries = calloc(count ? count : 1, sizeof *program->libraries);
    RUNTIME_REQUIRE(program->libraries, cudaErrorMemoryAllocation);
    for (size_t i = 0; i < count; i++) {
        CUlibrary *library = &program->libraries[program->library_count];
        CUresult result = DRIVER(cuLibraryLoadData)(library, images[i], NULL, NULL, 0, NULL, NULL, 0);
        if (result != CUDA_SUCCESS) {
            unload(program);
            return runtime_translate(result);
        }
        program->library_count++;
    }
    return cudaSuccess;
}

/* Where a variable is in the current context. */
static cudaError_t locate(const struct entity *variable, CUdeviceptr *address, size_t *bytes)
{
    const struct program *program = variable->program;
    for (size_t i = 0; i < program->library_count; i++) {
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        if (variable->kind == ENTITY_MANAGED)
            result = DRIVER(cuLibraryGetManaged)(address, bytes, program->libraries[i], variable->name);
        if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER)
            result = DRIVER(cuLibraryGetGlobal)(address, bytes, program->libraries[i], variable->name);
        if (result != CUDA_ERROR_NOT_FOUND)
            return runtime_translate(result);
    }
    return cudaErrorInvalidSymbol;
}

/* The host's code reads managed variables through pointers that we set. */
static void show_managed_variables(struct program *program)
{
    unsigned resets = runtime_resets();
    for (struct entity *entity = program->entities; entity; entity = entity->of_program) {
        CUdeviceptr address;
        size_t bytes;
        if (entity->kind == ENTITY_MANAGED && locate(entity, &address, &bytes) == cudaSuccess)
            *entity->managed_host = (void *)address;
    }
    program->is_shown = true;
    program->shown_at = resets;
}

/* Give the driver the program's libraries and make its managed variables usable. Needs a current context. */
static cudaError_t load(struct program *program)
{
    const void *const single[] = {program->wrapper, NULL};
    const struct fatbin_wrapper *wrapper = program->wrapper;
    if (!program->is_loaded) {
        bool is_linked = wrapper->magic == FATBIN_WRAPPER_MAGIC && wrapper->version == 2 && wrapper->linked;
        RUNTIME_TRY(load_images(program, is_linked ? wrapper->linked : single));
        program->is_loaded = true;
    }
    if (!program->is_shown || program->shown_at != runtime_resets())
        show_managed_variables(program);
    return cudaSuccess;
}

/* Called by the host's code before it first touches a managed variable. */
char __cudaInitModule(void **handle)
{
    cudaError_t error = runtime_need_context();
    if (error == cudaSuccess) {
        pthread_mutex_lock(&lock);
        error = load((struct program *)handle);
        pthread_mutex_unlock(&lock);
    }
    return runtime_answer(error) == cudaSuccess;
}

static cudaError_t kernel_locked(const void *host, CUkernel *kernel)
{
    struct entity *entity = find_kernel(host);
    RUNTIME_REQUIRE(entity, cudaErrorInvalidDeviceFunction);
    if (entity->program)
        RUNTIME_TRY(load(entity->program));
    if (!entity->kernel) {
        CUresult result = CUDA_ERROR_NOT_FOUND;
        for (size_t i = 0; i < entity->program->library_count && result == CUDA_ERROR_NOT_FOUND; i++)
            result = DRIVER(cuLibraryGetKernel)(&entity->kernel, entity->program->libraries[i], entity->name);
        RUNTIME_REQUIRE(result != CUDA_ERROR_NOT_FOUND, cudaErrorInvalidDeviceFunction);
        RUNTIME_TRY(runtime_translate(result));
        if (!find(entity->kernel))
            add_entity(entity->program, ENTITY_HANDLE, entity->kernel, entity->name)->kernel = entity->kernel;
    }
    *kernel = entity->kernel;
    return cudaSuccess;
}

cudaError_t program_kernel(const void *host, CUkernel *kernel)
{
    RUNTIME_TRY(runtime_need_context());
    pthread_mutex_lock(&lock);
    cudaError_t error = kernel_locked(host, kernel);
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t program_function(const void *host, CUfunction *function)
{
    CUkernel kernel;
    RUNTIME_TRY(program_kernel(host, &kernel));
    return runtime_translate(DRIVER(cuKernelGetFunction)(function, kernel));
}

void *program_host_of(CUkernel kernel)
{
    void *host = kernel;
    pthread_mutex_lock(&lock);
    struct program *program;
    LIST_FOREACH (program, &programs, entry)
        for (struct entity *entity = program->entities; entity; entity = entity->of_program)
            if (entity->kind == ENTITY_KERNEL && entity->kernel == kernel)
                host = (void *)(uintptr_t)entity->host;
    pthread_mutex_unlock(&lock);
    return host;
}

void program_adopt_kernel(CUkernel kernel)
{
    pthread_mutex_lock(&lock);
    if (!find(kernel))
        add_entity(NULL, ENTITY_HANDLE, kernel, NULL)->kernel = kernel;
    pthread_mutex_unlock(&lock);
}

static cudaError_t symbol_locked(const void *symbol, CUdeviceptr *address, size_t *bytes)
{
    struct entity *entity = find_variable(symbol);
    RUNTIME_REQUIRE(entity, cudaErrorInvalidSymbol);
    RUNTIME_TRY(load(entity->program));
    return locate(entity, address, bytes);
}

cudaError_t program_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes)
{
    RUNTIME_TRY(runtime_need_context());
    pthread_mutex_lock(&lock);
    cudaError_t error = symbol_locked(symbol, address, bytes);
    pthread_mutex_unlock(&lock);
    return error;
}

static cudaError_t get_symbol_address(void **address, const void *symbol)
{
    CUdeviceptr found = 0;
    size_t bytes;
    RUNTIME_REQUIRE(address, cudaErrorInvalidValue);
    RUNTIME_TRY(program_symbol(symbol, &found, &bytes));
    *address = (void *)found;
    return cudaSuccess;
}
EXPORT(cudaGetSymbolAddress, get_symbol_address, (void **address, const void *symbol), (address, symbol))

static cudaError_t get_symbol_size(size_t *bytes, const void *symbol)
{
    CUdeviceptr address;
    RUNTIME_REQUIRE(bytes, cudaErrorInvalidValue);
    return program_symbol(symbol, &address, bytes);
}
EXPORT(cudaGetSymbolSize, get_symbol_size, (size_t * bytes, const void *symbol), (bytes, symbol))

static cudaError_t get_kernel(cudaKernel_t *kernel, const void *host)
{
    RUNTIME_REQUIRE(kernel, cudaErrorInvalidValue);
    return program_kernel(host, kernel);
}
EXPORT(cudaGetKernel, get_kernel, (cudaKernel_t * kernel, const void *host), (kernel, host))

/* Each kernel's stand-in function asks once and keeps the answer for good. So the answer is the stand-in's
 * own address: __cudaLaunchKernel() takes it too, and it needs no driver or context, which may come later. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)(uintptr_t)host;
    return cudaSuccess;
}

static cudaError_t get_function(cudaFunction_t *function, const void *kernel)
{
    RUNTIME_REQUIRE(function, cudaErrorInvalidValue);
    return program_function(kernel, function);
}
EXPORT(cudaGetFuncBySymbol, get_function, (cudaFunction_t * function, const void *kernel), (function, kernel))
