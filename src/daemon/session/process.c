#include "daemon/session/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/process.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/peer.h"
#include "daemon/loop/round.h"
#include "daemon/session/session.h"
#include "daemon/users/descriptor_bounds.h"
#include "wire/wire.h"

/* No process makes more requests: one takes 100 ns. A process's age is known to a clock tick, 10 ms. */
#define REQUESTS_PER_USEC 10
#define REQUESTS_AT_FIRST (UINT64_C(10000) * REQUESTS_PER_USEC)

const struct session *process_session_of(const struct daemon *daemon, pid_t pid)
{
    const struct process *process;
    LIST_FOREACH (process, &daemon->processes_by_pid[(unsigned)pid % DAEMON_PID_CHAINS], chained) {
        if (process->pid == pid)
            return process->session;
    }
    return NULL;
}

bool process_is_valid(const struct process *process)
{
    const struct session *session = process->session;
    const struct process *newer = process->newer, *older = process->next;
    return process->pid > 0 && process->pidfd >= 0 && process->slot < LEDGER_SLOTS && process->number > 0 &&
           process->number <= session->processes_seen && session->process_count > 0 &&
           (newer ? newer->next == process && newer->number > process->number
                  : session->processes == process) &&
           (older ? older->newer == process && older->number < process->number
                  : session->oldest_process == process);
}

int process_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
                uint32_t slot, uint64_t generation, sd_event_io_handler_t on_death,
                struct process **process_out, struct error *error)
{
    struct process *process = calloc(1, sizeof(*process));
    if (!process) {
        close(pidfd);
        return error_set_errno(error, ENOMEM, "cannot attach process %d", (int)peer->pid);
    }
    *process = (struct process){
        .session = session,
        .pid = peer->pid,
        .uid = peer->uid,
        .start_ticks = start_ticks,
        .pidfd = pidfd,
        .slot = slot,
        .generation = generation,
        .attached_at = time(NULL),
        .attached_usec = daemon_now_usec(),
        .next = session->processes,
        .number = session->processes_seen + 1,
    };
    int result = sd_event_add_io(session->daemon->loop, &process->source, pidfd, EPOLLIN, on_death, process);
    if (result < 0) {
        close(pidfd);
        free(process);
        return error_set_errno(error, -result, "cannot watch process %d", (int)peer->pid);
    }
    /* A death must not wait behind thousands of messages. */
    sd_event_source_set_priority(process->source, SD_EVENT_PRIORITY_IMPORTANT);
    process_command(peer->pid, process->command, sizeof(process->command));
    *(session->processes ? &session->processes->newer : &session->oldest_process) = process;
    session->processes = process;
    session->process_count++;
    session->processes_seen++;
    LIST_INSERT_HEAD(&session->daemon->processes_by_pid[(unsigned)process->pid % DAEMON_PID_CHAINS], process,
                     chained);
    user_add(session->daemon, process->uid, USER_PROCESS);
    GS_CHECK(process_is_valid(process));
    *process_out = process;
    return 0;
}

struct process *process_find(const struct session *session, pid_t pid, uint64_t start_ticks, uint32_t slot,
                             uint64_t generation)
{
    for (struct process *process = session->processes; process; process = process->next)
        if (process->slot == slot)
            return process->generation == generation && process->pid == pid &&
                           process->start_ticks == start_ticks
                       ? process
                       : NULL;
    return NULL;
}

static uint64_t count_from(uint64_t before, uint64_t count, uint64_t bound)
{
    uint64_t most = count < bound ? count : bound;
    return most > before ? most - before : 0;
}

struct ledger_counts process_counts(const struct process *process, unsigned policy_gpu)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t begun_usec = process->start_ticks * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t now_usec = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    uint64_t age_usec = now_usec > begun_usec ? now_usec - begun_usec : 0;
    uint64_t bound = REQUESTS_AT_FIRST + age_usec * REQUESTS_PER_USEC;
    struct ledger_counts counts =
        ledger_slot_counts(process->session->ledger.usage, process->slot, policy_gpu);
    const struct ledger_counts *before = &process->counts_before[policy_gpu];
    return (struct ledger_counts){.granted = count_from(before->granted, counts.granted, bound),
                                  .refused = count_from(before->refused, counts.refused, bound)};
}

struct process *process_find_other(const struct session *session, pid_t pid, uint64_t start_ticks,
                                   const struct process *after)
{
    for (struct process *process = after ? after->next : session->processes; process; process = process->next)
        if (process->pid == pid && process->start_ticks == start_ticks)
            return process;
    return NULL;
}

void process_forget(struct process *process)
{
    struct session *session = process->session;
    GS_CHECK(process_is_valid(process));
    *(process->newer ? &process->newer->next : &session->processes) = process->next;
    *(process->next ? &process->next->newer : &session->oldest_process) = process->newer;
    session->process_count--;
    LIST_REMOVE(process, chained);
    user_remove(session->daemon, process->uid, USER_PROCESS);
    change_publish(session->daemon,
                   &(struct change){CHANGE_PROCESS_GONE, .session = session, .process = process},
                   "process %d has gone", (int)process->pid);
    sd_event_source_disable_unref(process->source);
    close(process->pidfd);
    free(process->unknown_functions);
    process->unknown_functions = NULL;
    round_at_end(session->daemon, &process->burial, free, process);
}
