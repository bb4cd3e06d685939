/* nvml_card.c - what NVML tells of a card that stays as it is: its make, its link, its limits; and its counters of
 * errors, which a simulation does not have. */
#include <stdio.h>
#include <string.h>

#include "cuda/uuid.h"
#include "simgpu/device/profile.h"
#include "simgpu/device/shared.h"
#include "simgpu/nvml/nvml_card.h"
#include "simgpu/nvml/nvml_find.h"
#include "simgpu/time/execution.h"

#define THROUGHPUT_NS UINT64_C(20000000) /* nvml API reference: "over a 20ms interval" */
#define MIB_BYTES (UINT64_C(1) << 20)

unsigned nvml_fact(enum nvml_fact fact)
{
    static const unsigned facts[][PROFILES] = {
#define NVML_FACT(name, standard, h100, t4, a10, l4, b200, rtx5090)                                          \
    {standard, h100, t4, a10, l4, b200, rtx5090},
#include "simgpu/nvml/nvml_facts.def"
#undef NVML_FACT
    };
    return facts[fact][device_parameters().profile];
}

/* Check the card's handle, and answer with a number. */
static nvmlReturn_t tell_number(nvmlDevice_t device, unsigned int *value, unsigned number)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!value)
        return NVML_ERROR_INVALID_ARGUMENT;
    *value = number;
    return NVML_SUCCESS;
}

static nvmlReturn_t tell_fact(nvmlDevice_t device, unsigned int *value, enum nvml_fact fact)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    return tell_number(device, value, nvml_fact(fact));
}

static nvmlReturn_t tell_long(nvmlDevice_t device, unsigned long long *value, unsigned long long number)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!value)
        return NVML_ERROR_INVALID_ARGUMENT;
    *value = number;
    return NVML_SUCCESS;
}

/* --- Make ------------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    return tell_fact(device, brand, NVML_FACT_BRAND);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    return tell_fact(device, architecture, NVML_FACT_ARCHITECTURE);
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    return tell_number(device, cores,
                       (unsigned)profile_value(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                           nvml_fact(NVML_FACT_CORES_OF_MULTIPROCESSOR));
}

/* Digits, as cards have, that follow from the UUID. */
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    unsigned gpu, number = 0;
    uint8_t uuid[GPU_UUID_BYTES];
    char text[16];
    TRY_FIND_CARD(device, &gpu);
    device_uuid(gpu, uuid);
    memcpy(&number, uuid, sizeof(number));
    snprintf(text, sizeof(text), "16%08u", number % 100000000u);
    return nvml_answer_text(text, serial, length);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    unsigned count = 0;
    nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
    if (result != NVML_SUCCESS)
        return result;
    if (!serial || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t card;
        char have[16];
        if (nvmlDeviceGetHandleByIndex_v2(i, &card) == NVML_SUCCESS &&
            nvmlDeviceGetSerial(card, have, sizeof(have)) == NVML_SUCCESS && strcmp(have, serial) == 0) {
            *device = card;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    return tell_number(device, id, device_pci_bus(gpu) << 8);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *is_multi)
{
    return tell_number(device, is_multi, 0);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    return nvml_answer_text("96.00.00.00.01", version, length);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned long long total = nvml_fact(NVML_FACT_BAR1_MIB) * MIB_BYTES;
    *memory = (nvmlBAR1Memory_t){.bar1Total = total, .bar1Free = total - MIB_BYTES, .bar1Used = MIB_BYTES};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
    return tell_number(device, mode, 0); /* NVML_GPU_VIRTUALIZATION_MODE_NONE */
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, unsigned int *type)
{
    return tell_number(device, type, 2); /* NVML_BUS_TYPE_PCIE */
}

/* --- Link ------------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return tell_fact(device, generation, NVML_FACT_PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return tell_fact(device, generation, NVML_FACT_PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return tell_fact(device, generation, NVML_FACT_PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    return tell_fact(device, width, NVML_FACT_PCIE_WIDTH);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    return tell_fact(device, width, NVML_FACT_PCIE_WIDTH);
}

nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int *speed)
{
    return tell_number(device, speed,
                       5); /* NVML_PCIE_LINK_MAX_SPEED_32000MBPS; the T4's slot may have it too */
}

nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int *megabits)
{
    return tell_fact(device, megabits, NVML_FACT_PCIE_LANE_MBPS);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *count)
{
    return tell_number(device, count, 0);
}

/* In KB/s, by how long the copy engine of that direction worked lately: 0 is what the GPU sends, 1 what it receives. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter, unsigned int *value)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!value || counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t now_ns = monotonic_ns(), busy_ns = 0;
    const struct timeline *timeline = &shared_view()->gpus[gpu].timeline;
    execution_advance(gpu);
    for (uint32_t slot = 0; slot < DEVICE_SLOTS; slot++)
        busy_ns += timeline_busy_ns(timeline, slot, counter == 0 ? TIMELINE_COPY_OUT : TIMELINE_COPY_IN,
                                    now_ns - THROUGHPUT_NS, now_ns);
    *value = (unsigned)(constant(SIM_LINK_GBPS) * 1e6 * (double)busy_ns / (double)THROUGHPUT_NS);
    return NVML_SUCCESS;
}

/* --- Limits ---------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int threshold,
                                               unsigned int *celsius)
{
    static const enum nvml_fact facts[] = {NVML_FACT_SHUTDOWN_CELSIUS, NVML_FACT_SLOWDOWN_CELSIUS,
                                           NVML_FACT_MEMORY_MOST_CELSIUS, NVML_FACT_MOST_CELSIUS};
    const unsigned known = 8; /* NVML_TEMPERATURE_THRESHOLD_COUNT */
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (threshold >= known || !celsius)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (threshold >= sizeof(facts) / sizeof(facts[0]))
        return NVML_ERROR_NOT_SUPPORTED;
    return tell_fact(device, celsius, facts[threshold]);
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned int *mode)
{
    return tell_number(device, mode, 1);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    return tell_fact(device, milliwatts, NVML_FACT_POWER_LIMIT_MILLIWATTS);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least,
                                                          unsigned int *most)
{
    nvmlReturn_t result = tell_fact(device, least, NVML_FACT_POWER_LEAST_MILLIWATTS);
    return result == NVML_SUCCESS ? tell_fact(device, most, NVML_FACT_POWER_LIMIT_MILLIWATTS) : result;
}

/* --- Encoders and decoders: idle, as no program here has any --------------------------------------- */

static nvmlReturn_t tell_idle(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    nvmlReturn_t result = tell_number(device, utilization, 0);
    return result == NVML_SUCCESS ? tell_number(device, period_us, 167000) : result;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization,
                                             unsigned int *period_us)
{
    return tell_idle(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization,
                                             unsigned int *period_us)
{
    return tell_idle(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int *utilization,
                                         unsigned int *period_us)
{
    return tell_idle(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int *utilization,
                                         unsigned int *period_us)
{
    return tell_idle(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions, unsigned int *frames,
                                       unsigned int *latency_us)
{
    nvmlReturn_t result = tell_number(device, sessions, 0);
    if (result == NVML_SUCCESS)
        result = tell_number(device, frames, 0);
    return result == NVML_SUCCESS ? tell_number(device, latency_us, 0) : result;
}

/* --- Clocks: as high as they go, for no other reason than that ------------------------------------- */

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return tell_long(device, reasons, 0);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return tell_long(device, reasons, 0);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return tell_long(device, reasons, 0x1ff);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return tell_long(device, reasons, 0x1ff);
}

static nvmlReturn_t tell_one_clock(nvmlDevice_t device, CUdevice_attribute kilohertz, unsigned int *count,
                                   unsigned int *clocks)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = *count;
    *count = 1;
    if (room == 0 || !clocks)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    clocks[0] = (unsigned)profile_value(kilohertz) / 1000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *clocks)
{
    return tell_one_clock(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, count, clocks);
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_megahertz,
                                                  unsigned int *count, unsigned int *clocks)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (memory_megahertz != (unsigned)profile_value(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000)
        return NVML_ERROR_NOT_FOUND;
    return tell_one_clock(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, count, clocks);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int type, unsigned int *megahertz)
{
    return nvmlDeviceGetMaxClockInfo(device, type, megahertz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned int type,
                                                   unsigned int *megahertz)
{
    return nvmlDeviceGetMaxClockInfo(device, type, megahertz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int which,
                                unsigned int *megahertz)
{
    return which > 3 ? NVML_ERROR_INVALID_ARGUMENT : nvmlDeviceGetMaxClockInfo(device, type, megahertz);
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, unsigned int *state)
{
    return nvmlDeviceGetPerformanceState(device, state);
}

/* --- Errors: none ---------------------------------------------------------------------------------- */

static nvmlReturn_t tell_no_errors(nvmlDevice_t device, unsigned type, unsigned counter,
                                   unsigned long long *count)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (type > 1 || counter > 1 || !count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                         unsigned long long *count)
{
    return tell_no_errors(device, type, counter, count);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                             unsigned int location, unsigned long long *count)
{
    return tell_no_errors(device, type, counter, count);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                       unsigned long long *addresses)
{
    return cause > 1 ? NVML_ERROR_INVALID_ARGUMENT : tell_number(device, count, 0);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *is_pending)
{
    return tell_number(device, is_pending, 0);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                       unsigned int *uncorrected, unsigned int *is_pending,
                                       unsigned int *has_failed)
{
    unsigned int *values[] = {corrected, uncorrected, is_pending, has_failed};
    nvmlReturn_t result = NVML_SUCCESS;
    for (unsigned i = 0; i < 4 && result == NVML_SUCCESS; i++)
        result = tell_number(device, values[i], 0);
    return result;
}

/* --- Energy, and values by number ------------------------------------------------------------------ */

static unsigned long long energy_millijoules(void)
{
    return monotonic_ns() / 1000000 * NVML_POWER_MILLIWATTS / 1000;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules)
{
    return tell_long(device, millijoules, energy_millijoules());
}

static void field_answer(nvmlFieldValue_t *field)
{
    enum {
        ECC_CURRENT = 1,
        ECC_PENDING,
        MEMORY_CELSIUS = 82,
        ENERGY,
        REPLAYS = 94,
        POWER_AVERAGE = 185,
        POWER_NOW
    };
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->nvmlReturn = NVML_SUCCESS;
    field->value.ullVal = 0;
    switch (field->fieldId) {
    case ECC_CURRENT:
    case ECC_PENDING:
        field->value.uiVal = (unsigned)profile_value(CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
        break;
    case MEMORY_CELSIUS:
        field->value.uiVal = NVML_TEMPERATURE_CELSIUS;
        break;
    case ENERGY:
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        field->value.ullVal = energy_millijoules();
        break;
    case REPLAYS:
        break;
    case POWER_AVERAGE:
    case POWER_NOW:
        field->value.uiVal = NVML_POWER_MILLIWATTS;
        break;
    default:
        field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
}

/* Each value says for itself whether the card has it. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (count <= 0 || !values)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        values[i].timestamp = (long long)nvml_wall_clock_us();
        values[i].latencyUsec = 0;
        field_answer(&values[i]);
    }
    return NVML_SUCCESS;
}
