/* hook_nvml_processes.c - NVML's lists of processes: the session's own, under the pids that the caller knows
 * them by.
 *
 * Who is in the session stands in its ledger, with the pid that the daemon sees, which is NVML's. A process
 * is on a GPU if its slot holds bytes there or NVML lists it; what it uses is NVML's figure, or what it was
 * charged where that is more (managed memory) or NVML says nothing (inside a container it need not know our
 * pids). */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"
#include "intercept/hook_nvml.h"
#include "intercept/real.h"

#define REAL_MAX 4096   /* processes that NVML may list beside ours; of more, none has a figure */
#define NS_DEPTH_MAX 33 /* pid namespaces nest 32 deep (pid_namespaces(7)) */

typedef nvmlReturn_t list_function(nvmlDevice_t, unsigned int *, void *);

/* One of NVML's six functions: two kinds in three versions, which differ in their entries alone. */
struct form {
    list_function *driver;
    size_t entry_bytes;
    bool lists_compute; /* else only what NVML lists itself: nobody knows who draws */
};

/* What NVML answers, and what the caller gets. */
struct lists {
    nvmlProcessInfo_v2_t real[REAL_MAX], shown[LEDGER_SLOTS];
    unsigned real_count, shown_count;
};

/* --- Pids ------------------------------------------------------------------------------------------ */

/* The pids of a process from the namespace of /proc inwards; 0 when it is not to be seen there. */
static unsigned read_namespace_pids(pid_t pid, pid_t pids[static NS_DEPTH_MAX])
{
    char path[40], line[512];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof(line), status)) {
        if (strncmp(line, "NSpid:", 6) != 0)
            continue;
        char *at = line + 6, *end;
        for (long value; count < NS_DEPTH_MAX; at = end) {
            value = strtol(at, &end, 10);
            if (end == at)
                break;
            pids[count++] = (pid_t)value;
        }
        break;
    }
    if (status)
        fclose(status);
    return count;
}

/* The pid here of the process that /proc shows under its outer one. */
static pid_t pid_by_namespaces(const struct ledger_owner *own, const struct ledger_owner *owner)
{
    pid_t ours[NS_DEPTH_MAX], theirs[NS_DEPTH_MAX];
    uint64_t ticks;
    if (process_start_time(owner->pid, &ticks) != 0 || ticks != owner->start_ticks)
        return 0;
    unsigned depth = read_namespace_pids(own->pid, ours);
    if (depth == 0 || ours[depth - 1] != getpid() || read_namespace_pids(owner->pid, theirs) < depth)
        return 0;
    return theirs[depth - 1];
}

/* The only process here that started at that moment: /proc of a container shows no outer pids. */
static pid_t pid_by_start(const struct ledger_owner *owner)
{
    pid_t found = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        uint64_t ticks;
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (process_start_time(pid, &ticks) != 0 || ticks != owner->start_ticks)
            continue;
        if (found) {
            found = 0; /* two of them: neither can be told */
            break;
        }
        found = pid;
    }
    if (processes)
        closedir(processes);
    return found;
}

/* What the caller calls the slot's owner; the daemon's pid for it where that cannot be found out. */
static pid_t pid_here(const struct ledger_owner *own, const struct ledger_owner *owner)
{
    if (own->pid == owner->pid && own->start_ticks == owner->start_ticks)
        return getpid();
    if (own->pid == getpid())
        return owner->pid;
    pid_t pid = pid_by_namespaces(own, owner);
    if (!pid)
        pid = pid_by_start(owner);
    return pid ? pid : owner->pid;
}

/* --- Lists ----------------------------------------------------------------------------------------- */

static void ask_nvml(const struct form *form, nvmlDevice_t device, struct lists *lists)
{
    char *entries = (char *)lists->real;
    unsigned count = REAL_MAX;
    if (form->driver(device, &count, entries) != NVML_SUCCESS || count > REAL_MAX)
        return;
    lists->real_count = count;
    /* The older entries are shorter; from the last one on, each has room to grow. */
    for (unsigned i = count; form->entry_bytes != sizeof(lists->real[0]) && i-- > 0;) {
        nvmlProcessInfo_v1_t old;
        memcpy(&old, entries + i * form->entry_bytes, sizeof(old));
        lists->real[i] = (nvmlProcessInfo_v2_t){old.pid, old.usedGpuMemory, NVML_VALUE_NOT_AVAILABLE_U32,
                                                NVML_VALUE_NOT_AVAILABLE_U32};
    }
}

static const nvmlProcessInfo_v2_t *find_real(const struct lists *lists, pid_t pid)
{
    for (unsigned i = 0; i < lists->real_count; i++)
        if (lists->real[i].pid == (unsigned)pid)
            return &lists->real[i];
    return NULL;
}

static void add_slot(const struct form *form, uint32_t index, uint32_t gpu, const struct ledger_owner *own,
                     struct lists *lists)
{
    const struct ledger_usage *usage = session_slot()->ledger.usage;
    struct ledger_owner owner;
    uint64_t generation, bytes = ledger_slot_bytes(usage, index, gpu);
    if (!ledger_slot_owner(usage, index, &owner, &generation))
        return;
    const nvmlProcessInfo_v2_t *real = find_real(lists, owner.pid);
    if (!real && (!form->lists_compute || bytes == 0))
        return;
    nvmlProcessInfo_v2_t *shown = &lists->shown[lists->shown_count++];
    *shown = real ? *real
                  : (nvmlProcessInfo_v2_t){.gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_U32,
                                           .computeInstanceId = NVML_VALUE_NOT_AVAILABLE_U32};
    shown->pid = (unsigned)pid_here(own, &owner);
    if (shown->usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_U64 || shown->usedGpuMemory < bytes)
        shown->usedGpuMemory = bytes;
}

static void list_session(const struct form *form, uint32_t gpu, struct lists *lists)
{
    const struct ledger_slot *slot = session_slot();
    struct ledger_owner own;
    uint64_t generation;
    if (!ledger_slot_owner(slot->ledger.usage, slot->index, &own, &generation))
        return;
    for (uint32_t index = 0; index < LEDGER_SLOTS; index++)
        add_slot(form, index, gpu, &own, lists);
}

/* The array is as long as `*count`, which becomes the number of processes. */
static nvmlReturn_t answer(const struct form *form, const struct lists *lists, unsigned int *count,
                           void *infos)
{
    unsigned room = *count;
    *count = lists->shown_count;
    if (lists->shown_count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < lists->shown_count; i++) {
        nvmlProcessInfo_v1_t old = {lists->shown[i].pid, lists->shown[i].usedGpuMemory};
        memcpy((char *)infos + i * form->entry_bytes,
               form->entry_bytes == sizeof(old) ? (void *)&old : (void *)&lists->shown[i], form->entry_bytes);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t list(const struct form *form, nvmlDevice_t device, unsigned int *count, void *infos)
{
    uint32_t gpu = 0;
    if (!form->driver)
        return real_nvml_absent();
    enum charge_place place = count && (infos || !*count) ? hook_nvml_place(device, &gpu) : CHARGE_NOWHERE;
    if (place == CHARGE_NOWHERE)
        return form->driver(device, count, infos);
    int saved_errno = errno;
    struct lists *lists =
        mmap(NULL, sizeof(*lists), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (lists == MAP_FAILED)
        return NVML_ERROR_UNKNOWN;
    if (place == CHARGE_ON_GPU) {
        ask_nvml(form, device, lists);
        list_session(form, gpu, lists);
    }
    nvmlReturn_t result = answer(form, lists, count, infos);
    munmap(lists, sizeof(*lists));
    errno = saved_errno;
    return result;
}

#define LISTS(symbol, entry, compute)                                                                        \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, entry *infos)                              \
    {                                                                                                        \
        if (!real_nvml_ready())                                                                              \
            return real_nvml_absent();                                                                       \
        return list(&(struct form){(list_function *)(void *)real_nvml(symbol), sizeof(entry), compute},      \
                    device, count, infos);                                                                   \
    }
LISTS(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
LISTS(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, true)
LISTS(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, true)
LISTS(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
LISTS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
LISTS(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, false)
