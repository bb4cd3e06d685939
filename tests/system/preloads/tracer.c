/* tracer.c - somebody else's preloaded library: counts calls, and goes on to the next in line by RTLD_NEXT.
 * With TRACER_ASKS=handle it takes the driver's functions from dlopen and dlsym instead, as tools do that
 * expect the driver to be loaded late. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"

#define EXPORT __attribute__((visibility("default")))

static int allocations, lookups, mallocs;

EXPORT void *tracer_find(void *handle, const char *name);
EXPORT int tracer_count(const char *what);
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
EXPORT CUresult cuGetProcAddress_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* dlsym with this library as the caller. */
void *tracer_find(void *handle, const char *name)
{
    void *volatile found = dlsym(handle, name); /* not a tail call, which would make the caller ours */
    return found;
}

int tracer_count(const char *what)
{
    return strcmp(what, "allocations") == 0 ? allocations : strcmp(what, "lookups") == 0 ? lookups : mallocs;
}

static void *next(const char *name)
{
    const char *asks = getenv("TRACER_ASKS");
    if (asks && strcmp(asks, "handle") == 0)
        return tracer_find(dlopen("libcuda.so.1", RTLD_LAZY), name);
    return tracer_find(RTLD_NEXT, name);
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    allocations++;
    CUresult (*real)(CUdeviceptr *, size_t) = next("cuMemAlloc_v2");
    return real ? real(pointer, bytes) : CUDA_ERROR_UNKNOWN;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    lookups++;
    CUresult (*real)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        next("cuGetProcAddress_v2");
    return real ? real(name, function, version, flags, status) : CUDA_ERROR_UNKNOWN;
}

EXPORT void *malloc(size_t bytes)
{
    static void *(*real)(size_t);
    if (!real)
        real = tracer_find(RTLD_NEXT, "malloc");
    mallocs++;
    return real(bytes);
}
