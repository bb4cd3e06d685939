/* real.c - finds the driver and NVML, and their functions. */
#include "intercept/resolve/real.h"

#include <dlfcn.h>
#include <stddef.h>

#include "intercept/resolve/resolve.h"

_Atomic(void *) real_functions[CUDA_ENTRY_COUNT];
_Atomic(void *) real_nvml_functions[NVML_ID_COUNT + 1];
atomic_bool real_found, real_nvml_found;

/* The first thread that finds a copy of a library decides that this copy is used. */
static _Atomic(void *) driver_handle, nvml_handle;

/* Every symbol of the driver that was looked up, hooked or not. ABSENT: the driver lacks it. */
static _Atomic(void *) driver_functions[CUDA_ENTRY_COUNT];
static _Atomic(void *) nvml_functions[NVML_ID_COUNT + 1];
static char absent_mark;
#define ABSENT ((void *)&absent_mark)

/* Loading and looking up call libc itself: a library behind us may have a dlopen of its own. */
static void *open_loaded(const char *path)
{
    return resolve_libc()->dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
}

static void *open_library(const char *soname, bool load)
{
    void *handle = open_loaded(soname);
    return handle || !load ? handle : resolve_libc()->dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
}

/* Clear the error of our own lookups; otherwise the program's next dlerror() would return it. */
static void forget_error(void)
{
    resolve_libc()->dlerror();
}

/* Store `handle` in `*place`, unless another is there already; returns the one that is there. The reference is kept
 * for good, since hooks must not call into a library that is unloaded. */
static void *keep_handle(_Atomic(void *) *place, void *handle)
{
    void *kept = NULL;
    if (atomic_compare_exchange_strong_explicit(place, &kept, handle, memory_order_acq_rel,
                                                memory_order_acquire))
        return handle;
    resolve_libc()->dlclose(handle);
    return kept;
}

static void *look_up(_Atomic(void *) *place, void *handle, const char *symbol)
{
    void *function = atomic_load_explicit(place, memory_order_relaxed);
    if (!function) {
        function = resolve_real_dlsym(handle, symbol);
        forget_error();
        atomic_store_explicit(place, function ? function : ABSENT, memory_order_relaxed);
    }
    return function == ABSENT ? NULL : function;
}

void *real_driver_function(int id)
{
    void *handle = atomic_load_explicit(&driver_handle, memory_order_acquire);
    return handle ? look_up(&driver_functions[id], handle, cuda_entries[id].symbol) : NULL;
}

void *real_driver_symbol(const char *name)
{
    void *handle = atomic_load_explicit(&driver_handle, memory_order_acquire);
    void *function = handle ? resolve_real_dlsym(handle, name) : NULL;
    forget_error();
    return function;
}

void *real_nvml_function(int id)
{
    void *handle = atomic_load_explicit(&nvml_handle, memory_order_acquire);
    return handle ? look_up(&nvml_functions[id], handle, hook_nvml_symbols[id]) : NULL;
}

/* Whether a linked program's calls end in this library. Only then does RTLD_NEXT, ours or another preloaded
 * library's, lead to it. Tried with symbols that nobody has a reason to hook. */
static bool is_linked(void *handle, const char *const probes[])
{
    for (; *probes; probes++) {
        void *function = resolve_real_dlsym(handle, *probes);
        if (function && resolve_real_dlsym(RTLD_DEFAULT, *probes) == function)
            return true;
    }
    return false;
}

/* The function that our hook of `symbol` calls. */
static void *next_in_line(const char *symbol, void *own, bool linked)
{
    void *next = linked && own ? resolve_real_dlsym(RTLD_NEXT, symbol) : NULL;
    return next ? next : own;
}

static void fill_driver(void)
{
    void *handle = atomic_load_explicit(&driver_handle, memory_order_acquire);
    bool linked = is_linked(handle, (const char *const[]){"cuDriverGetVersion", "cuGetErrorName", NULL});

    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        if (hook_functions[id])
            atomic_store_explicit(&real_functions[id],
                                  next_in_line(cuda_entries[id].symbol, real_driver_function(id), linked),
                                  memory_order_relaxed);
    }
#define REAL(symbol)                                                                                         \
    atomic_store_explicit(&real_functions[CUDA_ID_##symbol], real_driver_function(CUDA_ID_##symbol),         \
                          memory_order_relaxed);
#include "intercept/resolve/hooks.def"
    atomic_store_explicit(&real_found, true, memory_order_release); /* pairs with real_ready() */
}

static void fill_nvml(void)
{
    void *handle = atomic_load_explicit(&nvml_handle, memory_order_acquire);
    bool linked =
        is_linked(handle, (const char *const[]){"nvmlErrorString", "nvmlSystemGetNVMLVersion", NULL});

    for (int id = 0; id < NVML_ID_COUNT; id++) {
        void *own = real_nvml_function(id);
        atomic_store_explicit(&real_nvml_functions[id],
                              hook_nvml_functions[id] ? next_in_line(hook_nvml_symbols[id], own, linked)
                                                      : own,
                              memory_order_relaxed);
    }
    atomic_store_explicit(&real_nvml_found, true, memory_order_release);
}

static bool adopt(_Atomic(void *) *place, void *handle, void (*fill)(void))
{
    if (handle) {
        keep_handle(place, handle);
        fill();
    }
    forget_error();
    return handle != NULL;
}

bool real_find(bool load)
{
    return atomic_load_explicit(&real_found, memory_order_acquire) ||
           adopt(&driver_handle, open_library("libcuda.so.1", load), fill_driver);
}

bool real_nvml_find(bool load)
{
    return atomic_load_explicit(&real_nvml_found, memory_order_acquire) ||
           adopt(&nvml_handle, open_library("libnvidia-ml.so.1", load), fill_nvml);
}

bool real_adopt(const char *path)
{
    return adopt(&driver_handle, open_loaded(path), fill_driver);
}

bool real_nvml_adopt(const char *path)
{
    return adopt(&nvml_handle, open_loaded(path), fill_nvml);
}

CUresult real_absent(void)
{
    return real_ready() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;
}

nvmlReturn_t real_nvml_absent(void)
{
    return real_nvml_ready() ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_LIBRARY_NOT_FOUND;
}

/* Whether `address` is in the library that `next` is in, and `next` is not `own`. */
static bool is_in_next(const void *next, const void *own, const void *address)
{
    Dl_info there, here;
    return next != own && resolve_libc()->dladdr(next, &there) && resolve_libc()->dladdr(address, &here) &&
           there.dli_fbase == here.dli_fbase;
}

bool real_is_next(int id, const void *address)
{
    return is_in_next(atomic_load_explicit(&real_functions[id], memory_order_relaxed),
                      real_driver_function(id), address);
}

bool real_nvml_is_next(int id, const void *address)
{
    return is_in_next(atomic_load_explicit(&real_nvml_functions[id], memory_order_relaxed),
                      real_nvml_function(id), address);
}
