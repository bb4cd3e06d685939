/* hook_nvml.c - NVML's answers about memory, so that nvidia-smi and schedulers see the same smaller GPU as CUDA does. */
#include "intercept/nvml/hook_nvml.h"

#include "cuda/uuid.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/session/visible_memory.h"

enum gpu_place hook_nvml_place(nvmlDevice_t device, uint32_t *gpu)
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    uint8_t uuid[GPU_UUID_BYTES];
    if (own_calls_depth)
        return PLACE_NOWHERE;
    enum session_mode mode = session_mode();
    bool is_whole = session_settings()->shows_whole_nvml && !*session_settings()->session_id;
    if (mode == SESSION_OUTSIDE || is_whole || !real_nvml(nvmlDeviceGetUUID) ||
        real_nvml(nvmlDeviceGetUUID)(device, text, sizeof(text)) != NVML_SUCCESS ||
        !gpu_uuid_parse(text, uuid))
        return PLACE_NOWHERE;
    if (mode == SESSION_REFUSED)
        return PLACE_FORBIDDEN;
    int found = session_gpu(uuid, -1);
    *gpu = (uint32_t)found;
    return found < 0 ? PLACE_FORBIDDEN : PLACE_ON_GPU;
}

static bool make_smaller(nvmlDevice_t device, unsigned long long *total, unsigned long long *free_bytes,
                         unsigned long long *used)
{
    uint32_t gpu = 0;
    enum gpu_place place = hook_nvml_place(device, &gpu);
    if (place == PLACE_NOWHERE)
        return false;
    struct visible_memory visible = visible_memory_of(
        place, gpu, (struct visible_memory){.total_bytes = *total, .free_bytes = *free_bytes});
    *total = visible.total_bytes;
    *free_bytes = visible.free_bytes;
    *used = visible.total_bytes - visible.free_bytes;
    return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    if (!real_nvml_ready() || !real_nvml(nvmlDeviceGetMemoryInfo))
        return real_nvml_absent();
    nvmlReturn_t result = real_nvml(nvmlDeviceGetMemoryInfo)(device, memory);
    if (result == NVML_SUCCESS)
        make_smaller(device, &memory->total, &memory->free, &memory->used);
    return result;
}

/* The smaller GPU does not include what the driver keeps for itself. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    if (!real_nvml_ready() || !real_nvml(nvmlDeviceGetMemoryInfo_v2))
        return real_nvml_absent();
    nvmlReturn_t result = real_nvml(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (result == NVML_SUCCESS && make_smaller(device, &memory->total, &memory->free, &memory->used))
        memory->reserved = 0;
    return result;
}
