/* led_nvml.c - an NVML that a test leads by `led`, which it finds by dlsym: what it shows, and when it hangs.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "led_nvml.h"

__attribute__((visibility("default"))) struct led_nvml led = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                                              .total_bytes = 1000};

#define EXPORT __attribute__((visibility("default")))

EXPORT nvmlReturn_t nvmlInit_v2(void);
EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return led.init_result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = led.card_count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)&led;
    return led.lost_cards >> index & 1 ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned bytes);
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned bytes)
{
    for (int i = 0; i < 7; i++)
        if (device == (nvmlDevice_t)(void *)&led.instance_handles[i]) {
            snprintf(text, bytes, "MIG-01234567-89ab-cdef-0123-456789abcde%d", i);
            return NVML_SUCCESS;
        }
    snprintf(text, bytes, "GPU-01234567-89ab-cdef-0123-456789abcdef");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending);
EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    *current = *pending = led.is_partitioned;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count);
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    *count = led.is_partitioned ? 7 : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                        nvmlDevice_t *instance);
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                        nvmlDevice_t *instance)
{
    *instance = (nvmlDevice_t)(void *)&led.instance_handles[index];
    return led.instances >> index & 1 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned bytes);
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned bytes)
{
    snprintf(text, bytes, "Led");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned bytes);
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned bytes)
{
    snprintf(text, bytes, "1.0");
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result);
EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    return "led astray";
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    *rates = (nvmlUtilization_t){.gpu = led.busy_percent};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius);
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius)
{
    *celsius = 61;
    return sensor == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts);
EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples, unsigned *count,
                                                    unsigned long long after);
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples, unsigned *count,
                                                    unsigned long long after)
{
    if (!led.busy_percent)
        return NVML_ERROR_NOT_FOUND;
    *count = 1;
    if (!samples)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    samples[0] = (nvmlProcessUtilizationSample_t){.pid = led.first_pid, .smUtil = led.busy_percent};
    return NVML_SUCCESS;
}

/* The test holds the lock to make it hang. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    pthread_mutex_lock(&led.lock);
    *memory = (nvmlMemory_t){
        .total = led.total_bytes, .used = led.used_bytes, .free = led.total_bytes - led.used_bytes};
    nvmlReturn_t result = led.memory_result;
    pthread_mutex_unlock(&led.lock);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = plain.total;
    memory->reserved = led.kept_bytes;
    memory->free = plain.free;
    memory->used = plain.used - led.kept_bytes;
    return led.kept_result ? led.kept_result : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_v2_t *processes);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_v2_t *processes)
{
    pthread_mutex_lock(&led.lock);
    unsigned room = *count;
    *count = led.process_count;
    for (unsigned i = 0; i < led.process_count && i < room; i++) {
        nvmlProcessDetail_v1_t entry = {.pid = led.first_pid + i, .usedGpuMemory = led.bytes_of_each};
        size_t bytes = led.entry_bytes ? led.entry_bytes : sizeof(*processes);
        memcpy((char *)processes + i * bytes, &entry, bytes);
    }
    nvmlReturn_t result = room < led.process_count ? NVML_ERROR_INSUFFICIENT_SIZE : led.processes_result;
    if (led.on_processes)
        led.on_processes();
    pthread_mutex_unlock(&led.lock);
    return result;
}
