/* nvml_processes.c - NVML's lists of the processes on the simulated GPUs: on MIG instances and on whole cards, where
 * a partitioned one lists those of all its instances. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "simgpu/device/costs.h"
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
    cost_suspend(); /* this call's own cost includes theirs */
    bool is_whole = add_lines(gpu, &lines, &found);
    for (unsigned i = 0; is_whole && i < shape->instance_count; i++)
        is_whole = add_lines(shape->first_instance + i, &lines, &found);
    cost_resume();
    if (!is_whole)
        return NVML_ERROR_UNKNOWN;
    cost_hold_kernel_lock(constant_whole(SIM_NVML_LIST_NS) + found * constant_whole(SIM_NVML_PROCESS_NS));
    unsigned room = *count;
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++)
        store(infos, i, &lines[i]);
    return NVML_SUCCESS;
}

/* What NVML says of the bytes, which may be that it does not know them. */
static unsigned long long bytes_told(const struct line *line)
{
    switch (constant_whole(SIM_NVML_NO_FIGURES)) {
    case 1:
        return NVML_VALUE_NOT_AVAILABLE_U64;
    case 2:
        return 0;
    default:
        return line->process.bytes;
    }
}

static void store_v1(void *infos, unsigned index, const struct line *line)
{
    ((nvmlProcessInfo_v1_t *)infos)[index] = (nvmlProcessInfo_v1_t){
        .pid = (unsigned)line->process.pid,
        .usedGpuMemory = bytes_told(line),
    };
}

static void store_v2(void *infos, unsigned index, const struct line *line)
{
    ((nvmlProcessInfo_v2_t *)infos)[index] = (nvmlProcessInfo_v2_t){
        .pid = (unsigned)line->process.pid,
        .usedGpuMemory = bytes_told(line),
        .gpuInstanceId = line->gpu_instance,
        .computeInstanceId = line->compute_instance,
    };
}

static void store_detail(void *infos, unsigned index, const struct line *line)
{
    ((nvmlProcessDetail_v1_t *)infos)[index] = (nvmlProcessDetail_v1_t){
        .pid = (unsigned)line->process.pid,
        .usedGpuMemory = bytes_told(line),
        .gpuInstanceId = line->gpu_instance,
        .computeInstanceId = line->compute_instance,
    };
}

/* No process draws on a simulated GPU, and none uses it by way of MPS. */
static nvmlReturn_t list_nobody(nvmlDevice_t device, unsigned int *count, void *infos, store_function *store)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    if (!count || (*count && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

/* --- Which form of the lists a driver has, and how large their entries are ---------------------------- */

/* By the versions of nvml.h in NVIDIA's nvidia-settings, as nvitop's pull requests 79 and 89 list them: _v2 came with
 * R450 and _v3 with R510, both with entries of 24 bytes; 535.43 made those of _v3 32 bytes long without another name,
 * 535.98 took _v3 away, and 535.104 brought it back as it had been. The list of details came with 535.98. */
static store_function *store_of_v2(void)
{
    return nvml_driver_is_before(450, 0) ? NULL : store_v2;
}

static store_function *store_of_v3(void)
{
    switch (constant_whole(SIM_NVML_ENTRY_BYTES)) {
    case sizeof(nvmlProcessInfo_v1_t):
        return store_v1;
    case sizeof(nvmlProcessInfo_v2_t):
        return store_v2;
    case sizeof(nvmlProcessDetail_v1_t):
        return store_detail;
    default:
        break;
    }
    if (nvml_driver_is_before(510, 0) || (!nvml_driver_is_before(535, 98) && nvml_driver_is_before(535, 104)))
        return NULL;
    return !nvml_driver_is_before(535, 43) && nvml_driver_is_before(535, 98) ? store_detail : store_v2;
}

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *count, void *infos, store_function *store);

/* `store` is NULL where the driver has no such list. */
static nvmlReturn_t list_by(list_function *list, store_function *store, nvmlDevice_t device, unsigned *count,
                            void *infos)
{
    return store ? list(device, count, infos, store) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

#define LIST(symbol, list, entry, store)                                                                     \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, entry *infos)                              \
    {                                                                                                        \
        return list_by(list, store, device, count, infos);                                                   \
    }
LIST(nvmlDeviceGetComputeRunningProcesses, list_processes, nvmlProcessInfo_v1_t, store_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, list_processes, nvmlProcessInfo_v2_t, store_of_v2())
LIST(nvmlDeviceGetComputeRunningProcesses_v3, list_processes, nvmlProcessInfo_v2_t, store_of_v3())
LIST(nvmlDeviceGetGraphicsRunningProcesses, list_nobody, nvmlProcessInfo_v1_t, store_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, list_nobody, nvmlProcessInfo_v2_t, store_of_v2())
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, list_nobody, nvmlProcessInfo_v2_t, store_of_v3())
LIST(nvmlDeviceGetMPSComputeRunningProcesses, list_nobody, nvmlProcessInfo_v1_t, store_v1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, list_nobody, nvmlProcessInfo_v2_t, store_of_v2())
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, list_nobody, nvmlProcessInfo_v2_t, store_of_v3())

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list)
{
    unsigned gpu;
    if (nvml_driver_is_before(535, 98))
        return NVML_ERROR_FUNCTION_NOT_FOUND;
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
