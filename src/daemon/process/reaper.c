#include "daemon/process/reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/gpu/driver_line.h"
#include "daemon/gpu/gpu.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/descriptor_bounds.h"
#include "daemon/loop/log.h"
#include "daemon/process/attach.h"
#include "daemon/process/peer.h"
#include "daemon/schedule/agents.h"
#include "daemon/session/session.h"
#include "daemon/store/store.h"
#include "wire/wire.h"

/* A connected process that was never seen to map its ledger has perhaps been stopped just before it did. */
#define UNMAPPED_GRACE_USEC UINT64_C(5000000)

static void read_command(pid_t pid, char command[static 16])
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, command, 15) : -1;
    command[length > 0 ? length : 0] = '\0';
    command[strcspn(command, "\n")] = '\0';
}

static int on_death(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct process *process = userdata;
    process->session->daemon->deaths++;
    driver_line_died(process->session, process->pid, process->start_ticks);
    reaper_remove(process, "died");
    return 0;
}

static struct process **chain_of(struct daemon *daemon, pid_t pid)
{
    return &daemon->processes_by_pid[(unsigned)pid % DAEMON_PID_CHAINS];
}

const struct session *reaper_session_of(const struct daemon *daemon, pid_t pid)
{
    const struct process *process = daemon->processes_by_pid[(unsigned)pid % DAEMON_PID_CHAINS];
    while (process && process->pid != pid)
        process = process->next_of_chain;
    return process ? process->session : NULL;
}

int reaper_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
               uint32_t slot, uint64_t generation, struct process **process_out, struct error *error)
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
    };
    int result = sd_event_add_io(session->daemon->loop, &process->source, pidfd, EPOLLIN, on_death, process);
    if (result < 0) {
        close(pidfd);
        free(process);
        return error_set_errno(error, -result, "cannot watch process %d", (int)peer->pid);
    }
    /* A death is not to wait behind thousands of messages. */
    sd_event_source_set_priority(process->source, SD_EVENT_PRIORITY_IMPORTANT);
    read_command(peer->pid, process->command);
    session->processes = process;
    session->process_count++;
    struct process **chain = chain_of(session->daemon, process->pid);
    process->next_of_chain = *chain;
    *chain = process;
    user_add(session->daemon, process->uid, USER_PROCESS);
    *process_out = process;
    return 0;
}

struct process *reaper_find(const struct session *session, pid_t pid, uint64_t start_ticks, uint32_t slot,
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

bool reaper_is_outdated(const struct process *process)
{
    return process->wire_version && process->wire_version < WIRE_VERSION;
}

struct process *reaper_find_other(const struct session *session, pid_t pid, uint64_t start_ticks,
                                  const struct process *after)
{
    for (struct process *process = after ? after->next : session->processes; process; process = process->next)
        if (process->pid == pid && process->start_ticks == start_ticks)
            return process;
    return NULL;
}

void reaper_forget(struct process *process)
{
    struct session *session = process->session;
    struct process **at = &session->processes;
    while (*at != process)
        at = &(*at)->next;
    *at = process->next;
    session->process_count--;
    for (at = chain_of(session->daemon, process->pid); *at != process;)
        at = &(*at)->next_of_chain;
    *at = process->next_of_chain;
    user_remove(session->daemon, process->uid, USER_PROCESS);
    if (process->measurement)
        gpu_measure_cancel(process->measurement);
    if (process->connection)
        attach_drop(process->connection);
    if (process->agent)
        agents_drop(process->agent);
    sd_event_source_disable_unref(process->source);
    close(process->pidfd);
    free(process->shares);
    free(process);
}

/* The counts of a slot end with it; those of /metrics go on. */
static void keep_counts(struct session *session, uint32_t slot)
{
    for (unsigned i = 0; i < session->gpu_count; i++) {
        struct ledger_counts counts = ledger_slot_counts(session->ledger.usage, slot, i);
        session->refused_before += counts.refused;
        if (session->gpus[i].gpu < 0)
            continue;
        struct gpu_counters *counters = &session->daemon->counters[session->gpus[i].gpu];
        counters->granted += counts.granted;
        counters->refused += counts.refused;
    }
}

static void tell_of_end(struct session *session, pid_t pid, const char *command, const char *how,
                        uint64_t bytes)
{
    change_publish(session->daemon,
                   &(struct change){CHANGE_PROCESS_ENDED, .session = session, .pid = pid, .command = command,
                                    .bytes = bytes},
                   "process %d %s; %llu bytes are back", (int)pid, how, (unsigned long long)bytes);
}

static uint64_t clear_slot(struct session *session, uint32_t slot)
{
    uint64_t recovered[LEDGER_GPUS] = {0}, sum = 0;
    ledger_slot_clear(session->ledger.usage, slot, recovered);
    for (unsigned i = 0; i < session->gpu_count; i++) {
        sum += recovered[i];
        if (session->gpus[i].gpu >= 0)
            session->daemon->counters[session->gpus[i].gpu].recovered_bytes += recovered[i];
    }
    return sum;
}

void reaper_remove(struct process *process, const char *why)
{
    struct session *session = process->session;
    keep_counts(session, process->slot);
    uint64_t bytes = clear_slot(session, process->slot);
    session_is_broken(session);
    log_info("session %s: process %d (%s) %s; %llu bytes are back", session->id, (int)process->pid,
             process->command, why, (unsigned long long)bytes);
    tell_of_end(session, process->pid, process->command, why, bytes);
    store_delete_process(process);
    reaper_forget(process);
    driver_line_publish(session);
    session_end_if_over(session);
}

bool reaper_remove_if_execed(struct process *process)
{
    enum ledgers_mapped mapped = ledgers_is_mapped_by(&process->session->ledger, process->pid);
    process->was_mapped |= mapped == LEDGERS_MAPPED;
    if (mapped != LEDGERS_NOT_MAPPED)
        return false;
    reaper_remove(process, "runs another program now");
    return true;
}

void reaper_hung_up(struct process *process)
{
    process->connection = NULL;
    reaper_remove_if_execed(process);
}

/* --- After a restart ------------------------------------------------------------------------------- */

/* A rule may have let in a process of another user than the session's owner. */
static uid_t uid_of(pid_t pid, uid_t otherwise)
{
    char path[32];
    struct stat status;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &status) == 0 ? status.st_uid : otherwise;
}

static int restore_process(struct session *session, uint32_t slot, const struct ledger_owner *owner,
                           uint64_t generation, const struct recorded_process *record, struct error *error)
{
    int pidfd = peer_open(owner->pid, owner->start_ticks);
    struct process *process;
    if (pidfd < 0)
        return error_set_errno(error, -pidfd, "cannot watch process %d", (int)owner->pid);
    struct peer peer = {.pid = owner->pid,
                        .uid = session->has_own_socket ? session->owner : uid_of(owner->pid, session->owner)};
    int result = reaper_add(session, &peer, owner->start_ticks, pidfd, slot, generation, &process, error);
    if (result < 0)
        return result;
    process->attached_usec = 0;
    if (record) {
        process->attached_at = record->attached_at;
        process->wire_version = record->wire_version;
    } else {
        store_put_process(process);
    }
    return 0;
}

int reaper_restore(struct session *session, const struct recorded_process *recorded, unsigned count,
                   struct error *error)
{
    const struct recorded_process *by_slot[LEDGER_SLOTS] = {NULL};
    for (unsigned i = 0; i < count; i++)
        by_slot[recorded[i].slot] = &recorded[i];
    for (uint32_t slot = 0; slot < LEDGER_SLOTS; slot++) {
        struct ledger_owner owner;
        uint64_t generation;
        const struct recorded_process *record = by_slot[slot];
        if (!ledger_slot_owner(session->ledger.usage, slot, &owner, &generation))
            continue;
        /* What the state file says cannot have been written by a process of the session. */
        bool is_current = record && record->generation == generation;
        bool is_true = !is_current || (record->pid == owner.pid && record->start_ticks == owner.start_ticks);
        int result =
            is_true ? restore_process(session, slot, &owner, generation, is_current ? record : NULL, error)
                    : -ESRCH;
        if (result == 0)
            continue;
        if (error_is_scarcity(result))
            return result;
        uint64_t bytes = clear_slot(session, slot);
        driver_line_died(session, owner.pid, owner.start_ticks);
        log_info("session %s: process %d died while no daemon ran; %llu bytes are back", session->id,
                 (int)owner.pid, (unsigned long long)bytes);
        tell_of_end(session, owner.pid, NULL, "died while no daemon ran", bytes);
    }
    /* Those that exec'd, or whose slot named somebody else, do not map it. */
    for (struct process *process = session->processes, *next; process; process = next) {
        next = process->next;
        reaper_remove_if_execed(process); /* and the session, if it was its last */
    }
    return 0;
}

/* --- The slow round -------------------------------------------------------------------------------- */

/* One process at a time, so that reading a thousand long maps never holds the loop up. */
struct round {
    struct daemon *daemon;
    char session_id[SESSION_ID_TEXT]; /* looked at last; nothing is kept that may go away */
    uint32_t slot;
};

static struct process *round_next(struct round *round)
{
    struct session *session = session_find_id(round->daemon, round->session_id);
    struct process *best = NULL;
    for (struct process *at = session ? session->processes : NULL; at; at = at->next)
        if (at->slot > round->slot && (!best || at->slot < best->slot))
            best = at;
    session = session ? session->next : NULL;
    for (unsigned tries = 0; !best && tries <= round->daemon->session_count; tries++) {
        if (!session)
            session = round->daemon->sessions;
        for (struct process *at = session ? session->processes : NULL; at; at = at->next)
            if (!best || at->slot < best->slot)
                best = at;
        session = session ? session->next : NULL;
    }
    return best;
}

static int on_round(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct round *round = userdata;
    struct daemon *daemon = round->daemon;
    uint64_t now = daemon_now_usec(), processes = 0;
    struct process *process = round_next(round);
    if (process) {
        strcpy(round->session_id, process->session->id);
        round->slot = process->slot;
        bool may_be_starting =
            process->connection && !process->was_mapped && now - process->attached_usec < UNMAPPED_GRACE_USEC;
        if (may_be_starting)
            process->was_mapped =
                ledgers_is_mapped_by(&process->session->ledger, process->pid) == LEDGERS_MAPPED;
        else
            reaper_remove_if_execed(process);
    }
    for (const struct session *session = daemon->sessions; session; session = session->next)
        processes += session->process_count;
    uint64_t pause = daemon->config.daemon.recovery_usec / (processes ? processes : 1);
    sd_event_source_set_time(source, now + (pause < 1000 ? 1000 : pause));
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int reaper_start(struct daemon *daemon, struct error *error)
{
    static struct round round;
    round = (struct round){.daemon = daemon};
    int result = sd_event_add_time_relative(daemon->loop, NULL, CLOCK_MONOTONIC,
                                            daemon->config.daemon.recovery_usec, 0, on_round, &round);
    return result < 0 ? error_set_errno(error, -result, "cannot start the reaper's round") : 0;
}
