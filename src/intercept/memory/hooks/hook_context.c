/* hook_context.c - contexts: they take memory when they are made, and all that belongs to them goes with them
 * (contexts.h). Green contexts are parts of a device's primary context and keep it alive, so the first one on a
 * device costs what the primary context costs. */
#include "intercept/memory/contexts.h"
#include "intercept/memory/hooks/named.h"
#include "intercept/memory/registrations.h"
#include "intercept/memory/road.h"
#include "intercept/resolve/real.h"

/* --- Making ---------------------------------------------------------------------------------------- */

/* By CU_CTX_SYNC_MEMOPS a program says for all memory of a context what SYNC_MEMOPS says for some: that a network card reaches it
 * (cuda.h 13.0; UCX does it so since CUDA 12.3). */
static void note_flags(unsigned int flags)
{
    if (flags & CU_CTX_SYNC_MEMOPS)
        registrations_note_flag();
}

static CUresult create(enum alloc_way way, CUcontext *context, unsigned int flags, CUdevice device)
{
    note_flags(flags);
    return allocate(&(struct allocation){
        .way = way, .is_uncharged = !context, .device = device, .got = context, .context = {.flags = flags}});
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(WAY_cuCtxCreate, context, flags, device);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(WAY_cuCtxCreate_v2, context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                        CUdevice device)
{
    note_flags(flags);
    return allocate(
        &(struct allocation){.way = WAY_cuCtxCreate_v3,
                             .is_uncharged = !context,
                             .device = device,
                             .got = context,
                             .context = {.flags = flags, .affinity_count = count, .affinity = affinity}});
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    note_flags(flags);
    return allocate(&(struct allocation){.way = WAY_cuCtxCreate_v4,
                                         .is_uncharged = !context,
                                         .device = device,
                                         .got = context,
                                         .context = {.flags = flags, .params = params}});
}

CUresult cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(WAY_cuGLCtxCreate, context, flags, device);
}

CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(WAY_cuGLCtxCreate_v2, context, flags, device);
}

static CUresult create_vdpau(enum alloc_way way, CUcontext *context, unsigned int flags, CUdevice device,
                             VdpDevice vdpau, VdpGetProcAddress *lookup)
{
    return allocate(
        &(struct allocation){.way = way,
                             .is_uncharged = !context,
                             .device = device,
                             .got = context,
                             .context = {.flags = flags, .vdpau = vdpau, .vdpau_lookup = lookup}});
}

CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device, VdpDevice vdpau,
                          VdpGetProcAddress *lookup)
{
    return create_vdpau(WAY_cuVDPAUCtxCreate, context, flags, device, vdpau, lookup);
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device, VdpDevice vdpau,
                             VdpGetProcAddress *lookup)
{
    return create_vdpau(WAY_cuVDPAUCtxCreate_v2, context, flags, device, vdpau, lookup);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return allocate(&(struct allocation){
        .way = WAY_cuDevicePrimaryCtxRetain, .is_uncharged = !context, .device = device, .got = context});
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags)
{
    return allocate(&(struct allocation){.way = WAY_cuGreenCtxCreate,
                                         .is_uncharged = !green,
                                         .device = device,
                                         .got = green,
                                         .context = {.flags = flags, .resources = resources}});
}

/* If the memory is away, it comes back first: from the call on it stays where it is. */
#define SETS_FLAGS(symbol, parameters, arguments)                                                            \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        bool holds = (flags & CU_CTX_SYNC_MEMOPS) && named_hold(__builtin_return_address(0));                \
        note_flags(flags);                                                                                   \
        CUresult result = real(symbol) arguments;                                                            \
        named_let_go(holds);                                                                                 \
        return result;                                                                                       \
    }
SETS_FLAGS(cuCtxSetFlags, (unsigned int flags), (flags))
SETS_FLAGS(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned int flags), (device, flags))
SETS_FLAGS(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags), (device, flags))

/* Usage counts, from before CUDA 4. */
CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    real_needed(cuCtxAttach);
    CUresult result = real(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS && context)
        context_attached(*context);
    return result;
}

/* --- Destroying ------------------------------------------------------------------------------------ */

CUresult cuCtxDestroy(CUcontext context)
{
    return release_allocation(RELEASE_cuCtxDestroy, (uint64_t)(uintptr_t)context, NULL);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return release_allocation(RELEASE_cuCtxDestroy_v2, (uint64_t)(uintptr_t)context, NULL);
}

CUresult cuCtxDetach(CUcontext context)
{
    return release_allocation(RELEASE_cuCtxDetach, (uint64_t)(uintptr_t)context, NULL);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return release_allocation(RELEASE_cuDevicePrimaryCtxRelease, (uint64_t)device, NULL);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release_allocation(RELEASE_cuDevicePrimaryCtxRelease_v2, (uint64_t)device, NULL);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return release_allocation(RELEASE_cuDevicePrimaryCtxReset, (uint64_t)device, NULL);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return release_allocation(RELEASE_cuDevicePrimaryCtxReset_v2, (uint64_t)device, NULL);
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    return release_allocation(RELEASE_cuGreenCtxDestroy, (uint64_t)(uintptr_t)green, NULL);
}
