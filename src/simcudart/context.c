/* context.c - which device a thread works on, and the primary contexts that go with it. */
#include "simcudart/simcudart.h"

#include <pthread.h>

/* One entry a device, under `lock`. */
static struct {
    CUcontext primary;           /* NULL until it is needed, and after a reset */
    _Atomic unsigned generation; /* changes with every reset; read without the lock */
} devices[RUNTIME_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int first_device; /* set by cudaSetValidDevices */
static _Atomic unsigned resets;

static _Thread_local struct {
    bool has_device;
    int device;
    CUcontext bound; /* the context that we made current, */
    int bound_device;
    unsigned bound_generation; /* and its device's generation then */
} thread;

static int thread_device(void)
{
    return thread.has_device ? thread.device : first_device;
}

static cudaError_t check_device(int device)
{
    int count = 0;
    RUNTIME_TRY(runtime_need_driver());
    RUNTIME_TRY(runtime_translate(DRIVER(cuDeviceGetCount)(&count)));
    RUNTIME_REQUIRE(device >= 0 && device < count && device < RUNTIME_DEVICES, cudaErrorInvalidDevice);
    return cudaSuccess;
}

static cudaError_t primary_locked(int device, CUcontext *context)
{
    if (!devices[device].primary)
        RUNTIME_TRY(runtime_translate(DRIVER(cuDevicePrimaryCtxRetain)(&devices[device].primary, device)));
    *context = devices[device].primary;
    return cudaSuccess;
}

cudaError_t runtime_primary_context(int device, CUcontext *context)
{
    RUNTIME_TRY(check_device(device));
    pthread_mutex_lock(&lock);
    cudaError_t error = primary_locked(device, context);
    pthread_mutex_unlock(&lock);
    return error;
}

unsigned runtime_resets(void)
{
    return resets;
}

static cudaError_t bind(int device)
{
    CUcontext context = NULL;
    pthread_mutex_lock(&lock);
    cudaError_t error = primary_locked(device, &context);
    unsigned generation = devices[device].generation;
    pthread_mutex_unlock(&lock);
    RUNTIME_TRY(error);
    RUNTIME_TRY(runtime_translate(DRIVER(cuCtxSetCurrent)(context)));
    thread.bound = context;
    thread.bound_device = device;
    thread.bound_generation = generation;
    return cudaSuccess;
}

/* Whether this thread got `context` from us and another thread has reset it since. */
static bool is_stale(CUcontext context)
{
    return context == thread.bound && devices[thread.bound_device].generation != thread.bound_generation;
}

/* NULL when the thread has no context that it can use. */
static CUcontext current_context(void)
{
    CUcontext context = NULL;
    if (DRIVER(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || (context && is_stale(context)))
        return NULL;
    return context;
}

cudaError_t runtime_need_context(void)
{
    RUNTIME_TRY(runtime_need_driver());
    if (current_context())
        return cudaSuccess;
    RUNTIME_TRY(check_device(thread_device()));
    return bind(thread_device());
}

static cudaError_t get_device_count(int *count)
{
    RUNTIME_REQUIRE(count, cudaErrorInvalidValue);
    *count = 0;
    RUNTIME_TRY(runtime_need_driver());
    return runtime_translate(DRIVER(cuDeviceGetCount)(count));
}
EXPORT(cudaGetDeviceCount, get_device_count, (int *count), (count))

/* The device of the current context, whoever made it current; else the device of the next context. */
static cudaError_t get_device(int *device)
{
    RUNTIME_REQUIRE(device, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_driver());
    if (current_context() && DRIVER(cuCtxGetDevice)(device) == CUDA_SUCCESS)
        return cudaSuccess;
    *device = thread_device();
    return cudaSuccess;
}
EXPORT(cudaGetDevice, get_device, (int *device), (device))

/* Since CUDA 12 this makes the device's context, and returns what that returned. */
static cudaError_t set_device(int device)
{
    RUNTIME_TRY(check_device(device));
    thread.has_device = true;
    thread.device = device;
    return bind(device);
}
EXPORT(cudaSetDevice, set_device, (int device), (device))

static cudaError_t set_valid_devices(const int *list, int length)
{
    RUNTIME_REQUIRE(length >= 0 && (list || length == 0), cudaErrorInvalidValue);
    for (int i = 0; i < length; i++)
        RUNTIME_TRY(check_device(list[i]));
    first_device = length > 0 ? list[0] : 0;
    return cudaSuccess;
}
EXPORT(cudaSetValidDevices, set_valid_devices, (int *list, int length), (list, length))

static cudaError_t set_flags_of(int device, unsigned int flags)
{
    RUNTIME_REQUIRE((flags & ~cudaDeviceMask) == 0, cudaErrorInvalidValue);
    RUNTIME_TRY(check_device(device));
    return runtime_translate(DRIVER(cuDevicePrimaryCtxSetFlags_v2)(device, flags));
}

static cudaError_t set_device_flags(unsigned int flags)
{
    int device = 0;
    RUNTIME_TRY(get_device(&device));
    return set_flags_of(device, flags);
}
EXPORT(cudaSetDeviceFlags, set_device_flags, (unsigned int flags), (flags))

static cudaError_t get_device_flags(unsigned int *flags)
{
    RUNTIME_REQUIRE(flags, cudaErrorInvalidValue);
    int device = 0, active = 0;
    RUNTIME_TRY(get_device(&device));
    CUresult result = current_context() ? DRIVER(cuCtxGetFlags)(flags)
                                        : DRIVER(cuDevicePrimaryCtxGetState)(device, flags, &active);
    RUNTIME_TRY(runtime_translate(result));
    *flags |= cudaDeviceMapHost; /* the runtime always says so */
    return cudaSuccess;
}
EXPORT(cudaGetDeviceFlags, get_device_flags, (unsigned int *flags), (flags))

static cudaError_t init_device(int device, unsigned int device_flags, unsigned int flags)
{
    CUcontext context;
    RUNTIME_REQUIRE((flags & ~cudaInitDeviceFlagsAreValid) == 0, cudaErrorInvalidValue);
    if (flags & cudaInitDeviceFlagsAreValid)
        RUNTIME_TRY(set_flags_of(device, device_flags));
    return runtime_primary_context(device, &context);
}
EXPORT(cudaInitDevice, init_device, (int device, unsigned int device_flags, unsigned int flags),
       (device, device_flags, flags))

static cudaError_t device_reset(void)
{
    int device = 0;
    RUNTIME_TRY(get_device(&device));
    RUNTIME_TRY(check_device(device));
    pthread_mutex_lock(&lock);
    CUcontext primary = devices[device].primary;
    devices[device].primary = NULL;
    devices[device].generation++;
    pthread_mutex_unlock(&lock);
    resets++;
    if (thread.bound == primary)
        DRIVER(cuCtxSetCurrent)(NULL);
    cudaError_t error = runtime_translate(DRIVER(cuDevicePrimaryCtxReset_v2)(device));
    if (primary)
        DRIVER(cuDevicePrimaryCtxRelease_v2)
    (device); /* the reset keeps our reference; the next use takes a new one */
    runtime_forget_errors();
    return error;
}
EXPORT(cudaDeviceReset, device_reset, (void), ())
#if CUDART_MAJOR == 12
EXPORT(cudaThreadExit, device_reset, (void), ())
#endif

static cudaError_t enable_peer(int peer, unsigned int flags)
{
    CUcontext peer_context;
    RUNTIME_REQUIRE(flags == 0, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_primary_context(peer, &peer_context));
    return runtime_translate(DRIVER(cuCtxEnablePeerAccess)(peer_context, 0));
}
EXPORT(cudaDeviceEnablePeerAccess, enable_peer, (int peer, unsigned int flags), (peer, flags))

static cudaError_t disable_peer(int peer)
{
    CUcontext peer_context;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_primary_context(peer, &peer_context));
    return runtime_translate(DRIVER(cuCtxDisablePeerAccess)(peer_context));
}
EXPORT(cudaDeviceDisablePeerAccess, disable_peer, (int peer), (peer))
