/* real.h - the functions that a hook calls: the driver's own, found once.
 *
 *   CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
 *   {
 *       real_needed(cuMemAlloc_v2);
 *       ...
 *       return real(cuMemAlloc_v2)(pointer, bytes);
 *   }
 *
 * real(symbol) of a hooked symbol is the function that would have been called without us. If another preloaded
 * library that has the symbol comes after us and the program is linked with the driver, that is the library's
 * function; otherwise it is the driver's. For any other symbol it is the driver's. All of this is lock-free: hooks
 * and dlsym are called under the loader's lock, from constructors and from other libraries' hooks, and several
 * threads may find the same driver at once. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda/entry_points.h"
#include "cuda/prototypes.h"
#include "intercept/resolve/hooks.h"
#include "intercept/resolve/nvml_prototypes.h"

extern _Atomic(void *) real_functions[CUDA_ENTRY_COUNT];
extern _Atomic(void *) real_nvml_functions[NVML_ID_COUNT + 1];
extern atomic_bool real_found, real_nvml_found;

/* Find libcuda.so.1 in this process; if it is not loaded, load it (only where `load`). Slow; call real_ready()
 * instead. */
bool real_find(bool load);
bool real_nvml_find(bool load);

/* Whether there is a driver and real() is filled. After the first success, this costs one load. */
static inline bool real_ready(void)
{
    return atomic_load_explicit(&real_found, memory_order_acquire) /* pairs with real_find() */
           || real_find(true);
}

/* The same for libnvidia-ml.so.1 and real_nvml(). */
static inline bool real_nvml_ready(void)
{
    return atomic_load_explicit(&real_nvml_found, memory_order_acquire) || real_nvml_find(true);
}

/* NULL when this driver lacks the symbol. Only for rows of hooks.def, and after real_ready(). */
#define real(symbol)                                                                                         \
    ((__typeof__(&symbol))atomic_load_explicit(&real_functions[CUDA_ID_##symbol], memory_order_relaxed))

/* The first lines of a hook: without a driver, or if the driver lacks the function, the hook answers real_absent(). */
#define real_needed(symbol)                                                                                  \
    do {                                                                                                     \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
    } while (0)

#define real_nvml(symbol)                                                                                    \
    ((__typeof__(&symbol))atomic_load_explicit(&real_nvml_functions[NVML_ID_##symbol], memory_order_relaxed))

/* A hook's answer when real_ready() is false: no device; when real(symbol) is NULL: not supported by this driver. */
CUresult real_absent(void);
nvmlReturn_t real_nvml_absent(void);

/* The driver's own function for a row, hooked or not; NULL if the driver lacks it or there is no driver yet. Looked
 * up once. */
void *real_driver_function(int id);
void *real_nvml_function(int id);

/* What the driver exports under a name that no table has; NULL if it does not, or there is no driver yet. */
void *real_driver_symbol(const char *name);

/* Take the loaded library with this path for the driver (or NVML) if none is known yet: a driver that was loaded
 * under another name. */
bool real_adopt(const char *path);
bool real_nvml_adopt(const char *path);

/* Whether the code at `address` belongs to the library that real(id) leads to, when that is not the driver. Such a
 * library must get the function behind itself; otherwise it would get itself back through us. */
bool real_is_next(int id, const void *address);
bool real_nvml_is_next(int id, const void *address);
