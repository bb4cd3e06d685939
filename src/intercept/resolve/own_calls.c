#include "intercept/resolve/own_calls.h"

#include "intercept/resolve/real.h"

__thread unsigned own_calls_depth;
atomic_bool own_calls_captured;

static void exchange_mode(CUstreamCaptureMode *mode)
{
    if (real(cuThreadExchangeStreamCaptureMode))
        real(cuThreadExchangeStreamCaptureMode)(mode);
}

static bool is_current(CUcontext context)
{
    CUcontext current;
    return real(cuCtxGetCurrent) && real(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == context;
}

bool own_calls_push(CUcontext context)
{
    return real(cuCtxPushCurrent_v2) && real(cuCtxPopCurrent_v2) &&
           real(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
}

void own_calls_pop(void)
{
    CUcontext popped;
    real(cuCtxPopCurrent_v2)(&popped);
}

bool own_calls_begin(struct own_calls *calls, CUcontext context)
{
    *calls = (struct own_calls){.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    own_calls_depth++;
    exchange_mode(&calls->mode);
    if (context && !is_current(context)) {
        calls->has_pushed = own_calls_push(context);
        if (!calls->has_pushed) {
            own_calls_end(calls);
            return false;
        }
    }
    return true;
}

void own_calls_end(struct own_calls *calls)
{
    if (calls->has_pushed)
        own_calls_pop();
    exchange_mode(&calls->mode);
    own_calls_depth--;
}
