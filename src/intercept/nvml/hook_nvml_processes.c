/* hook_nvml_processes.c - NVML's lists of processes: only those of the session, under the pids by which the caller
 * knows them.
 *
 * The session's ledger says which processes are in it, by the pids that the daemon sees, which are NVML's. A process
 * is on a GPU if its slot holds bytes there, or NVML lists it. Its memory is NVML's figure; or what it was charged,
 * where that is more (managed memory) or NVML has no figure (inside a container NVML need not know our pids). */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/nvml_entries.h"
#include "intercept/nvml/hook_nvml.h"
#include "intercept/nvml/nvml_pids.h"
#include "intercept/resolve/real.h"

#define REAL_MAX 4096 /* processes that NVML may list; if it has more, none has a figure */

typedef nvmlReturn_t list_function(nvmlDevice_t, unsigned int *, void *);

/* One of NVML's functions. Their entries differ only in length: each begins as the longest one does. */
struct form {
    list_function *driver;
    nvmlReturn_t (*driver_detailed)(nvmlDevice_t, nvmlProcessDetailList_v1_t *); /* in place of `driver` */
    unsigned mode;                                                               /* of `driver_detailed` */
    size_t entry_bytes; /* as NVML's reference gives it */
    bool lists_compute; /* if not, only what NVML itself lists: we do not know which processes draw */
};

/* What NVML answered, and what the caller gets. */
struct lists {
    nvmlProcessDetail_v1_t real[REAL_MAX], shown[LEDGER_SLOTS];
    unsigned real_count, shown_count;
    size_t entry_bytes; /* in this driver (nvml_entries.h), and so for the caller */
};

static nvmlReturn_t call_driver(const struct form *form, nvmlDevice_t device, unsigned *count, void *entries)
{
    if (!form->driver_detailed)
        return form->driver(device, count, entries);
    nvmlProcessDetailList_v1_t list = {NVML_PROCESS_DETAIL_LIST_V1, form->mode, *count, entries};
    nvmlReturn_t result = form->driver_detailed(device, &list);
    *count = list.numProcArrayEntries;
    return result;
}

static void ask_nvml(const struct form *form, nvmlDevice_t device, struct lists *lists)
{
    char *entries = (char *)lists->real;
    unsigned count = REAL_MAX;
    nvml_entries_prepare(entries, REAL_MAX);
    nvmlReturn_t result = call_driver(form, device, &count, entries);
    size_t bytes = result == NVML_SUCCESS ? nvml_entries_length(entries, REAL_MAX, count) : 0;
    if (!bytes)
        return;
    lists->real_count = count;
    lists->entry_bytes = bytes;
    /* Entries of older drivers are shorter. From the last one on, each has room to grow. */
    for (unsigned i = count; i-- > 0;) {
        nvmlProcessDetail_v1_t whole = {.gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_U32,
                                        .computeInstanceId = NVML_VALUE_NOT_AVAILABLE_U32};
        memcpy(&whole, entries + i * bytes, bytes);
        lists->real[i] = whole;
    }
}

static const nvmlProcessDetail_v1_t *find_real(const struct lists *lists, pid_t pid)
{
    for (unsigned i = 0; i < lists->real_count; i++)
        if (lists->real[i].pid == (unsigned)pid)
            return &lists->real[i];
    return NULL;
}

/* The entry of a process that NVML does not list, with the IDs of the MIG instance if the handle is an instance's. */
static nvmlProcessDetail_v1_t unlisted(nvmlDevice_t device)
{
    nvmlProcessDetail_v1_t entry = {.gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_U32,
                                    .computeInstanceId = NVML_VALUE_NOT_AVAILABLE_U32};
    unsigned gpu_instance, compute_instance;
    if (real_nvml(nvmlDeviceGetGpuInstanceId) && real_nvml(nvmlDeviceGetComputeInstanceId) &&
        real_nvml(nvmlDeviceGetGpuInstanceId)(device, &gpu_instance) == NVML_SUCCESS &&
        real_nvml(nvmlDeviceGetComputeInstanceId)(device, &compute_instance) == NVML_SUCCESS) {
        entry.gpuInstanceId = gpu_instance;
        entry.computeInstanceId = compute_instance;
    }
    return entry;
}

static void add_slot(const struct form *form, nvmlDevice_t device, uint32_t index, uint32_t gpu,
                     const struct ledger_owner *own, struct lists *lists)
{
    const struct ledger_usage *usage = session_slot()->ledger.usage;
    struct ledger_owner owner;
    uint64_t generation;
    if (lists->shown_count == LEDGER_SLOTS || !ledger_slot_owner(usage, index, &owner, &generation))
        return;
    uint64_t bytes = ledger_slot_shown_bytes(usage, index, gpu);
    const nvmlProcessDetail_v1_t *real = find_real(lists, owner.pid);
    if (!real && (!form->lists_compute || bytes == 0))
        return;
    nvmlProcessDetail_v1_t *shown = &lists->shown[lists->shown_count++];
    *shown = real ? *real : unlisted(device);
    shown->pid = (unsigned)nvml_pid_here(own, &owner);
    if (shown->usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_U64 || shown->usedGpuMemory < bytes)
        shown->usedGpuMemory = bytes;
}

static void list_session(const struct form *form, nvmlDevice_t device, uint32_t gpu, struct lists *lists)
{
    struct ledger_owner own;
    lists->real_count = 0;
    ask_nvml(form, device, lists);
    if (!nvml_pid_own(&own))
        return;
    for (uint32_t index = 0; index < LEDGER_SLOTS; index++)
        add_slot(form, device, index, gpu, &own, lists);
}

/* A card in MIG mode lists the processes on its instances: here the session's processes on the session's instances. */
static void list_instances(const struct form *form, nvmlDevice_t card, struct lists *lists)
{
    unsigned most = 0;
    if (!real_nvml(nvmlDeviceGetMaxMigDeviceCount) || !real_nvml(nvmlDeviceGetMigDeviceHandleByIndex) ||
        real_nvml(nvmlDeviceGetMaxMigDeviceCount)(card, &most) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < most; i++) {
        nvmlDevice_t instance;
        uint32_t gpu;
        if (real_nvml(nvmlDeviceGetMigDeviceHandleByIndex)(card, i, &instance) == NVML_SUCCESS &&
            hook_nvml_place(instance, &gpu) == PLACE_ON_GPU)
            list_session(form, instance, gpu, lists);
    }
}

/* Fill the caller's array, which has room for `*count`; sets `*count` to the number of processes. */
static nvmlReturn_t answer(const struct lists *lists, unsigned int *count, void *infos)
{
    unsigned room = *count;
    *count = lists->shown_count;
    if (lists->shown_count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < lists->shown_count; i++)
        memcpy((char *)infos + i * lists->entry_bytes, &lists->shown[i], lists->entry_bytes);
    return NVML_SUCCESS;
}

static nvmlReturn_t list(const struct form *form, nvmlDevice_t device, unsigned int *count, void *infos)
{
    uint32_t gpu = 0;
    if (!form->driver && !form->driver_detailed)
        return real_nvml_absent();
    enum gpu_place place = count && (infos || !*count) ? hook_nvml_place(device, &gpu) : PLACE_NOWHERE;
    if (place == PLACE_NOWHERE)
        return call_driver(form, device, count, infos);
    int saved_errno = errno;
    struct lists *lists =
        mmap(NULL, sizeof(*lists), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (lists == MAP_FAILED)
        return NVML_ERROR_UNKNOWN;
    lists->entry_bytes = form->entry_bytes;
    if (place == PLACE_ON_GPU)
        list_session(form, device, gpu, lists);
    else
        list_instances(form, device, lists);
    nvmlReturn_t result = answer(lists, count, infos);
    munmap(lists, sizeof(*lists));
    errno = saved_errno;
    return result;
}

#define LISTS(symbol, entry, compute)                                                                        \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, entry *infos)                              \
    {                                                                                                        \
        if (!real_nvml_ready())                                                                              \
            return real_nvml_absent();                                                                       \
        return list(&(struct form){.driver = (list_function *)(void *)real_nvml(symbol),                     \
                                   .entry_bytes = sizeof(entry),                                             \
                                   .lists_compute = compute},                                                \
                    device, count, infos);                                                                   \
    }
LISTS(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
LISTS(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, true)
LISTS(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, true)
LISTS(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
LISTS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
LISTS(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, false)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, false)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, false)

/* A newer list, whose entries we do not know, is refused as a driver that does not know it would refuse it. */
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *wanted)
{
    if (!real_nvml_ready() || !real_nvml(nvmlDeviceGetRunningProcessDetailList))
        return real_nvml_absent();
    uint32_t gpu;
    if (!wanted || hook_nvml_place(device, &gpu) == PLACE_NOWHERE)
        return real_nvml(nvmlDeviceGetRunningProcessDetailList)(device, wanted);
    if (wanted->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (wanted->mode > NVML_PROCESS_MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return list(&(struct form){.driver_detailed = real_nvml(nvmlDeviceGetRunningProcessDetailList),
                               .mode = wanted->mode,
                               .entry_bytes = sizeof(nvmlProcessDetail_v1_t),
                               .lists_compute = wanted->mode == NVML_PROCESS_MODE_COMPUTE},
                device, &wanted->numProcArrayEntries, wanted->procArray);
}
