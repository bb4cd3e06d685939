/* nvml_topology.c - where cards are: near which CPUs, and near each other. All simulated cards are on one host bridge,
 * near all CPUs, and reach each other's memory (cuDeviceCanAccessPeer). */
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "simgpu/device/device.h"
#include "simgpu/nvml/nvml_find.h"

#define BITS (CHAR_BIT * sizeof(unsigned long))
#define TOPOLOGY_INTERNAL 0u
#define TOPOLOGY_HOSTBRIDGE 30u

/* --- CPUs ------------------------------------------------------------------------------------------ */

static unsigned cpu_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_CONF);
    return count > 0 ? (unsigned)count : 1;
}

static nvmlReturn_t tell_set(nvmlDevice_t device, unsigned int words, unsigned long *set, unsigned bits)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!words || !set)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(set, 0, words * sizeof(*set));
    for (unsigned bit = 0; bit < bits && bit / BITS < words; bit++)
        set[bit / BITS] |= 1ul << bit % BITS;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *cpus)
{
    return tell_set(device, words, cpus, cpu_count());
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *cpus,
                                                 unsigned int scope)
{
    return scope > 1 ? NVML_ERROR_INVALID_ARGUMENT : tell_set(device, words, cpus, cpu_count());
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *nodes,
                                         unsigned int scope)
{
    return scope > 1 ? NVML_ERROR_INVALID_ARGUMENT : tell_set(device, words, nodes, 1);
}

/* Let the calling thread use the CPUs near the card, which are all. */
static nvmlReturn_t use_all_cpus(nvmlDevice_t device)
{
    unsigned gpu;
    cpu_set_t cpus;
    TRY_FIND_CARD(device, &gpu);
    CPU_ZERO(&cpus);
    for (unsigned cpu = 0; cpu < cpu_count() && cpu < CPU_SETSIZE; cpu++)
        CPU_SET(cpu, &cpus);
    return sched_setaffinity(0, sizeof(cpus), &cpus) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device)
{
    return use_all_cpus(device);
}

nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device)
{
    return use_all_cpus(device);
}

/* --- Each other ------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned int *level)
{
    unsigned gpu, other_gpu;
    TRY_FIND_CARD(one, &gpu);
    TRY_FIND_CARD(other, &other_gpu);
    if (!level)
        return NVML_ERROR_INVALID_ARGUMENT;
    *level = gpu == other_gpu ? TOPOLOGY_INTERNAL : TOPOLOGY_HOSTBRIDGE;
    return NVML_SUCCESS;
}

/* Cards but `except`: how many there are in `*count`, as many of them as there was room for. */
static void list_cards(unsigned except, unsigned int *count, nvmlDevice_t *devices)
{
    unsigned room = devices ? *count : 0, found = 0;
    for (unsigned gpu = 0; gpu < device_parameters().card_count; gpu++)
        if (gpu != except) {
            if (found < room)
                devices[found] = nvml_handle(gpu);
            found++;
        }
    *count = found;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned int level, unsigned int *count,
                                              nvmlDevice_t *devices)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!count || (*count && !devices))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (level == TOPOLOGY_HOSTBRIDGE)
        list_cards(gpu, count, devices);
    else
        *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count, nvmlDevice_t *devices)
{
    nvmlReturn_t result = nvml_ready();
    if (result != NVML_SUCCESS)
        return result;
    if (!count || cpu >= cpu_count() || (*count && !devices))
        return NVML_ERROR_INVALID_ARGUMENT;
    list_cards(DEVICE_GPUS, count, devices);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *is_same)
{
    unsigned gpu, other_gpu;
    TRY_FIND_CARD(one, &gpu);
    TRY_FIND_CARD(other, &other_gpu);
    if (!is_same)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is_same = gpu == other_gpu;
    return NVML_SUCCESS;
}

/* Cards read and write each other's memory, and have no link of their own for it. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned int what,
                                    unsigned int *status)
{
    enum { READ, WRITE, NVLINK, ATOMICS, PROPRIETARY, WHAT_COUNT };
    enum { STATUS_OK = 0, STATUS_NOT_SUPPORTED = 5 };
    unsigned gpu, other_gpu;
    TRY_FIND_CARD(one, &gpu);
    TRY_FIND_CARD(other, &other_gpu);
    if (!status || what >= WHAT_COUNT || gpu == other_gpu)
        return NVML_ERROR_INVALID_ARGUMENT;
    *status = what == READ || what == WRITE ? STATUS_OK : STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* --- Units (S-class systems) and host interface cards: there are none ------------------------------ */

static nvmlReturn_t tell_none(unsigned int *count)
{
    nvmlReturn_t result = nvml_ready();
    if (result != NVML_SUCCESS)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    return tell_none(count);
}

nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int index, void **unit)
{
    nvmlReturn_t result = nvml_ready();
    return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *count, void *entries)
{
    return tell_none(count);
}
