/* stream.c - the short forms of creating streams and events. */
#include "simcudart/simcudart.h"

static cudaError_t create_stream(cudaStream_t *stream)
{
    RUNTIME_TRY(runtime_need_context());
    return runtime_translate(DRIVER(cuStreamCreate)(stream, cudaStreamDefault));
}
EXPORT(cudaStreamCreate, create_stream, (cudaStream_t * stream), (stream))

static cudaError_t create_event(cudaEvent_t *event)
{
    RUNTIME_TRY(runtime_need_context());
    return runtime_translate(DRIVER(cuEventCreate)(event, cudaEventDefault));
}
EXPORT(cudaEventCreate, create_event, (cudaEvent_t * event), (event))
