/* hook_capture.c - hooks that tell the gate which streams exist, which are being captured, and which context is current.
 * They charge no memory. */
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

/* --- Captures -------------------------------------------------------------------------------------- */

#define BEGINS_CAPTURE(symbol, form, how, parameters, arguments)                                             \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        own_calls_note_capture();                                                                            \
        struct gate *gate = gate_of();                                                                       \
        bool counted = gate && gate_capture_begin(gate, __builtin_return_address(0));                        \
        CUresult result = real(symbol) arguments;                                                            \
        if (counted)                                                                                         \
            gate_capture_begun(gate, form(stream), how, result);                                             \
        return result;                                                                                       \
    }
BEGINS_CAPTURE(cuStreamBeginCapture, GATE_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL, (CUstream stream), (stream))
BEGINS_CAPTURE(cuStreamBeginCapture_ptsz, GATE_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL, (CUstream stream),
               (stream))
BEGINS_CAPTURE(cuStreamBeginCapture_v2, GATE_LEGACY, mode, (CUstream stream, CUstreamCaptureMode mode),
               (stream, mode))
BEGINS_CAPTURE(cuStreamBeginCapture_v2_ptsz, GATE_PER_THREAD, mode,
               (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGINS_CAPTURE(cuStreamBeginCaptureToGraph, GATE_LEGACY, mode,
               (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                size_t count, CUstreamCaptureMode mode),
               (stream, graph, nodes, edges, count, mode))
BEGINS_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, GATE_PER_THREAD, mode,
               (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                size_t count, CUstreamCaptureMode mode),
               (stream, graph, nodes, edges, count, mode))

BEGINS_CAPTURE(cuStreamBeginRecaptureToGraph, GATE_LEGACY, mode,
               (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback differs,
                void *argument),
               (stream, mode, graph, differs, argument))
BEGINS_CAPTURE(cuStreamBeginRecaptureToGraph_ptsz, GATE_PER_THREAD, mode,
               (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback differs,
                void *argument),
               (stream, mode, graph, differs, argument))
/* How these limit other calls no header says: as the strictest do. */
BEGINS_CAPTURE(cuStreamBeginCaptureToCig, GATE_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL,
               (CUstream stream, CUstreamCigCaptureParams *params), (stream, params))
BEGINS_CAPTURE(cuStreamBeginCaptureToCig_ptsz, GATE_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL,
               (CUstream stream, CUstreamCigCaptureParams *params), (stream, params))

/* So the stream is asked rather than the result: an invalidated capture ends with an error, and a capture that another
 * stream began does not end. */
#define ENDS_CAPTURE(symbol, form, parameters, arguments)                                                    \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        CUresult result = real(symbol) arguments;                                                            \
        struct gate *gate = gate_of();                                                                       \
        if (gate && !in_flight_is_capturing(form(stream)))                                                   \
            gate_capture_ended(gate, form(stream));                                                          \
        return result;                                                                                       \
    }
ENDS_CAPTURE(cuStreamEndCapture, GATE_LEGACY, (CUstream stream, CUgraph *graph), (stream, graph))
ENDS_CAPTURE(cuStreamEndCapture_ptsz, GATE_PER_THREAD, (CUstream stream, CUgraph *graph), (stream, graph))
ENDS_CAPTURE(cuStreamEndCaptureToCig, GATE_LEGACY, (CUstream stream), (stream))
ENDS_CAPTURE(cuStreamEndCaptureToCig_ptsz, GATE_PER_THREAD, (CUstream stream), (stream))

/* --- Streams --------------------------------------------------------------------------------------- */

#define DESTROYS_STREAM(symbol)                                                                              \
    CUresult symbol(CUstream stream)                                                                         \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        struct gate *gate = gate_of();                                                                       \
        if (gate)                                                                                            \
            in_flight_forget_stream(gate, stream);                                                           \
        return real(symbol)(stream);                                                                         \
    }
DESTROYS_STREAM(cuStreamDestroy)
DESTROYS_STREAM(cuStreamDestroy_v2)

/* --- The current context --------------------------------------------------------------------------- */

#define CHANGES_CONTEXT(symbol, type)                                                                        \
    CUresult symbol(type context)                                                                            \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        gate_context_changed();                                                                              \
        return real(symbol)(context);                                                                        \
    }
CHANGES_CONTEXT(cuCtxPopCurrent, CUcontext *)
CHANGES_CONTEXT(cuCtxPopCurrent_v2, CUcontext *)
CHANGES_CONTEXT(cuCtxPushCurrent, CUcontext)
CHANGES_CONTEXT(cuCtxPushCurrent_v2, CUcontext)
CHANGES_CONTEXT(cuCtxSetCurrent, CUcontext)
