/* query.c - what the driver and its devices say of themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/entry_points.h"
#include "simgpu/resolve.h"
#include "simgpu/sim.h"

/* What a card of compute capability 9.0 with 80 GB says (an H100 PCIe), where its memory is not concerned.
 * What is not here is 0. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1755000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 114},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1593000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 52428800},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
};

CUresult cuDriverGetVersion(int *version)
{
    SIM_REQUIRE(version);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(count);
    *count = (int)simulator.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(device);
    SIM_TRY(device_check(ordinal));
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(name && length > 0);
    SIM_TRY(device_check(device));
    snprintf(name, (size_t)length, "%s", DEVICE_NAME);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(uuid);
    SIM_TRY(device_check(device));
    uint8_t bytes[16];
    device_uuid(simulator.visible[device], bytes);
    memcpy(uuid->bytes, bytes, sizeof(bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *node_mask, CUdevice device)
{
    SIM_TRY(sim_ready());
    return CUDA_ERROR_NOT_SUPPORTED; /* Windows has those */
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(bytes);
    SIM_TRY(device_check(device));
    *bytes = device_parameters().total_bytes;
    return CUDA_SUCCESS;
}

static int attribute_value(CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return (int)device_pci_bus(simulator.visible[device]);
    default:
        break;
    }
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        if (attributes[i].attribute == attribute)
            return attributes[i].value;
    return 0;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value && attribute > 0 &&
                attribute <= CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED);
    SIM_TRY(device_check(device));
    *value = attribute_value(attribute, device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(major && minor);
    SIM_TRY(device_check(device));
    *major = attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    *minor = attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(properties);
    SIM_TRY(device_check(device));
    *properties = (CUdevprop){
        .maxThreadsPerBlock = attribute_value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device),
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = attribute_value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device),
        .totalConstantMemory = attribute_value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, device),
        .SIMDWidth = attribute_value(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device),
        .memPitch = attribute_value(CU_DEVICE_ATTRIBUTE_MAX_PITCH, device),
        .regsPerBlock = attribute_value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, device),
        .clockRate = attribute_value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device),
        .textureAlign = attribute_value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device),
    };
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(text && length > 0);
    SIM_TRY(device_check(device));
    char id[16];
    int needed = snprintf(id, sizeof(id), "0000:%02X:00.0", device_pci_bus(simulator.visible[device]));
    SIM_REQUIRE(needed < length);
    memcpy(text, id, (size_t)needed + 1);
    return CUDA_SUCCESS;
}

/* "[domain:]bus:device[.function]", in hexadecimal. */
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(device && text);
    unsigned domain = 0, bus, slot, function = 0;
    int used = 0;
    if (sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &used) != 4 &&
        sscanf(text, "%x:%x:%x%n", &domain, &bus, &slot, &used) != 3) {
        domain = 0;
        function = 0;
        SIM_REQUIRE(sscanf(text, "%x:%x.%x%n", &bus, &slot, &function, &used) == 3);
    }
    SIM_REQUIRE(text[used] == '\0');
    if (domain == 0 && slot == 0 && function == 0)
        for (unsigned ordinal = 0; ordinal < simulator.device_count; ordinal++)
            if (device_pci_bus(simulator.visible[ordinal]) == bus) {
                *device = (CUdevice)ordinal;
                return CUDA_SUCCESS;
            }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(can);
    SIM_TRY(device_check(device));
    SIM_TRY(device_check(peer));
    *can = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value && attribute >= CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK &&
                attribute <= CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED);
    SIM_TRY(device_check(device));
    SIM_TRY(device_check(peer));
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels,
                                            CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(width && (channels == 1 || channels == 2 || channels == 4));
    SIM_TRY(device_check(device));
    *width = (size_t)1 << 28; /* CUDA programming guide: 2^28 for compute capability 9.0 */
    return CUDA_SUCCESS;
}

/* --- Names of results: need no cuInit
 * ------------------------------------------------------------------------- */

CUresult cuGetErrorName(CUresult result, const char **name)
{
    SIM_REQUIRE(name);
    *name = cuda_result_name(result);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Ours say what they mean for the ones that programs meet; the others are described by their name. */
CUresult cuGetErrorString(CUresult result, const char **text)
{
    SIM_REQUIRE(text);
    switch (result) {
    case CUDA_SUCCESS:
        *text = "no error";
        break;
    case CUDA_ERROR_INVALID_VALUE:
        *text = "invalid argument";
        break;
    case CUDA_ERROR_OUT_OF_MEMORY:
        *text = "out of memory";
        break;
    case CUDA_ERROR_NOT_INITIALIZED:
        *text = "initialization error";
        break;
    case CUDA_ERROR_NO_DEVICE:
        *text = "no CUDA-capable device is detected";
        break;
    case CUDA_ERROR_INVALID_DEVICE:
        *text = "invalid device ordinal";
        break;
    case CUDA_ERROR_INVALID_CONTEXT:
        *text = "invalid device context";
        break;
    case CUDA_ERROR_INVALID_HANDLE:
        *text = "invalid resource handle";
        break;
    case CUDA_ERROR_NOT_FOUND:
        *text = "named symbol not found";
        break;
    case CUDA_ERROR_NOT_READY:
        *text = "device not ready";
        break;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
        *text = "an illegal memory access was encountered";
        break;
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        *text = "context is destroyed";
        break;
    case CUDA_ERROR_NOT_SUPPORTED:
        *text = "operation not supported";
        break;
    default:
        *text = cuda_result_name(result);
    }
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- Entry points
 * --------------------------------------------------------------------------------------------- */

CUresult cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags)
{
    return resolve_entry(name, address, version, flags, NULL);
}

CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return resolve_entry(name, address, version, flags, status);
}

/* For programs compiled with per-thread default streams: that is what no flag means here (cuda.h 13.0). */
CUresult cuGetProcAddress_v2_ptsz(const char *name, void **address, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    if (flags == CU_GET_PROC_ADDRESS_DEFAULT)
        flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    return resolve_entry(name, address, version, flags, status);
}
