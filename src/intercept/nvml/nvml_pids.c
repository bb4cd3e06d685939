#include "intercept/nvml/nvml_pids.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "intercept/session/session.h"

#define NS_DEPTH_MAX 33 /* pid namespaces nest 32 deep (pid_namespaces(7)) */

/* The pids of a process, from the namespace of /proc inwards. Returns how many; 0 if /proc does not show the process. */
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

/* The caller's pid of a process that /proc shows under its outer pid; 0: /proc does not show it so. */
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

/* The only process in /proc that started at that moment, for a container, whose /proc shows no outer pids; or 0. */
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
            found = 0; /* two of them: we cannot tell which one it is */
            break;
        }
        found = pid;
    }
    if (processes)
        closedir(processes);
    return found;
}

pid_t nvml_pid_here(const struct ledger_owner *own, const struct ledger_owner *owner)
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

bool nvml_pid_own(struct ledger_owner *own)
{
    const struct ledger_slot *slot = session_slot();
    uint64_t generation;
    return ledger_slot_owner(slot->ledger.usage, slot->index, own, &generation);
}
