/* hook_wait.c - hooks of calls that wait for work, ask about it, or put a function of the host into a stream. A burst
 * (in_flight.h) ends there. After a call that waits, the charge of pools follows what they reserve by then. */
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

static void note_host_function(struct gate *gate)
{
    if (gate)
        atomic_store_explicit(&gate->has_host_functions, true, memory_order_relaxed);
}

/* `stream`: the stream that the call means; NULL: the call does not say, or it means all of them. `what`: the value of enum
 * in_flight_wait if the call succeeds. */
#define PARTS(symbol, stream, what, first, then, parameters, arguments)                                      \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        struct gate *gate = gate_of();                                                                       \
        first;                                                                                               \
        struct in_flight_entry *entry = gate ? in_flight_wait_begins(gate, stream) : NULL;                   \
        CUresult result = real(symbol) arguments;                                                            \
        if (entry)                                                                                           \
            in_flight_wait_ended(gate, entry, result ? IN_FLIGHT_WAIT_SOME : IN_FLIGHT_WAIT_##what);         \
        then;                                                                                                \
        return result;                                                                                       \
    }
#define WAITS(symbol, stream, what, parameters, arguments)                                                   \
    PARTS(symbol, stream, what, (void)0, pool_charge_waited(), parameters, arguments)
/* Work behind a function of the host begins when that has returned, and its time is not the GPU's. */
#define CALLS_HOST(symbol, stream, parameters, arguments)                                                    \
    PARTS(symbol, stream, HOST, note_host_function(gate), (void)0, parameters, arguments)
/* A program that asks until the answer is yes has waited as well. */
#define ASKS(symbol, stream, what, type)                                                                     \
    CUresult symbol(type asked)                                                                              \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        CUresult result = real(symbol)(asked);                                                               \
        struct gate *gate = gate_of();                                                                       \
        struct in_flight_entry *entry = gate ? in_flight_wait_begins(gate, stream) : NULL;                   \
        if (entry && result == CUDA_SUCCESS)                                                                 \
            in_flight_wait_ended(gate, entry, IN_FLIGHT_WAIT_##what);                                        \
        return result;                                                                                       \
    }
WAITS(cuStreamSynchronize, GATE_LEGACY(waited), ALL, (CUstream waited), (waited))
WAITS(cuStreamSynchronize_ptsz, GATE_PER_THREAD(waited), ALL, (CUstream waited), (waited))
WAITS(cuCtxSynchronize, NULL, CONTEXT, (void), ())
WAITS(cuCtxSynchronize_v2, NULL, SOME, (CUcontext context), (context))
WAITS(cuEventSynchronize, NULL, SOME, (CUevent event), (event))
ASKS(cuStreamQuery, GATE_LEGACY(asked), DONE, CUstream)
ASKS(cuStreamQuery_ptsz, GATE_PER_THREAD(asked), DONE, CUstream)
ASKS(cuEventQuery, NULL, SOME, CUevent)
CALLS_HOST(cuLaunchHostFunc, GATE_LEGACY(stream), (CUstream stream, CUhostFn function, void *argument),
           (stream, function, argument))
CALLS_HOST(cuLaunchHostFunc_ptsz, GATE_PER_THREAD(stream),
           (CUstream stream, CUhostFn function, void *argument), (stream, function, argument))
CALLS_HOST(cuLaunchHostFunc_v2, GATE_LEGACY(stream),
           (CUstream stream, CUhostFn function, void *argument, unsigned int mode),
           (stream, function, argument, mode))
CALLS_HOST(cuLaunchHostFunc_v2_ptsz, GATE_PER_THREAD(stream),
           (CUstream stream, CUhostFn function, void *argument, unsigned int mode),
           (stream, function, argument, mode))
CALLS_HOST(cuStreamAddCallback, GATE_LEGACY(stream),
           (CUstream stream, CUstreamCallback callback, void *argument, unsigned int flags),
           (stream, callback, argument, flags))
CALLS_HOST(cuStreamAddCallback_ptsz, GATE_PER_THREAD(stream),
           (CUstream stream, CUstreamCallback callback, void *argument, unsigned int flags),
           (stream, callback, argument, flags))
