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

/* The newest CUDA version that the driver knows; 0 if it does not say. */
static int version_of(void *library)
{
    int version = 0;
    void *symbol = dlsym(library, "cuDriverGetVersion");
    typeof(cuDriverGetVersion) *get_version;
    memcpy(&get_version, &symbol, sizeof(get_version));
    return symbol && get_version(&version) == CUDA_SUCCESS ? version : 0;
}

/* Asked for a form that is newer than itself, a driver answers with its last one, which may have other parameters. */
static void *by_resolver(resolver resolve, const struct cuda_entry *entry, int driver_version)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    cuuint64_t flags = entry->stream == CUDA_STREAM_PER_THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                               : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    bool is_known = entry->since <= driver_version &&
                    resolve(entry->name, &function, entry->since, flags, &status) == CUDA_SUCCESS;
    return is_known ? function : NULL;
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
    int version = version_of(library);
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        void *function = route == DRIVER_BY_DLSYM ? dlsym(library, cuda_entries[id].symbol)
                                                  : by_resolver(resolve, &cuda_entries[id], version);
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
