/* peers.c - rows: what one GPU has to do with another: access to its memory, and copies between them. */
#include "differ.h"

static void can_access(struct actor *actor)
{
    int can = 77, *out = one_in(actor, 8) ? NULL : &can;
    put(actor, "%s ", out ? "&" : "NULL");
    CUdevice from = some_device(actor);
    CUresult result = CALL(actor, cuDeviceCanAccessPeer)(out, from, some_device(actor));
    put_result(actor, result);
    put(actor, " %d", can);
}

static void enable_access(struct actor *actor)
{
    unsigned flags = one_in(actor, 6) ? 1 : 0;
    put(actor, "%u ", flags);
    put_result(actor, CALL(actor, cuCtxEnablePeerAccess)((CUcontext)(uintptr_t)pick(actor, CONTEXT), flags));
}

static void disable_access(struct actor *actor)
{
    put_result(actor, CALL(actor, cuCtxDisablePeerAccess)((CUcontext)(uintptr_t)pick(actor, CONTEXT)));
}

struct copy {
    CUdeviceptr to, from;
    CUcontext to_context, from_context;
    size_t bytes;
};

/* Between two pieces of memory, mostly by the contexts that they go with. */
static struct copy some_copy(struct actor *actor)
{
    const struct thing *to = random_living(actor, MEMORY), *from = random_living(actor, MEMORY);
    struct copy copy = {.bytes = chance(actor, 5000)};
    copy.to = to ? to->value : 0x1234;
    copy.from = from ? from->value : 0x1234;
    copy.to_context = (CUcontext)(uintptr_t)(to && !one_in(actor, 4) ? to->context : pick(actor, CONTEXT));
    copy.from_context =
        (CUcontext)(uintptr_t)(from && !one_in(actor, 4) ? from->context : pick(actor, CONTEXT));
    if (memory_moves && (!to || to->bytes < copy.bytes || !from || from->bytes < copy.bytes))
        copy.bytes = 0;
    put(actor, "%d %d %zu ", to ? (int)to->number : -1, from ? (int)from->number : -1, copy.bytes);
    return copy;
}

static void copy_peer(struct actor *actor)
{
    struct copy copy = some_copy(actor);
    put_result(actor,
               CALL(actor, cuMemcpyPeer)(copy.to, copy.to_context, copy.from, copy.from_context, copy.bytes));
}

static void copy_peer_async(struct actor *actor)
{
    struct copy copy = some_copy(actor);
    put_result(actor, CALL(actor, cuMemcpyPeerAsync)(copy.to, copy.to_context, copy.from, copy.from_context,
                                                     copy.bytes, some_stream(actor)));
}

static void copy_device(struct actor *actor)
{
    struct copy copy = some_copy(actor);
    put_result(actor, CALL(actor, cuMemcpyDtoD_v2)(copy.to, copy.from, copy.bytes));
}

#define ROW(symbol, weight, call)                                                                            \
    {                                                                                                        \
#symbol, (void *)(uintptr_t)symbol, weight, call                                                     \
    }
const struct row peer_rows[] = {
    ROW(cuDeviceCanAccessPeer, 1, can_access),
    ROW(cuCtxEnablePeerAccess, 2, enable_access),
    ROW(cuCtxDisablePeerAccess, 1, disable_access),
    ROW(cuMemcpyPeer, 1, copy_peer),
    ROW(cuMemcpyPeer_ptds, 1, copy_peer),
    ROW(cuMemcpyPeerAsync, 1, copy_peer_async),
    ROW(cuMemcpyPeerAsync_ptsz, 1, copy_peer_async),
    ROW(cuMemcpyDtoD_v2, 2, copy_device),
    {NULL, NULL, 0, NULL},
};
