/* hook_wait.c - calls that wait for work, or ask about it, and functions of the host between work: what is measured of a stream ends
 * there. Where a call waits, pools give memory back. */
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

/* `stream`: the one that is waited for; NULL: the call does not say, or it is all of them. `is_all`: all that the thread gave it. */
#define WAITS(symbol, stream, is_all, parameters, arguments)                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        struct gate *gate = gate_of();                                                                       \
        struct in_flight_entry *entry = gate ? in_flight_wait_begins(gate, stream) : NULL;                   \
        CUresult result = real(symbol) arguments;                                                            \
        if (entry)                                                                                           \
            in_flight_wait_ended(gate, entry, (is_all) && result == CUDA_SUCCESS);                           \
        pool_charge_waited();                                                                                \
        return result;                                                                                       \
    }
/* One that asks again and again waits as well. */
#define ASKS(symbol, stream, is_all, type)                                                                   \
    CUresult symbol(type asked)                                                                              \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        CUresult result = real(symbol)(asked);                                                               \
        struct gate *gate = gate_of();                                                                       \
        struct in_flight_entry *entry = gate ? in_flight_wait_begins(gate, stream) : NULL;                   \
        if (entry && result == CUDA_SUCCESS)                                                                 \
            in_flight_wait_ended(gate, entry, is_all);                                                       \
        return result;                                                                                       \
    }
/* What is behind it in the stream begins when the function has returned: that is no work of the GPU's. */
#define PARTS(symbol, stream, parameters, arguments)                                                         \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        struct gate *gate = gate_of();                                                                       \
        struct in_flight_entry *entry = gate ? in_flight_wait_begins(gate, stream) : NULL;                   \
        CUresult result = real(symbol) arguments;                                                            \
        if (entry)                                                                                           \
            in_flight_wait_ended(gate, entry, true);                                                         \
        return result;                                                                                       \
    }
#define LEGACY(stream) ((stream) ? (stream) : CU_STREAM_LEGACY)
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)
WAITS(cuStreamSynchronize, LEGACY(waited), true, (CUstream waited), (waited))
WAITS(cuStreamSynchronize_ptsz, PER_THREAD(waited), true, (CUstream waited), (waited))
WAITS(cuCtxSynchronize, NULL, true, (void), ())
WAITS(cuCtxSynchronize_v2, NULL, false, (CUcontext context), (context))
WAITS(cuEventSynchronize, NULL, false, (CUevent event), (event))
ASKS(cuStreamQuery, LEGACY(asked), true, CUstream)
ASKS(cuStreamQuery_ptsz, PER_THREAD(asked), true, CUstream)
ASKS(cuEventQuery, NULL, false, CUevent)
PARTS(cuLaunchHostFunc, LEGACY(stream), (CUstream stream, CUhostFn function, void *argument),
      (stream, function, argument))
PARTS(cuLaunchHostFunc_ptsz, PER_THREAD(stream), (CUstream stream, CUhostFn function, void *argument),
      (stream, function, argument))
PARTS(cuStreamAddCallback, LEGACY(stream),
      (CUstream stream, CUstreamCallback callback, void *argument, unsigned int flags),
      (stream, callback, argument, flags))
PARTS(cuStreamAddCallback_ptsz, PER_THREAD(stream),
      (CUstream stream, CUstreamCallback callback, void *argument, unsigned int flags),
      (stream, callback, argument, flags))
