#include "simcudart/simcudart.h"

#include <dlfcn.h>
#include <pthread.h>

static void *entries[CUDA_ENTRY_COUNT];
static cudaError_t driver_state = cudaErrorInitializationError;
static int driver_number; /* 0 without a driver */
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static CUresult missing(void)
{
    return CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
}

void *driver_entry(enum cuda_entry_id id)
{
    return entries[id];
}

static void ask_for_entries(__typeof__(&cuGetProcAddress_v2) resolve)
{
    for (int i = 0; i < CUDA_ENTRY_COUNT; i++) {
        const struct cuda_entry *entry = &cuda_entries[i];
        cuuint64_t flags = entry->stream == CUDA_STREAM_PER_THREAD
                               ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                               : CU_GET_PROC_ADDRESS_DEFAULT;
        void *found = NULL;
        entries[i] = (void *)missing;
        if (entry->since <= CUDART_VERSION &&
            resolve(entry->name, &found, entry->since, flags, NULL) == CUDA_SUCCESS && found)
            entries[i] = found;
    }
}

static void load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        driver_state = cudaErrorInsufficientDriver; /* as NVIDIA's answers without a driver */
        return;
    }
    __typeof__(&cuGetProcAddress_v2) resolve =
        (__typeof__(&cuGetProcAddress_v2))dlsym(library, "cuGetProcAddress_v2");
    if (!resolve) {
        driver_state = cudaErrorInsufficientDriver;
        return;
    }
    ask_for_entries(resolve);
    DRIVER(cuDriverGetVersion)(&driver_number);
    if (driver_number < CUDART_MAJOR * 1000)
        driver_state =
            cudaErrorInsufficientDriver; /* CUDA compatibility guide: a runtime needs a driver of its major version */
    else
        driver_state = runtime_translate(DRIVER(cuInit)(0));
}

cudaError_t runtime_need_driver(void)
{
    pthread_once(&driver_once, load_driver);
    return driver_state;
}

int runtime_driver_number(void)
{
    runtime_need_driver();
    return driver_number;
}
