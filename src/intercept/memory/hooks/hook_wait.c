/* hook_wait.c - hooks of calls that wait for work, ask about it, or put a function of the host into a stream. A burst
 * (in_flight.h) ends there. After a call that waits, the charge of pools follows what they reserve by then. */
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

struct waiting {
    struct gate *gate;
    struct in_flight_entry *entry; /* NULL: nothing needs to be noted */
};

/* `stream`: the stream that the call means; NULL: the call does not say, or it means all of them. */
static struct waiting begin(CUstream stream)
{
    struct gate *gate = gate_of();
    return (struct waiting){gate, gate ? in_flight_wait_begins(gate, stream) : NULL};
}

/* Work behind a function of the host begins when that has returned, and its time is not the GPU's. */
static struct waiting begin_host_function(CUstream stream)
{
    struct gate *gate = gate_of();
    if (gate)
        atomic_store_explicit(&gate->has_host_functions, true, memory_order_relaxed);
    return begin(stream);
}

/* `what`: what a call that succeeds has waited for. */
static CUresult end(struct waiting waiting, CUresult result, enum in_flight_wait what)
{
    if (waiting.entry)
        in_flight_wait_ended(waiting.gate, waiting.entry, result ? IN_FLIGHT_WAIT_SOME : what);
    return result;
}

static CUresult end_and_settle(struct waiting waiting, CUresult result, enum in_flight_wait what)
{
    end(waiting, result, what);
    pool_charge_waited();
    return result;
}

/* A program that asks until the answer is yes has waited as well. */
static CUresult end_question(CUresult result, CUstream stream, enum in_flight_wait what)
{
    struct waiting waiting = begin(stream);
    return result == CUDA_SUCCESS ? end(waiting, result, what) : result;
}

#define PARTS(symbol, begins, ends, parameters)                                                              \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        struct waiting waiting = begins;                                                                     \
        return ends;                                                                                         \
    }
#define WAITS(symbol, stream, what, parameters, arguments)                                                   \
    PARTS(symbol, begin(stream), end_and_settle(waiting, real(symbol) arguments, IN_FLIGHT_WAIT_##what),     \
          parameters)
#define CALLS_HOST(symbol, stream, parameters, arguments)                                                    \
    PARTS(symbol, begin_host_function(stream), end(waiting, real(symbol) arguments, IN_FLIGHT_WAIT_HOST),    \
          parameters)
#define ASKS(symbol, stream, what, type)                                                                     \
    CUresult symbol(type asked)                                                                              \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        return end_question(real(symbol)(asked), stream, IN_FLIGHT_WAIT_##what);                             \
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
