#include "intercept/memory/engine/as_driver.h"

#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

#define PITCH_BYTES 512u /* rows are multiples of this, on all cards so far (measure) */

/* Have the driver choose the pitch, for an allocation of one row. */
static CUresult choose_pitch(const struct allocation *wanted)
{
    CUdeviceptr row;
    size_t width = wanted->pitched.width;
    CUresult result =
        real(cuMemAllocPitch_v2)(&row, wanted->pitched.pitch, width, 1, wanted->pitched.element_bytes);
    if (result == CUDA_SUCCESS)
        return real(cuMemFree_v2)(row);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || width > SIZE_MAX - PITCH_BYTES)
        return result;
    *wanted->pitched.pitch = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    return CUDA_SUCCESS;
}

CUresult as_driver_pitch(const struct allocation *wanted, uint64_t *bytes)
{
    CUresult result = choose_pitch(wanted);
    if (result == CUDA_SUCCESS &&
        __builtin_mul_overflow((uint64_t)*wanted->pitched.pitch, wanted->pitched.height, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

bool as_driver_is_captured(enum release_way way, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *) =
        way == RELEASE_cuMemFreeAsync_ptsz ? real(cuStreamIsCapturing_ptsz) : real(cuStreamIsCapturing);
    return own_calls_has_captured() && is_capturing && is_capturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult as_driver_wait_for_stream(enum release_way way, CUstream stream)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    CUresult result = way == RELEASE_cuMemFreeAsync_ptsz ? real(cuStreamSynchronize_ptsz)(stream)
                                                         : real(cuStreamSynchronize)(stream);
    own_calls_end(&calls);
    return result;
}

bool as_driver_context_of(CUstream stream, CUcontext *context)
{
    *context = NULL;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        !real(cuStreamGetCtx))
        return true;
    return real(cuStreamGetCtx)(stream, context) == CUDA_SUCCESS;
}
