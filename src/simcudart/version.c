/* version.c - versions, and driver entry points by name. */
#include "simcudart/simcudart.h"

static cudaError_t runtime_version(int *version)
{
    RUNTIME_REQUIRE(version, cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}
EXPORT(cudaRuntimeGetVersion, runtime_version, (int *version), (version))

/* Succeeds without a driver too, and with one that is too old for this runtime. */
static cudaError_t driver_version(int *version)
{
    RUNTIME_REQUIRE(version, cudaErrorInvalidValue);
    *version = runtime_driver_number();
    return cudaSuccess;
}
EXPORT(cudaDriverGetVersion, driver_version, (int *version), (version))

static cudaError_t entry_point(enum form form, const char *symbol, void **function, unsigned int version,
                               unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    RUNTIME_REQUIRE(symbol && function, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_driver());
    if (flags == CU_GET_PROC_ADDRESS_DEFAULT && form == PER_THREAD_FORM)
        flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *function = NULL;
    CUresult result = DRIVER(cuGetProcAddress_v2)(symbol, function, (int)version, flags, &found);
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return runtime_translate(result);
}
EXPORT_FORMS(cudaGetDriverEntryPointByVersion, _ptsz, entry_point,
             (const char *symbol, void **function, unsigned int version, unsigned long long flags,
              enum cudaDriverEntryPointQueryResult *status),
             (symbol, function, version, flags, status))
EXPORT_FORMS(cudaGetDriverEntryPoint, _ptsz, entry_point,
             (const char *symbol, void **function, unsigned long long flags,
              enum cudaDriverEntryPointQueryResult *status),
             (symbol, function, CUDART_VERSION, flags, status))

#if CUDART_MAJOR == 12
/* Doubles have been doubles on every device since 2008. */
static cudaError_t set_double(double *value)
{
    return value ? cudaSuccess : cudaErrorInvalidValue;
}
EXPORT(cudaSetDoubleForDevice, set_double, (double *value), (value))
EXPORT(cudaSetDoubleForHost, set_double, (double *value), (value))
#endif
