/* query.c - what the driver and its devices say of themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/entry_points.h"
#include "simgpu/device/cuda_release.h"
#include "simgpu/device/profile.h"
#include "simgpu/driver/resolve.h"
#include "simgpu/driver/sim.h"

CUresult cuDriverGetVersion(int *version)
{
    SIM_REQUIRE(version);
    *version = cuda_release()->number;
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
    char text[PROFILE_NAME_BYTES];
    snprintf(name, (size_t)length, "%s", profile_gpu_name(simulator.visible[device], text));
    return CUDA_SUCCESS;
}

static CUresult uuid_of(unsigned gpu, CUuuid *uuid)
{
    uint8_t bytes[16];
    device_uuid(gpu, bytes);
    memcpy(uuid->bytes, bytes, sizeof(bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(uuid);
    SIM_TRY(device_check(device));
    return uuid_of(simulator.visible[device], uuid);
}

/* The old form does not know MIG instances: it answers with their card's UUID (driver API reference). */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(uuid);
    SIM_TRY(device_check(device));
    return uuid_of(device_shape(simulator.visible[device])->card, uuid);
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
    *bytes = device_shape(simulator.visible[device])->total_bytes;
    return CUDA_SUCCESS;
}

/* The form from before CUDA 3.2 needs no context. All of 32 bits mean "more than that". */
CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t wide;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(bytes);
    SIM_TRY(cuDeviceTotalMem_v2(&wide, device));
    *bytes = wide < UINT32_MAX ? (unsigned int)wide : UINT32_MAX;
    return CUDA_SUCCESS;
}

static int unless(bool is_missing, CUdevice_attribute attribute)
{
    return is_missing ? 0 : profile_value(attribute);
}

static int attribute_value(CUdevice_attribute attribute, CUdevice device)
{
    int value = 0, node = (int)constant(SIM_GPU_NODE);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return (int)device_pci_bus(simulator.visible[device]);
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
        return (int)profile_current()->pci_device;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID:
        return (int)profile_current()->pci_subsystem;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        return (int)constant(SIM_COMPUTE_MODE);
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        return constant_whole(SIM_NVML_NO_MEMORY) == 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return unless(!constant_whole(SIM_VMM), attribute);
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        return unless(!constant_whole(SIM_HOST_REGISTER), attribute);
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return constant_whole(SIM_RDMA_ACCESS) ? unless(!constant_whole(SIM_VMM), attribute) : 1;
    case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG:
        return node ? 1 : 0; /* cuda.h 13.0: CU_DEVICE_NUMA_CONFIG_NUMA_NODE, _NONE */
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
        return node ? node : -1;
    default:
        /* PCI domain and device are 0. */
        return profile_attribute(attribute, &value) ? profile_gpu_value(simulator.visible[device], attribute)
                                                    : 0;
    }
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

/* The most elements, whatever their size is; what the memory can hold is less. */
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels,
                                            CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(width && (channels == 1 || channels == 2 || channels == 4));
    SIM_TRY(device_check(device));
    *width = (size_t)attribute_value(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, device);
    return CUDA_SUCCESS;
}

/* Nothing shares multiprocessors out here: that is for MPS (driver API reference). */
CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(supported && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    SIM_TRY(device_check(device));
    *supported = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(affinity && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    SIM_TRY(context_current(&context));
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

/* --- Profilers: none watches ----------------------------------------------------------------------- */

CUresult cuProfilerStart(void)
{
    CUcontext context;
    return context_current(&context);
}

CUresult cuProfilerStop(void)
{
    CUcontext context;
    return context_current(&context);
}

/* --- Names of results: need no cuInit -------------------------------------------------------------- */

CUresult cuGetErrorName(CUresult result, const char **name)
{
    SIM_REQUIRE(name);
    *name = cuda_result_name(result);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* In our words (result_texts.def); every result has a text. */
CUresult cuGetErrorString(CUresult result, const char **text)
{
    static const struct {
        CUresult result;
        const char *text;
    } rows[] = {
#define RESULT_TEXT(name, words) {name, words},
#include "simgpu/driver/result_texts.def"
#undef RESULT_TEXT
    };
    SIM_REQUIRE(text);
    *text = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && !*text; i++)
        if (rows[i].result == result)
            *text = rows[i].text;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- Entry points ---------------------------------------------------------------------------------- */

CUresult cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags)
{
    CUresult result = resolve_entry(name, address, version, flags, NULL);
    return result == CUDA_SUCCESS && !*address ? CUDA_ERROR_NOT_FOUND : result; /* cuda.h 11.7 */
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
