/* driver.c - a stand-in for libcuda.so.1 that only answers lookups: every entry point of the table is there,
 * does nothing and returns the number of its row, so that a test sees which function it was given.
 *
 * DRIVER_HIDES=NAME    cuGetProcAddress answers for NAME with a function that is exported under no symbol
 * DRIVER_NEWER=NAME    ... only for versions after the table, as a driver with a newer form does */
#include <stdlib.h>
#include <string.h>

#include "cuda/entry_points.h"

#define EXPORT __attribute__((visibility("default")))

/* Declared here, not in prototypes.h: they take nothing, whatever the real ones take. */
#define ROW(symbol)                                                                                          \
    EXPORT int symbol(void);                                                                                 \
    int symbol(void)                                                                                         \
    {                                                                                                        \
        return CUDA_ID_##symbol;                                                                             \
    }
#define DEFINE_ALLOCATES ROW
#define DEFINE_FREES ROW
#define DEFINE_SUBMITS ROW
#define DEFINE_WAITS ROW
#define DEFINE_QUERIES ROW
#define DEFINE_NEUTRAL ROW
#define DEFINE_RESOLVES(symbol)
#define CUDA_ENTRY(symbol, name, since, stream, class) DEFINE_##class(symbol)
#include "cuda/entry_points.def"
#undef CUDA_ENTRY

EXPORT CUresult cuGetProcAddress(const char *, void **, int, cuuint64_t);
EXPORT CUresult cuGetProcAddress_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *, void **, int, cuuint64_t,
                                         CUdriverProcAddressQueryResult *);

static void *const functions[CUDA_ENTRY_COUNT] = {
#define CUDA_ENTRY(symbol, name, since, stream, class) [CUDA_ID_##symbol] = (void *)(symbol),
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
};

static int unexported(void)
{
    return -1;
}

static int is_named_in(const char *variable, const char *name)
{
    const char *value = getenv(variable);
    return value && strcmp(value, name) == 0;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (!name || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    int id = cuda_entry_resolve(name, version, flags);
    *function = id < 0 ? NULL : functions[id];
    if (is_named_in("DRIVER_HIDES", name) ||
        (is_named_in("DRIVER_NEWER", name) && version > CUDA_ENTRY_NEWEST))
        *function = (void *)unexported;
    if (status)
        *status = id >= 0                    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : id == CUDA_ENTRY_TOO_NEW ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return !*function && !status ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2_ptsz(const char *name, void **function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    if (flags == CU_GET_PROC_ADDRESS_DEFAULT)
        flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    return cuGetProcAddress_v2(name, function, version, flags, status);
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
