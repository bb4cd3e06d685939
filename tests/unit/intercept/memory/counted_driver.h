/* counted_driver.h - puts itself between the swap engine and the driver, and counts what the engine's thread spends in the
 * driver: so what is left of the thread's time is the engine's own. What the driver's other threads spend counts nowhere. */
#pragma once

#include <stdint.h>
#include <time.h>

#include "intercept/resolve/real.h"

static struct {
    uint64_t ns, calls;
    uint64_t clock_ns; /* what reading the clock takes: once a call, outside of what counts as the driver's */
} in_driver;

static inline uint64_t thread_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* What moving calls. Not the functions by which a context is made current: they are called for a context, not for
 * memory. */
#define COUNTED_CALLS(ROW)                                                                                   \
    ROW(cuMemcpyDtoHAsync_v2, (void *a, CUdeviceptr b, size_t c, CUstream d), (a, b, c, d))                  \
    ROW(cuMemcpyHtoDAsync_v2, (CUdeviceptr a, const void *b, size_t c, CUstream d), (a, b, c, d))            \
    ROW(cuMemsetD8Async, (CUdeviceptr a, unsigned char b, size_t c, CUstream d), (a, b, c, d))               \
    ROW(cuLaunchKernel,                                                                                      \
        (CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h,   \
         CUstream i, void **j, void **k),                                                                    \
        (a, b, c, d, e, f, g, h, i, j, k))                                                                   \
    ROW(cuModuleLoadData, (CUmodule * a, const void *b), (a, b))                                             \
    ROW(cuModuleGetFunction, (CUfunction * a, CUmodule b, const char *c), (a, b, c))                         \
    ROW(cuStreamCreate, (CUstream * a, unsigned b), (a, b))                                                  \
    ROW(cuStreamIsCapturing, (CUstream a, CUstreamCaptureStatus * b), (a, b))                                \
    ROW(cuStreamSynchronize, (CUstream a), (a))                                                              \
    ROW(cuEventCreate, (CUevent * a, unsigned b), (a, b))                                                    \
    ROW(cuEventRecord, (CUevent a, CUstream b), (a, b))                                                      \
    ROW(cuEventQuery, (CUevent a), (a))                                                                      \
    ROW(cuEventSynchronize, (CUevent a), (a))                                                                \
    ROW(cuMemAlloc_v2, (CUdeviceptr * a, size_t b), (a, b))                                                  \
    ROW(cuMemFree_v2, (CUdeviceptr a), (a))                                                                  \
    ROW(cuMemCreate,                                                                                         \
        (CUmemGenericAllocationHandle * a, size_t b, const CUmemAllocationProp *c, unsigned long long d),    \
        (a, b, c, d))                                                                                        \
    ROW(cuMemRelease, (CUmemGenericAllocationHandle a), (a))                                                 \
    ROW(cuMemMap, (CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d, unsigned long long e), \
        (a, b, c, d, e))                                                                                     \
    ROW(cuMemUnmap, (CUdeviceptr a, size_t b), (a, b))                                                       \
    ROW(cuMemSetAccess, (CUdeviceptr a, size_t b, const CUmemAccessDesc *c, size_t d), (a, b, c, d))         \
    ROW(cuMemHostRegister_v2, (void *a, size_t b, unsigned c), (a, b, c))                                    \
    ROW(cuMemHostUnregister, (void *a), (a))

#define COUNTED_CALL(symbol, parameters, arguments)                                                          \
    static CUresult(*driver_##symbol) parameters;                                                            \
    static CUresult counted_##symbol parameters                                                              \
    {                                                                                                        \
        uint64_t from_ns = thread_cpu_ns();                                                                  \
        CUresult result = driver_##symbol arguments;                                                         \
        in_driver.ns += thread_cpu_ns() - from_ns;                                                           \
        in_driver.calls++;                                                                                   \
        return result;                                                                                       \
    }
COUNTED_CALLS(COUNTED_CALL)

static inline void count_driver_calls(void)
{
#define COUNTED_SET(symbol, parameters, arguments)                                                           \
    driver_##symbol = real(symbol);                                                                          \
    atomic_store(&real_functions[CUDA_ID_##symbol], (void *)counted_##symbol);
    COUNTED_CALLS(COUNTED_SET)
#undef COUNTED_SET
    enum { READINGS = 20000 };
    uint64_t from_ns = thread_cpu_ns();
    for (unsigned i = 1; i < READINGS; i++)
        thread_cpu_ns();
    in_driver.clock_ns = (thread_cpu_ns() - from_ns) / READINGS;
}
