/* hook_nvml_activity.c - NVML's figures of what processes did: only those of the session, under the pids by which the
 * caller knows them. Processes outside the session seem not to exist. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "intercept/nvml/hook_nvml.h"
#include "intercept/nvml/nvml_pids.h"
#include "intercept/resolve/real.h"

#define REAL_MAX 4096 /* how many entries NVML is asked for */

/* --- Utilisation ----------------------------------------------------------------------------------- */

/* One of NVML's two functions, which differ in their entries. */
struct form {
    nvmlReturn_t (*ask)(nvmlDevice_t device, void *entries, unsigned *count, unsigned long long last_seen_us);
    size_t entry_bytes, pid_at;
};

static nvmlReturn_t ask_samples(nvmlDevice_t device, void *entries, unsigned *count,
                                unsigned long long last_seen_us)
{
    return real_nvml(nvmlDeviceGetProcessUtilization)(device, entries, count, last_seen_us);
}

static nvmlReturn_t ask_infos(nvmlDevice_t device, void *entries, unsigned *count,
                              unsigned long long last_seen_us)
{
    nvmlProcessesUtilizationInfo_v1_t wanted = {NVML_PROCESSES_UTILIZATION_INFO_V1, *count, last_seen_us,
                                                entries};
    nvmlReturn_t result = real_nvml(nvmlDeviceGetProcessesUtilizationInfo)(device, &wanted);
    *count = wanted.processSamplesCount;
    return result;
}

/* The caller's pid for the session's process that NVML knows by `pid`; 0: it is not in the session. */
static pid_t session_pid(const struct ledger_owner *own, unsigned pid)
{
    const struct ledger_usage *usage = session_slot()->ledger.usage;
    struct ledger_owner owner;
    uint64_t generation;
    for (uint32_t index = 0; index < LEDGER_SLOTS; index++)
        if (ledger_slot_owner(usage, index, &owner, &generation) && (unsigned)owner.pid == pid)
            return nvml_pid_here(own, &owner);
    return 0;
}

/* Keep the session's entries, at the front. Returns how many. */
static unsigned keep_session(const struct form *form, char *entries, unsigned count)
{
    struct ledger_owner own;
    unsigned kept = 0;
    for (unsigned i = 0; nvml_pid_own(&own) && i < count; i++) {
        char *entry = entries + i * form->entry_bytes;
        unsigned pid;
        memcpy(&pid, entry + form->pid_at, sizeof(pid));
        pid = (unsigned)session_pid(&own, pid);
        if (!pid)
            continue;
        memcpy(entry + form->pid_at, &pid, sizeof(pid));
        memmove(entries + kept++ * form->entry_bytes, entry, form->entry_bytes);
    }
    return kept;
}

/* NVML's answer without the other sessions' processes: NOT_FOUND when none is left. `infos` NULL asks for the number. */
static nvmlReturn_t list(const struct form *form, nvmlDevice_t device, void *infos, unsigned *count,
                         unsigned long long last_seen_us)
{
    uint32_t gpu = 0;
    enum gpu_place place = count ? hook_nvml_place(device, &gpu) : PLACE_NOWHERE;
    if (place == PLACE_NOWHERE)
        return form->ask(device, infos, count, last_seen_us);
    if (place == PLACE_FORBIDDEN) {
        *count = 0;
        return NVML_ERROR_NOT_FOUND;
    }
    int saved_errno = errno;
    size_t bytes = REAL_MAX * form->entry_bytes;
    char *entries = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (entries == MAP_FAILED)
        return NVML_ERROR_UNKNOWN;
    unsigned found = REAL_MAX, room = infos ? *count : 0;
    nvmlReturn_t result = form->ask(device, entries, &found, last_seen_us);
    if (result == NVML_SUCCESS) {
        *count = keep_session(form, entries, found < REAL_MAX ? found : REAL_MAX);
        if (*count == 0)
            result = NVML_ERROR_NOT_FOUND;
        else if (*count > room)
            result = NVML_ERROR_INSUFFICIENT_SIZE;
        else
            memcpy(infos, entries, *count * form->entry_bytes);
    }
    munmap(entries, bytes);
    errno = saved_errno;
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long last_seen_us)
{
    if (!real_nvml_ready() || !real_nvml(nvmlDeviceGetProcessUtilization))
        return real_nvml_absent();
    return list(&(struct form){ask_samples, sizeof(*samples), offsetof(nvmlProcessUtilizationSample_t, pid)},
                device, samples, count, last_seen_us);
}

/* A newer structure, whose entries we do not know, is refused as a driver that does not know it would refuse it. */
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_v1_t *wanted)
{
    if (!real_nvml_ready() || !real_nvml(nvmlDeviceGetProcessesUtilizationInfo))
        return real_nvml_absent();
    uint32_t gpu;
    if (!wanted || hook_nvml_place(device, &gpu) == PLACE_NOWHERE)
        return real_nvml(nvmlDeviceGetProcessesUtilizationInfo)(device, wanted);
    if (wanted->version != NVML_PROCESSES_UTILIZATION_INFO_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return list(&(struct form){ask_infos, sizeof(wanted->procUtilArray[0]),
                               offsetof(nvmlProcessUtilizationInfo_v1_t, pid)},
                device, wanted->procUtilArray, &wanted->processSamplesCount, wanted->lastSeenTimeStamp);
}

/* --- Accounting ------------------------------------------------------------------------------------ */

/* Of the processes that NVML keeps account of, lists those of the session that are alive. The array has room for
 * `*count`. */
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    if (!real_nvml_ready() || !real_nvml(nvmlDeviceGetAccountingPids))
        return real_nvml_absent();
    uint32_t gpu = 0;
    enum gpu_place place = count && (pids || !*count) ? hook_nvml_place(device, &gpu) : PLACE_NOWHERE;
    if (place == PLACE_NOWHERE)
        return real_nvml(nvmlDeviceGetAccountingPids)(device, count, pids);
    unsigned real[REAL_MAX], found = REAL_MAX, room = *count;
    nvmlReturn_t result = real_nvml(nvmlDeviceGetAccountingPids)(device, &found, real);
    if (result != NVML_SUCCESS)
        return result;
    int saved_errno = errno;
    *count = place == PLACE_ON_GPU ? keep_session(&(struct form){.entry_bytes = sizeof(real[0])},
                                                  (char *)real, found < REAL_MAX ? found : REAL_MAX)
                                   : 0;
    errno = saved_errno;
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(pids, real, *count * sizeof(real[0]));
    return NVML_SUCCESS;
}

/* NVML's pid of the session's process that the caller knows by `pid`; 0: it is not in the session. */
static unsigned real_pid(unsigned pid)
{
    const struct ledger_usage *usage = session_slot()->ledger.usage;
    struct ledger_owner own, owner;
    uint64_t generation;
    for (uint32_t index = 0; nvml_pid_own(&own) && index < LEDGER_SLOTS; index++)
        if (ledger_slot_owner(usage, index, &owner, &generation) &&
            (unsigned)nvml_pid_here(&own, &owner) == pid)
            return (unsigned)owner.pid;
    return 0;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)
{
    if (!real_nvml_ready() || !real_nvml(nvmlDeviceGetAccountingStats))
        return real_nvml_absent();
    uint32_t gpu;
    enum gpu_place place = hook_nvml_place(device, &gpu);
    if (place == PLACE_NOWHERE)
        return real_nvml(nvmlDeviceGetAccountingStats)(device, pid, stats);
    int saved_errno = errno;
    unsigned real = place == PLACE_ON_GPU ? real_pid(pid) : 0;
    errno = saved_errno;
    if (real)
        return real_nvml(nvmlDeviceGetAccountingStats)(device, real, stats);
    /* NVML reports whatever else is wrong, for example that accounting is off. */
    nvmlAccountingStats_t unseen;
    nvmlReturn_t result = real_nvml(nvmlDeviceGetAccountingStats)(device, pid, stats ? &unseen : NULL);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}
