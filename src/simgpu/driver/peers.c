/* peers.c - GPUs that reach each other's memory: all cards do, MIG instances reach only their own (MIG user guide).
 * As device addresses are host addresses here, a context without peer access reaches a peer's memory too. */
#include "simgpu/driver/sim.h"

static bool is_peer(CUdevice device, CUdevice peer)
{
    return device_reaches(simulator.visible[device], simulator.visible[peer]);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(can);
    SIM_TRY(device_check(device));
    SIM_TRY(device_check(peer));
    *can = is_peer(device, peer);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value);
    SIM_TRY(device_check(device));
    SIM_TRY(device_check(peer));
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_REQUIRE(attribute >= CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK &&
                attribute <= CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED);
    *value = is_peer(device, peer) && (attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
                                       attribute == CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED);
    return CUDA_SUCCESS;
}

/* Held while a context's set of peers is changed. */
static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult peer_of(CUcontext peer, CUcontext *context, uint64_t *bit)
{
    SIM_TRY(sim_ready());
    SIM_TRY(context_current(context));
    SIM_TRY(context_check(peer));
    *bit = UINT64_C(1) << peer->gpu;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUcontext context;
    uint64_t bit;
    SIM_TRY(peer_of(peer, &context, &bit));
    SIM_REQUIRE(flags == 0);
    if (!is_peer(context->device, peer->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    pthread_mutex_lock(&peers_lock);
    CUresult result = context->peers & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
    context->peers |= bit;
    pthread_mutex_unlock(&peers_lock);
    return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    CUcontext context;
    uint64_t bit;
    SIM_TRY(peer_of(peer, &context, &bit));
    pthread_mutex_lock(&peers_lock);
    CUresult result = context->peers & bit ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~bit;
    pthread_mutex_unlock(&peers_lock);
    return result;
}
