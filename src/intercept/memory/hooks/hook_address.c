/* hook_address.c - what the program asks about an address: the engine, which may have put it there, answers. */
#include "intercept/memory/engine/engine.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

/* What the driver asks of itself inside another call it shall be told by itself. */
static const struct engine *engine_of_call(void)
{
    return own_calls_depth ? &engine_plain : engine_of_process();
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    real_needed(cuMemGetAddressRange_v2);
    return engine_of_call()->address_range(base, bytes, address);
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    real_needed(cuPointerGetAttribute);
    return engine_of_call()->pointer_attribute(value, which, address);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *which, void **values,
                                CUdeviceptr address)
{
    real_needed(cuPointerGetAttributes);
    return engine_of_call()->pointer_attributes(count, which, values, address);
}
