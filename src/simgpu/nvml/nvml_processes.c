/* nvml_processes.c - NVML's lists of who uses the simulated GPUs: of MIG instances and of whole cards, where
 * a partitioned one lists those of all its instances. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "simgpu/device/device.h"
#include "simgpu/nvml/nvml_find.h"

/* One line of a list, of which NVML's structures have more or less. */
struct line {
    struct device_process process;
    unsigned gpu_instance, compute_instance;
};

static unsigned instance_id(unsigned gpu)
{
    unsigned id;
    return nvmlDeviceGetGpuInstanceId(nvml_handle(gpu), &id) == NVML_SUCCESS ? id
                                                                             : NVML_VALUE_NOT_AVAILABLE_U32;
}

static unsigned compute_instance_id(unsigned gpu)
{
    unsigned id;
    return nvmlDeviceGetComputeInstanceId(nvml_handle(gpu), &id) == NVML_SUCCESS
               ? id
               : NVML_VALUE_NOT_AVAILABLE_U32;
}

/* The processes on one GPU, behind the `count` lines that are there. False without memory. */
static bool add_lines(unsigned gpu, struct line **lines, unsigned *count)
{
    cleanup_free struct device_process *processes = calloc(DEVICE_SLOTS, sizeof(*processes));
    if (!processes)
        return false;
    unsigned found = device_processes(gpu, processes, DEVICE_SLOTS);
    if (found > DEVICE_SLOTS)
        found = DEVICE_SLOTS;
    struct line *more = realloc(*lines, (*count + found + 1) * sizeof(*more));
    if (!more)
        return false;
    *lines = more;
    for (unsigned i = 0; i < found; i++)
        more[(*count)++] = (struct line){processes[i], instance_id(gpu), compute_instance_id(gpu)};
    return true;
}

typedef void store_function(void *infos, unsigned index, const struct line *);

/* List processes with `store` writing element `index` of the caller's array. `*count` is the array's room,
 * and becomes how many there are. */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count, void *infos,
                                   store_function *store)
{
    unsigned gpu, found = 0;
    TRY_FIND(device, &gpu);
    if (!count || (*count && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct device_shape *shape = device_shape(gpu);
    cleanup_free struct line *lines = NULL;
    bool is_whole = add_lines(gpu, &lines, &found);
    for (unsigned i = 0; is_whole && i < shape->instance_count; i++)
        is_whole = add_lines(shape->first_instance + i, &lines, &found);
    if (!is_whole)
        return NVML_ERROR_UNKNOWN;
    unsigned room = *count;
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++)
        store(infos, i, &lines[i]);
    return NVML_SUCCESS;
}

static void store_v1(void *infos, unsigned index, const struct line *line)
{
    ((nvmlProcessInfo_v1_t *)infos)[index] = (nvmlProcessInfo_v1_t){
        .pid = (unsigned)line->process.pid,
        .usedGpuMemory = line->process.bytes,
    };
}

static void store_v2(void *infos, unsigned index, const struct line *line)
{
    ((nvmlProcessInfo_v2_t *)infos)[index] = (nvmlProcessInfo_v2_t){
        .pid = (unsigned)line->process.pid,
        .usedGpuMemory = line->process.bytes,
        .gpuInstanceId = line->gpu_instance,
        .computeInstanceId = line->compute_instance,
    };
}

static void store_detail(void *infos, unsigned index, const struct line *line)
{
    ((nvmlProcessDetail_v1_t *)infos)[index] = (nvmlProcessDetail_v1_t){
        .pid = (unsigned)line->process.pid,
        .usedGpuMemory = line->process.bytes,
        .gpuInstanceId = line->gpu_instance,
        .computeInstanceId = line->compute_instance,
    };
}

/* Nothing draws on a simulated GPU, and nobody is there by way of MPS. */
static nvmlReturn_t list_nobody(nvmlDevice_t device, unsigned int *count, void *infos, store_function *store)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    if (!count || (*count && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

#define LISTS(kind, list)                                                                                    \
    nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses(nvmlDevice_t device, unsigned int *count,             \
                                                       nvmlProcessInfo_v1_t *infos)                          \
    {                                                                                                        \
        return list(device, count, infos, store_v1);                                                         \
    }                                                                                                        \
    nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v2(nvmlDevice_t device, unsigned int *count,          \
                                                          nvmlProcessInfo_v2_t *infos)                       \
    {                                                                                                        \
        return list(device, count, infos, store_v2);                                                         \
    }                                                                                                        \
    nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v3(nvmlDevice_t device, unsigned int *count,          \
                                                          nvmlProcessInfo_v2_t *infos)                       \
    {                                                                                                        \
        return list(device, count, infos, store_v2);                                                         \
    }
LISTS(Compute, list_processes)
LISTS(Graphics, list_nobody)
LISTS(MPSCompute, list_nobody)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    if (!list)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (list->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode > NVML_PROCESS_MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return (list->mode == NVML_PROCESS_MODE_COMPUTE ? list_processes : list_nobody)(
        device, &list->numProcArrayEntries, list->procArray, store_detail);
}
