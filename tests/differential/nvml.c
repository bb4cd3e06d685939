/* nvml.c - rows: what NVML tells of memory and of processes. */
#include <dlfcn.h>
#include <unistd.h>

#include "differ.h"

static nvmlDevice_t nvml_device(void)
{
    nvmlReturn_t (*get)(unsigned, nvmlDevice_t *) = NULL;
    *(void **)&get = dlsym(nvml_library, "nvmlDeviceGetHandleByIndex_v2");
    nvmlDevice_t device = NULL;
    return get && get(0, &device) == NVML_SUCCESS ? device : NULL;
}

static void nvml_memory(struct actor *actor)
{
    nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_t *) = NULL;
    *(void **)&info = actor->function;
    nvmlMemory_t memory = {7, 7, 7}, *out = one_in(actor, 6) ? NULL : &memory;
    bool strange = one_in(actor, 5);
    put(actor, "%s %s", strange ? "NULL" : "device", out ? "&" : "NULL");
    nvmlReturn_t result = info(strange ? NULL : nvml_device(), out);
    put(actor, " = %d", result);
    if (result != NVML_SUCCESS)
        put(actor, " %llu %llu %llu", memory.total, memory.free, memory.used);
    else
        put(actor, memory.free + memory.used == memory.total ? " sane" : " does not add up");
}

static void nvml_memory_v2(struct actor *actor)
{
    nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_v2_t *) = NULL;
    *(void **)&info = actor->function;
    nvmlMemory_v2_t memory = {one_in(actor, 5) ? 3 : NVML_MEMORY_V2, 7, 7, 7, 7},
                    *out = one_in(actor, 6) ? NULL : &memory;
    bool strange = one_in(actor, 5);
    put(actor, "%s %s %u", strange ? "NULL" : "device", out ? "&" : "NULL", memory.version);
    nvmlReturn_t result = info(strange ? NULL : nvml_device(), out);
    put(actor, " = %d", result);
    if (result != NVML_SUCCESS)
        put(actor, " %llu %llu %llu", memory.total, memory.free, memory.used);
    else
        put(actor,
            memory.free + memory.used + memory.reserved == memory.total ? " sane" : " does not add up");
}

/* DIFFER_MOVES: without a context there, what pools keep of what was freed would decide whether the process is listed, and
 * memory that leaves goes from there at once. */
static bool is_listed_by_chance(void)
{
    return memory_moves && !has_context(0);
}

/* Of either kind and version: they differ in the size of an element alone. What each uses is looked at
 * elsewhere. */
static void nvml_processes(struct actor *actor)
{
    nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, void *) = NULL;
    *(void **)&list = actor->function;
    nvmlProcessInfo_v2_t infos[8] = {0};
    unsigned count = (unsigned)chance(actor, 3) * 4, *count_out = one_in(actor, 6) ? NULL : &count;
    void *out = one_in(actor, 6) ? NULL : infos;
    bool strange = one_in(actor, 6);
    if (actor->number == CHILD) {
        put(actor, "(its parent is of another session, or not, as it runs alone or under a daemon)");
        return;
    }
    if (is_listed_by_chance()) {
        put(actor, "(no context there)");
        return;
    }
    put(actor, "%s %s%u %s", strange ? "NULL" : "device", count_out ? "&" : "NULL ", count,
        out ? "&" : "NULL");
    nvmlReturn_t result = list(strange ? NULL : nvml_device(), count_out, out);
    put(actor, " = %d %u %s", result, count,
        infos[0].pid == (unsigned)getpid() ? "us"
        : infos[0].pid                     ? "another"
                                           : "");
}

static void nvml_details(struct actor *actor)
{
    nvmlReturn_t (*list)(nvmlDevice_t, nvmlProcessDetailList_v1_t *) = NULL;
    *(void **)&list = actor->function;
    nvmlProcessDetail_v1_t details[8] = {0};
    nvmlProcessDetailList_v1_t wanted = {one_in(actor, 6) ? 3 : NVML_PROCESS_DETAIL_LIST_V1,
                                         (unsigned)chance(actor, 4), (unsigned)chance(actor, 3) * 4,
                                         one_in(actor, 6) ? NULL : details};
    nvmlProcessDetailList_v1_t *out = one_in(actor, 6) ? NULL : &wanted;
    bool strange = one_in(actor, 6);
    if (actor->number == CHILD) {
        put(actor, "(its parent is of another session, or not, as it runs alone or under a daemon)");
        return;
    }
    if (is_listed_by_chance()) {
        put(actor, "(no context there)");
        return;
    }
    put(actor, "%s %s%u %u %u", strange ? "NULL" : "device", out ? "&" : "NULL ", wanted.version, wanted.mode,
        wanted.numProcArrayEntries);
    nvmlReturn_t result = list(strange ? NULL : nvml_device(), out);
    put(actor, " = %d %u %s", result, wanted.numProcArrayEntries,
        details[0].pid == (unsigned)getpid() ? "us" : "");
}

/* Who did something lately depends on the moment: only what is refused is told. */
static void put_activity(struct actor *actor, nvmlReturn_t result)
{
    if (result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND || result == NVML_ERROR_INSUFFICIENT_SIZE)
        put(actor, " = answered");
    else
        put(actor, " = %d", result);
}

static void nvml_activity(struct actor *actor)
{
    nvmlReturn_t (*list)(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long) =
        NULL;
    *(void **)&list = actor->function;
    nvmlProcessUtilizationSample_t samples[8];
    unsigned count = (unsigned)chance(actor, 3) * 4, *count_out = one_in(actor, 6) ? NULL : &count;
    bool strange = one_in(actor, 6), is_question = one_in(actor, 4);
    put(actor, "%s %s%u %s", strange ? "NULL" : "device", count_out ? "&" : "NULL ", count,
        is_question ? "NULL" : "&");
    put_activity(actor, list(strange ? NULL : nvml_device(), is_question ? NULL : samples, count_out, 0));
}

static void nvml_activity_info(struct actor *actor)
{
    nvmlReturn_t (*list)(nvmlDevice_t, nvmlProcessesUtilizationInfo_v1_t *) = NULL;
    *(void **)&list = actor->function;
    nvmlProcessUtilizationInfo_v1_t infos[8];
    nvmlProcessesUtilizationInfo_v1_t wanted = {one_in(actor, 6) ? 3 : NVML_PROCESSES_UTILIZATION_INFO_V1,
                                                (unsigned)chance(actor, 3) * 4, 0,
                                                one_in(actor, 4) ? NULL : infos};
    nvmlProcessesUtilizationInfo_v1_t *out = one_in(actor, 6) ? NULL : &wanted;
    bool strange = one_in(actor, 6);
    put(actor, "%s %s%u %u", strange ? "NULL" : "device", out ? "&" : "NULL ", wanted.version,
        wanted.processSamplesCount);
    put_activity(actor, list(strange ? NULL : nvml_device(), out));
}

static void nvml_accounting_pids(struct actor *actor)
{
    nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, unsigned *) = NULL;
    *(void **)&list = actor->function;
    unsigned pids[8], count = (unsigned)chance(actor, 3) * 4, *count_out = one_in(actor, 6) ? NULL : &count;
    bool strange = one_in(actor, 6), is_question = one_in(actor, 4);
    put(actor, "%s %s%u %s", strange ? "NULL" : "device", count_out ? "&" : "NULL ", count,
        is_question ? "NULL" : "&");
    nvmlReturn_t result = list(strange ? NULL : nvml_device(), count_out, is_question ? NULL : pids);
    put(actor, " = %d %u", result, count);
}

static void nvml_accounting_stats(struct actor *actor)
{
    nvmlReturn_t (*get)(nvmlDevice_t, unsigned, nvmlAccountingStats_t *) = NULL;
    *(void **)&get = actor->function;
    nvmlAccountingStats_t stats, *out = one_in(actor, 6) ? NULL : &stats;
    bool strange = one_in(actor, 6), is_us = one_in(actor, 2);
    put(actor, "%s %s %s", strange ? "NULL" : "device", is_us ? "us" : "init", out ? "&" : "NULL");
    put(actor, " = %d", get(strange ? NULL : nvml_device(), is_us ? (unsigned)getpid() : 1, out));
}

const struct row nvml_rows[] = {
    {"nvmlDeviceGetMemoryInfo", NULL, 2, nvml_memory},
    {"nvmlDeviceGetMemoryInfo_v2", NULL, 2, nvml_memory_v2},
    {"nvmlDeviceGetComputeRunningProcesses", NULL, 1, nvml_processes},
    {"nvmlDeviceGetComputeRunningProcesses_v2", NULL, 1, nvml_processes},
    {"nvmlDeviceGetComputeRunningProcesses_v3", NULL, 1, nvml_processes},
    {"nvmlDeviceGetGraphicsRunningProcesses", NULL, 1, nvml_processes},
    {"nvmlDeviceGetGraphicsRunningProcesses_v2", NULL, 1, nvml_processes},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", NULL, 1, nvml_processes},
    {"nvmlDeviceGetMPSComputeRunningProcesses", NULL, 1, nvml_processes},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v2", NULL, 1, nvml_processes},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", NULL, 1, nvml_processes},
    {"nvmlDeviceGetRunningProcessDetailList", NULL, 1, nvml_details},
    {"nvmlDeviceGetProcessUtilization", NULL, 1, nvml_activity},
    {"nvmlDeviceGetProcessesUtilizationInfo", NULL, 1, nvml_activity_info},
    {"nvmlDeviceGetAccountingPids", NULL, 1, nvml_accounting_pids},
    {"nvmlDeviceGetAccountingStats", NULL, 1, nvml_accounting_stats},
    {NULL, NULL, 0, NULL},
};
