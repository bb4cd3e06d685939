/* nvml.c - a stand-in for libnvidia-ml.so.1 with one GPU, on which the processes are that a file lists: by
 * MPS, in the detailed lists of every mode, and in accounting, where each had 1000 bytes a pid at most.
 *
 * CROWD_UUID   the GPU's UUID
 * CROWD_FILE   the pids, one a line; read at every call */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/nvml.h"

#define EXPORT __attribute__((visibility("default")))
#define MOST 64u

static char only_device;

static unsigned read_pids(unsigned pids[static MOST])
{
    FILE *file = fopen(getenv("CROWD_FILE"), "re");
    unsigned count = 0;
    while (file && count < MOST && fscanf(file, "%u", &pids[count]) == 1)
        count++;
    if (file)
        fclose(file);
    return count;
}

/* How many there are, and whether they have room; as all of NVML's lists do. */
static nvmlReturn_t begin(unsigned *count, unsigned pids[static MOST])
{
    unsigned room = *count;
    *count = read_pids(pids);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void);
EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(void *)&only_device;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned bytes);
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned bytes)
{
    snprintf(text, bytes, "%s", getenv("CROWD_UUID"));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig);
EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    *is_mig = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count);
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    *count = 0;
    return NVML_SUCCESS;
}

#define LISTS(symbol, type, ...)                                                                             \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned *count, type *infos);                           \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned *count, type *infos)                            \
    {                                                                                                        \
        unsigned pids[MOST];                                                                                 \
        nvmlReturn_t result = begin(count, pids);                                                            \
        for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)                                      \
            infos[i] = (type){.pid = pids[i], .usedGpuMemory = 5, __VA_ARGS__};                              \
        return result;                                                                                       \
    }
#define NO_INSTANCE                                                                                          \
    .gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_U32, .computeInstanceId = NVML_VALUE_NOT_AVAILABLE_U32
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, )
LISTS(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, NO_INSTANCE)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, NO_INSTANCE)

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_v1_t *list);
EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_v1_t *list)
{
    unsigned pids[MOST];
    nvmlReturn_t result = begin(&list->numProcArrayEntries, pids);
    for (unsigned i = 0; result == NVML_SUCCESS && i < list->numProcArrayEntries; i++)
        list->procArray[i] =
            (nvmlProcessDetail_v1_t){.pid = pids[i], .usedGpuMemory = list->mode, NO_INSTANCE};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *infos);
EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *infos)
{
    unsigned pids[MOST];
    nvmlReturn_t result = begin(count, pids);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        infos[i] = pids[i];
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid,
                                                 nvmlAccountingStats_t *stats);
EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid,
                                                 nvmlAccountingStats_t *stats)
{
    *stats = (nvmlAccountingStats_t){.maxMemoryUsage = pid * 1000ull, .isRunning = 1};
    return NVML_SUCCESS;
}
