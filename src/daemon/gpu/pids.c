#include "daemon/gpu/pids.h"

#include <errno.h>
#include <stdlib.h>

#include "base/process.h"

static int compare_pids(const void *a, const void *b)
{
    const struct known_pid *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

static struct known_pid *find(const struct known_pids *known, pid_t pid)
{
    const struct known_pid key = {.pid = pid};
    return known->count ? bsearch(&key, known->pids, known->count, sizeof(key), compare_pids) : NULL;
}

/* One for each pid: NVML lists a process once for each compute instance that it is on. */
static struct known_pids list(const struct nvml_process *processes, unsigned count)
{
    struct known_pids now = {.pids = calloc(count ? count : 1, sizeof(*now.pids))};
    if (!now.pids)
        return now;
    for (unsigned i = 0; i < count; i++)
        now.pids[i] = (struct known_pid){.pid = processes[i].pid, .bytes = processes[i].used_bytes};
    qsort(now.pids, count, sizeof(*now.pids), compare_pids);
    for (unsigned i = 0; i < count; i++) {
        if (now.count && now.pids[now.count - 1].pid == now.pids[i].pid)
            now.pids[now.count - 1].bytes += now.pids[i].bytes;
        else
            now.pids[now.count++] = now.pids[i];
    }
    return now;
}

/* What a dead process left may become less, and never more. */
static void compare(struct known_pid *now, const struct known_pid *before)
{
    int result = process_start_time(now->pid, &now->start_ticks);
    if (result == -ESRCH)
        now->start_ticks = 0;
    else if (result < 0)
        now->start_ticks = before ? before->start_ticks : 0; /* it cannot be told: as before */
    if (!now->start_ticks || !before)
        return;
    now->dead_bytes = before->start_ticks == now->start_ticks ? before->dead_bytes : before->bytes;
    if (now->dead_bytes > now->bytes)
        now->dead_bytes = now->bytes;
}

static void take_off(const struct known_pids *now, struct nvml_process *processes, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct nvml_process *process = &processes[i];
        const struct known_pid *pid = find(now, process->pid);
        uint64_t dead_bytes = 0; /* in the entries of this pid before */
        for (unsigned j = 0; pid->dead_bytes && j < i; j++)
            dead_bytes += processes[j].pid == process->pid ? processes[j].dead_bytes : 0;
        uint64_t left = pid->dead_bytes - dead_bytes;
        process->dead_bytes = left < process->used_bytes ? left : process->used_bytes;
        process->used_bytes -= process->dead_bytes;
    }
}

void pids_tell_apart(struct known_pids *known, struct nvml_process *processes, unsigned count)
{
    struct known_pids now = list(processes, count);
    if (!now.pids)
        return;
    for (unsigned i = 0; i < now.count; i++)
        compare(&now.pids[i], find(known, now.pids[i].pid));
    take_off(&now, processes, count);
    free(known->pids);
    *known = now;
}
