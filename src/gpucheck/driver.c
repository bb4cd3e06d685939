#include "gpucheck/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static CUresult absent(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

/* Read by driver.S. */
extern void *driver_functions[CUDA_ENTRY_COUNT];
__attribute__((visibility("hidden"))) void *driver_functions[CUDA_ENTRY_COUNT] = {
    [0 ... CUDA_ENTRY_COUNT - 1] = (void *)absent,
};

typedef CUresult (*resolver)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void *by_resolver(resolver resolve, const struct cuda_entry *entry)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    cuuint64_t flags = entry->stream == CUDA_STREAM_PER_THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                               : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    return resolve(entry->name, &function, entry->since, flags, &status) == CUDA_SUCCESS ? function : NULL;
}

const char *driver_open(enum driver_route route)
{
    static char reason[256];
    static void *library;
    if (!library && !(library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))) {
        snprintf(reason, sizeof(reason), "%s", dlerror());
        return reason;
    }
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    resolver resolve;
    memcpy(&resolve, &symbol, sizeof(resolve));
    if (route == DRIVER_BY_GET_PROC_ADDRESS && !resolve)
        return "the driver is older than CUDA 12 and has no cuGetProcAddress_v2";
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        void *function = route == DRIVER_BY_DLSYM ? dlsym(library, cuda_entries[id].symbol)
                                                  : by_resolver(resolve, &cuda_entries[id]);
        driver_functions[id] = function ? function : (void *)absent;
    }
    return NULL;
}

bool driver_has(enum cuda_entry_id id)
{
    return driver_functions[id] != (void *)absent;
}

void *driver_function(enum cuda_entry_id id)
{
    return driver_functions[id];
}
