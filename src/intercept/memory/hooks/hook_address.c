/* hook_address.c - what the program asks about an address, and which devices may reach it. The engine answers, since
 * it may have put the memory there. */
#include "intercept/memory/engine/engine.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

/* The engine that answers the program. NULL: the driver answers, as it does what it asks itself inside another
 * call. */
static const struct engine *answering_engine(void)
{
    const struct engine *engine = engine_of_process();
    return own_calls_depth || engine == &engine_plain ? NULL : engine;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    real_needed(cuMemGetAddressRange_v2);
    const struct engine *engine = answering_engine();
    return engine ? engine->address_range(base, bytes, address)
                  : real(cuMemGetAddressRange_v2)(base, bytes, address);
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    real_needed(cuPointerGetAttribute);
    const struct engine *engine = answering_engine();
    return engine ? engine->pointer_attribute(value, which, address)
                  : real(cuPointerGetAttribute)(value, which, address);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *which, void **values,
                                CUdeviceptr address)
{
    real_needed(cuPointerGetAttributes);
    const struct engine *engine = answering_engine();
    return engine ? engine->pointer_attributes(count, which, values, address)
                  : real(cuPointerGetAttributes)(count, which, values, address);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUdevice own, peers;
    real_needed(cuCtxEnablePeerAccess);
    CUresult result = real(cuCtxEnablePeerAccess)(peer, flags);
    const struct engine *engine = engine_of_process();
    if (result == CUDA_SUCCESS && engine->open_to_peer && own_calls_device(NULL, &own) &&
        own_calls_device(peer, &peers))
        engine->open_to_peer(peers, own);
    return result;
}
