#include "simcudart/simcudart.h"

static const struct result {
    cudaError_t value;
    const char *name, *text;
} results[] = {
#define CUDART_RESULT(name, value, text) {name, #name, text},
#include "cuda/runtime_results.def"
#undef CUDART_RESULT
};

static _Thread_local cudaError_t last_error;

static const struct result *find(cudaError_t value)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].value == value)
            return &results[i];
    return NULL;
}

/* The numbers are the same on both sides since CUDA 10.1; the runtime does not name all of the driver's. */
cudaError_t runtime_translate(CUresult result)
{
    return find((cudaError_t)result) ? (cudaError_t)result : cudaErrorUnknown;
}

/* After these errors the context cannot be used any more, and every later call says so. */
static bool is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
        return true;
    default:
        return false;
    }
}

cudaError_t runtime_answer(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void runtime_forget_errors(void)
{
    last_error = cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    if (!is_sticky(error))
        last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const struct result *result = find(error);
    return result ? result->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const struct result *result = find(error);
    return result ? result->text : "unrecognized error code";
}
