#include "intercept/resolve/own_calls.h"

#include <signal.h>
#include <stdint.h>

#include "intercept/resolve/guard.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/resolve.h"

__thread unsigned own_calls_depth;
__thread const void *own_calls_outermost;
atomic_bool own_calls_captured;

static void exchange_mode(CUstreamCaptureMode *mode)
{
    if (real(cuThreadExchangeStreamCaptureMode))
        real(cuThreadExchangeStreamCaptureMode)(mode);
}

CUstreamCaptureMode own_calls_capture_mode(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED, none;
    if (!real(cuThreadExchangeStreamCaptureMode) ||
        real(cuThreadExchangeStreamCaptureMode)(&mode) != CUDA_SUCCESS)
        return CU_STREAM_CAPTURE_MODE_GLOBAL;
    none = mode;
    real(cuThreadExchangeStreamCaptureMode)(&none);
    return mode;
}

bool own_calls_is_current(CUcontext context)
{
    CUcontext current;
    return real(cuCtxGetCurrent) && real(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == context;
}

/* A signal handler may have a stack of its own, which says nothing about the stack of the call that it interrupted. */
static bool is_on_another_stack(void)
{
    stack_t stack;
    return sigaltstack(NULL, &stack) != 0 || (stack.ss_flags & SS_ONSTACK);
}

bool own_calls_is_program(const void *caller)
{
    if (resolve_library_of(caller, RESOLVE_DRIVER_FILE))
        return false;
    /* Stacks grow downwards: if the outermost call is below this one, the program has left it. */
    if ((uintptr_t)own_calls_outermost < (uintptr_t)__builtin_frame_address(0) && !is_on_another_stack())
        own_calls_depth = 0;
    return true;
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
    guard_begin();
    own_calls_enter();
    exchange_mode(&calls->mode);
    if (context && !own_calls_is_current(context)) {
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
    guard_end();
}

bool own_calls_device(CUcontext context, CUdevice *device)
{
    struct own_calls calls;
    if (!own_calls_begin(&calls, context))
        return false;
    bool is_known = real(cuCtxGetDevice)(device) == CUDA_SUCCESS;
    own_calls_end(&calls);
    return is_known;
}
