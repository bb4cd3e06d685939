/* nvml_mig.c - NVML's view of MIG: modes, instances and their handles. */
#include <string.h>

#include "simgpu/device/device.h"
#include "simgpu/device/mig.h"
#include "simgpu/device/profile.h"
#include "simgpu/nvml/nvml_find.h"

#define COMPUTE_INSTANCE 0u /* the only one of each GPU instance */

/* Set the handle's instance; INVALID_ARGUMENT for a card's handle, or if the caller's `out` is NULL. */
static nvmlReturn_t find_instance(nvmlDevice_t device, const void *out, const struct device_shape **shape)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    *shape = device_shape(gpu);
    return device_is_instance(gpu) && out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Modes of cards that have it, now and after the next reset. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!mig_is_known(profile_current()->key))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = device_shape(gpu)->instance_count > 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    if (!is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is_mig = device_is_instance(gpu);
    return NVML_SUCCESS;
}

/* The most there can be; 0 while MIG mode is off. */
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = device_shape(gpu)->instance_count > 0 ? MIG_INSTANCES : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *instance)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    const struct device_shape *shape = device_shape(gpu);
    if (!instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (shape->instance_count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (index >= MIG_INSTANCES)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (index >= shape->instance_count)
        return NVML_ERROR_NOT_FOUND;
    *instance = nvml_handle(shape->first_instance + index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device)
{
    const struct device_shape *shape;
    nvmlReturn_t result = find_instance(instance, device, &shape);
    if (result == NVML_SUCCESS)
        *device = nvml_handle(shape->card);
    return result;
}

/* GPU instances of a card are numbered from 1: 0 is what a 7g instance has on a card, which spans it all.
 * (measure) */
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    const struct device_shape *shape;
    nvmlReturn_t result = find_instance(device, id, &shape);
    if (result == NVML_SUCCESS)
        *id = shape->instance + 1;
    return result;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    const struct device_shape *shape;
    nvmlReturn_t result = find_instance(device, id, &shape);
    if (result == NVML_SUCCESS)
        *id = COMPUTE_INSTANCE;
    return result;
}

/* Of MIG instances alone (nvml API reference). */
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    if (!attributes)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!device_is_instance(gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    const struct mig_profile *profile = mig_profile_at(device_shape(gpu)->mig_profile);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = profile->multiprocessors,
        .sharedCopyEngineCount = profile->copy_engines,
        .sharedDecoderCount = profile->decoders,
        .sharedJpegCount = profile->jpeg_engines,
        .sharedOfaCount = profile->flow_engines,
        .gpuInstanceSliceCount = profile->slices,
        .computeInstanceSliceCount = profile->slices,
        .memorySizeMB = device_shape(gpu)->total_bytes >> 20,
    };
    return NVML_SUCCESS;
}
