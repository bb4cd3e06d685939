/* nvml_state.c - what a simulated GPU does and how it is: how busy, its clocks, temperature, power and modes.
 * How busy is known (timeline.h); what a simulation does not have is a fixed number that a cool, idle card
 * could show, or NVML_ERROR_NOT_SUPPORTED where cards without the thing answer so. */
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "simgpu/device/costs.h"
#include "simgpu/device/profile.h"
#include "simgpu/device/shared.h"
#include "simgpu/nvml/nvml_card.h"
#include "simgpu/nvml/nvml_find.h"
#include "simgpu/time/execution.h"

#define SAMPLE_NS UINT64_C(166666667) /* NVML: "between 1/6 second and 1 second depending on the product" */
#define SAMPLE_LONGEST_NS UINT64_C(1000000000)

/* --- How busy -------------------------------------------------------------------------------------- */

static unsigned percent(uint64_t busy_ns, uint64_t window_ns)
{
    uint64_t value = window_ns > 0 ? (busy_ns * 100 + window_ns / 2) / window_ns : 0;
    return value < 100 ? (unsigned)value : 100;
}

/* How long a slot's work kept the GPU busy from `from_ns` to `to_ns`. */
static void slot_busy(unsigned gpu, uint32_t slot, uint64_t from_ns, uint64_t to_ns, uint64_t *compute_ns,
                      uint64_t *copy_ns)
{
    const struct timeline *timeline = &shared_view()->gpus[gpu].timeline;
    *compute_ns = timeline_busy_ns(timeline, slot, TIMELINE_COMPUTE, from_ns, to_ns);
    uint64_t in_ns = timeline_busy_ns(timeline, slot, TIMELINE_COPY_IN, from_ns, to_ns);
    uint64_t out_ns = timeline_busy_ns(timeline, slot, TIMELINE_COPY_OUT, from_ns, to_ns);
    *copy_ns = in_ns > out_ns ? in_ns : out_ns;
}

/* `gpu` is the time that kernels ran; `memory` that of copies, as nobody knows what a kernel reads. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!utilization)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device_shape(gpu)->instance_count > 0)
        return NVML_ERROR_NOT_SUPPORTED; /* "On MIG-enabled GPUs ... not currently supported" */
    execution_advance(gpu);
    uint64_t now_ns = monotonic_ns(), compute_ns = 0, copy_ns = 0;
    for (uint32_t slot = 0; slot < DEVICE_SLOTS; slot++) {
        uint64_t slot_compute_ns, slot_copy_ns;
        slot_busy(gpu, slot, now_ns - SAMPLE_NS, now_ns, &slot_compute_ns, &slot_copy_ns);
        compute_ns += slot_compute_ns;
        copy_ns += slot_copy_ns;
    }
    *utilization =
        (nvmlUtilization_t){.gpu = percent(compute_ns, SAMPLE_NS), .memory = percent(copy_ns, SAMPLE_NS)};
    return NVML_SUCCESS;
}

/* What processes did lately, of which NVML's two structures have more or less. */
struct activity {
    unsigned pid, compute_percent, copy_percent;
    uint64_t at_us;
};
typedef void store_function(void *samples, unsigned index, const struct activity *);

/* One sample a process that did something since `last_seen_us`, or in the last second if that is longer ago.
 * Nothing of partitioned cards (nvml API reference). */
static nvmlReturn_t list_activity(nvmlDevice_t device, unsigned int *count, void *samples,
                                  uint64_t last_seen_us, store_function *store)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (device_shape(gpu)->instance_count > 0)
        return NVML_ERROR_NOT_SUPPORTED;
    cost_hold_kernel_lock(constant_whole(SIM_NVML_LIST_NS));
    execution_advance(gpu);
    uint64_t now_ns = monotonic_ns(), now_us = nvml_wall_clock_us(), window_ns = SAMPLE_LONGEST_NS;
    if (last_seen_us < now_us && (now_us - last_seen_us) * 1000 < window_ns)
        window_ns = (now_us - last_seen_us) * 1000;
    if (last_seen_us >= now_us)
        return NVML_ERROR_NOT_FOUND;
    unsigned found = 0, room = samples ? *count : 0;
    for (uint32_t slot = 0; slot < DEVICE_SLOTS; slot++) {
        uint64_t compute_ns, copy_ns;
        slot_busy(gpu, slot, now_ns - window_ns, now_ns, &compute_ns, &copy_ns);
        if ((compute_ns == 0 && copy_ns == 0) || !shared_slot_is_alive(slot))
            continue;
        if (found < room)
            store(samples, found,
                  &(struct activity){
                      .pid = (unsigned)shared_slot_pid(slot),
                      .compute_percent = percent(compute_ns, window_ns),
                      .copy_percent = percent(copy_ns, window_ns),
                      .at_us = now_us,
                  });
        found++;
    }
    *count = found;
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static void store_sample(void *samples, unsigned index, const struct activity *activity)
{
    ((nvmlProcessUtilizationSample_t *)samples)[index] = (nvmlProcessUtilizationSample_t){
        .pid = activity->pid,
        .timeStamp = activity->at_us,
        .smUtil = activity->compute_percent,
        .memUtil = activity->copy_percent,
    };
}

static void store_info(void *samples, unsigned index, const struct activity *activity)
{
    ((nvmlProcessUtilizationInfo_v1_t *)samples)[index] = (nvmlProcessUtilizationInfo_v1_t){
        .timeStamp = activity->at_us,
        .pid = activity->pid,
        .smUtil = activity->compute_percent,
        .memUtil = activity->copy_percent,
    };
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long last_seen_us)
{
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    return list_activity(device, count, samples, last_seen_us, store_sample);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_v1_t *info)
{
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != NVML_PROCESSES_UTILIZATION_INFO_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return list_activity(device, &info->processSamplesCount, info->procUtilArray, info->lastSeenTimeStamp,
                         store_info);
}

/* --- Numbers that do not change -------------------------------------------------------------------- */

static nvmlReturn_t answer(nvmlDevice_t device, unsigned int *value, unsigned fixed)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!value)
        return NVML_ERROR_INVALID_ARGUMENT;
    *value = fixed;
    return NVML_SUCCESS;
}

static nvmlReturn_t answer_attribute(nvmlDevice_t device, unsigned int *value, CUdevice_attribute attribute,
                                     unsigned divisor)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    return answer(device, value, (unsigned)profile_value(attribute) / divisor);
}

static nvmlReturn_t not_supported(nvmlDevice_t device, const void *value)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    return value ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius)
{
    if (sensor != 0) /* NVML_TEMPERATURE_GPU is all there is */
        return NVML_ERROR_INVALID_ARGUMENT;
    return answer(device, celsius, NVML_TEMPERATURE_CELSIUS);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature)
{
    unsigned celsius;
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!temperature)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != NVML_TEMPERATURE_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius);
    if (result == NVML_SUCCESS)
        temperature->temperature = (int)celsius;
    return result;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    return answer(device, milliwatts, NVML_POWER_MILLIWATTS);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    return nvmlDeviceGetPowerManagementDefaultLimit(device, milliwatts);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    return nvmlDeviceGetPowerManagementDefaultLimit(device, milliwatts);
}

/* In MHz; always as high as they go. Types: graphics, multiprocessors, memory, video. */
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *megahertz)
{
    if (type > 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    return answer_attribute(
        device, megahertz, type == 2 ? CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE : CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
        1000);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *megahertz)
{
    return nvmlDeviceGetMaxClockInfo(device, type, megahertz);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state)
{
    return answer(device, state, 0); /* P0 */
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)
{
    return not_supported(device, speed); /* as cards that the server's fans cool */
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits)
{
    return answer_attribute(device, bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 1);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = profile_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = profile_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return NVML_SUCCESS;
}

/* --- Modes ----------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
    return answer(device, mode, 1); /* there is no driver to unload */
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    return answer(device, mode,
                  (unsigned)constant_whole(SIM_COMPUTE_MODE)); /* nvmlComputeMode_t has the same numbers */
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode)
{
    return answer(device, mode, 0);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *is_active)
{
    return answer(device, is_active, 0);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    nvmlReturn_t result = answer_attribute(device, current, CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1);
    return result == NVML_SUCCESS ? answer_attribute(device, pending, CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1)
                                  : result;
}

/* --- Accounting: off, as it is where nobody turned it on ------------------------------------------- */

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *mode)
{
    return answer(device, mode, 0);
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    return not_supported(device, count);
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)
{
    return not_supported(device, stats);
}
