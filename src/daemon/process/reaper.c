#include "daemon/process/reaper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/loop/worker.h"
#include "daemon/process/driver_line.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_ledger.h"
#include "daemon/session/session_life.h"

/* See may_be_starting(). */
#define UNMAPPED_GRACE_USEC UINT64_C(5000000)
#define STOP_SECONDS 1
#define END_TEXT 160
#define END_UNSEEN "ended while no daemon ran"

/* The counts of a slot end with it: add them to those of /metrics, which must go on. */
static void keep_counts(const struct process *process)
{
    struct session *session = process->session;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        struct ledger_counts counts = process_counts(process, i);
        session->refused_before += counts.refused;
        if (session->gpus[i].gpu < 0)
            continue;
        struct gpu_counters *counters = &session->daemon->counters[session->gpus[i].gpu];
        counters->granted += counts.granted;
        counters->refused += counts.refused;
    }
}

/* "busy (4711) ended and gave 512MiB back", where it had some; its slot alone does not know its program. */
static const char *describe_end(const struct process *process, pid_t pid, const char *how, uint64_t bytes,
                                char text[static END_TEXT])
{
    char who[48], back[UNITS_BYTES_TEXT];
    if (process && *process->command)
        snprintf(who, sizeof(who), "%s (%d)", process->command, (int)pid);
    else
        snprintf(who, sizeof(who), "process %d", (int)pid);
    if (bytes)
        snprintf(text, END_TEXT, "%s %s and gave %s back", who, how, units_format_bytes(bytes, back));
    else
        snprintf(text, END_TEXT, "%s %s", who, how);
    return text;
}

/* `process` is NULL if only the process's slot tells of it. */
static void tell_of_end(struct session *session, struct process *process, pid_t pid, const char *how,
                        uint64_t bytes)
{
    char text[END_TEXT];
    change_publish(session->daemon,
                   &(struct change){CHANGE_PROCESS_ENDED, .session = session, .process = process, .pid = pid,
                                    .command = process ? process->command : NULL, .bytes = bytes},
                   "%s", describe_end(process, pid, how, bytes, text));
}

static uint64_t clear_slot(struct session *session, uint32_t slot)
{
    uint64_t recovered[LEDGER_GPUS] = {0}, sum = 0;
    ledger_slot_clear(session->ledger.usage, slot, recovered);
    for (unsigned i = 0; i < session->gpu_count; i++) {
        if (session->gpus[i].gpu < 0)
            continue;
        /* No process held more than the card has, whatever it wrote into its slot. */
        const struct gpu *card = &session->daemon->gpus[session->gpus[i].gpu];
        uint64_t bytes = recovered[i] < card->total_bytes ? recovered[i] : card->total_bytes;
        session->daemon->counters[session->gpus[i].gpu].recovered_bytes += bytes;
        sum += bytes;
    }
    return sum;
}

static void remove_process(struct process *process, const char *why)
{
    struct session *session = process->session;
    uint64_t bytes = clear_slot(session, process->slot);
    session_ledger_is_broken(session);
    char text[END_TEXT];
    log_info("session %s: %s", session->id, describe_end(process, process->pid, why, bytes, text));
    tell_of_end(session, process, process->pid, why, bytes);
    keep_counts(process); /* those in the slot stay until another process has it */
    process_forget(process);
    driver_line_publish(session);
    session_end_when_over(session);
}

static bool was_refused_memory(const struct process *process)
{
    for (unsigned i = 0; i < process->session->gpu_count; i++)
        if (process_counts(process, i).refused)
            return true;
    return false;
}

static int on_death(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct process *process = userdata;
    process->session->daemon->deaths++;
    process->session->daemon->refused_deaths += was_refused_memory(process);
    change_publish(process->session->daemon,
                   &(struct change){CHANGE_PROCESS_DIED, .session = process->session, .process = process},
                   "process %d died", (int)process->pid);
    driver_line_died(process->session, process->slot, process->pid, process->start_ticks);
    remove_process(process, "ended");
    return 0;
}

/* A connected process that was never seen to map its ledger may have been stopped just before it did that. */
static bool may_be_starting(const struct process *process)
{
    return process->connection && !process->was_mapped &&
           daemon_now_usec() - process->attached_usec < UNMAPPED_GRACE_USEC;
}

static void conclude(struct process *process, enum ledgers_mapped mapped)
{
    process->was_mapped |= mapped == LEDGERS_MAPPED;
    if (mapped == LEDGERS_NOT_MAPPED && !may_be_starting(process))
        remove_process(process, "runs another program now");
}

bool reaper_remove_if_execed(struct process *process)
{
    enum ledgers_mapped mapped = ledgers_is_mapped_by(&process->session->ledger, process->pid);
    process->was_mapped |= mapped == LEDGERS_MAPPED;
    if (mapped != LEDGERS_NOT_MAPPED)
        return false;
    remove_process(process, "runs another program now");
    return true;
}

void reaper_hung_up(struct process *process)
{
    process->connection = NULL;
    reaper_remove_if_execed(process);
}

int reaper_add(struct session *session, const struct peer *peer, uint64_t start_ticks, int pidfd,
               uint32_t slot, uint64_t generation, struct process **process, struct error *error)
{
    return process_add(session, peer, start_ticks, pidfd, slot, generation, on_death, process, error);
}

/* --- After a restart ------------------------------------------------------------------------------- */

/* The user of the process: a rule may have let in another user than the session's owner. */
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
    for (unsigned i = 0; i < session->gpu_count; i++)
        process->counts_before[i] = process_counts(process, i);
    if (record)
        process->attached_at = record->attached_at;
    else
        change_publish(session->daemon,
                       &(struct change){CHANGE_PROCESS_RETURNED, .session = session, .process = process},
                       "process %d is found in its slot", (int)process->pid);
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
        /* Believe the state file more than the slot: no process of the session can have written the file. */
        bool is_current = record && record->generation == generation;
        bool is_true = !is_current || (record->pid == owner.pid && record->start_ticks == owner.start_ticks);
        int result =
            is_true ? restore_process(session, slot, &owner, generation, is_current ? record : NULL, error)
                    : -ESRCH;
        if (result == 0)
            continue;
        if (error_is_scarcity(result))
            return result;
        driver_line_died(session, slot, owner.pid, owner.start_ticks);
        uint64_t bytes = clear_slot(session, slot);
        char text[END_TEXT];
        log_info("session %s: %s", session->id, describe_end(NULL, owner.pid, END_UNSEEN, bytes, text));
        tell_of_end(session, NULL, owner.pid, END_UNSEEN, bytes);
    }
    /* A process that has exec'd does not map the ledger, and neither does one that a false slot named: free their
     * slots. */
    for (struct process *process = session->processes, *next; process; process = next) {
        next = process->next;
        reaper_remove_if_execed(process);
    }
    return 0;
}

/* --- The slow round -------------------------------------------------------------------------------- */

/* One process at a time, in a helper thread, because a process may have very many mappings. */
struct survey {
    struct daemon *daemon;
    /* The last process looked at, by session and slot: a pointer could dangle. */
    char session_id[SESSION_ID_TEXT];
    uint32_t slot;
    struct worker *worker;
    sd_event_source *timer;
    bool is_looking;
};

struct survey_job {
    struct worker_job job;
    struct survey *survey;
    char session_id[SESSION_ID_TEXT];
    uint32_t slot;
    pid_t pid;
    uint64_t start_ticks, generation;
    struct ledgers_maps_name name;
    enum ledgers_mapped mapped;
};

static void look_in_maps(struct worker_job *first, void *context)
{
    for (struct worker_job *at = first; at; at = at->next) {
        struct survey_job *job = (struct survey_job *)at;
        job->mapped = ledgers_look_in_maps(&job->name, job->pid, 0);
    }
}

static void on_looked(struct worker_job *worker_job)
{
    struct survey_job *job = (struct survey_job *)worker_job;
    struct survey *survey = job->survey;
    struct session *session = session_find_id(survey->daemon, job->session_id);
    struct process *process =
        session ? process_find(session, job->pid, job->start_ticks, job->slot, job->generation) : NULL;
    survey->is_looking = false;
    if (process)
        conclude(process, job->mapped);
    free(job);
}

static void begin_look(struct survey *survey, struct process *process)
{
    struct survey_job *job = calloc(1, sizeof(*job));
    if (!job)
        return;
    *job = (struct survey_job){
        .job.done = on_looked,
        .survey = survey,
        .slot = process->slot,
        .pid = process->pid,
        .start_ticks = process->start_ticks,
        .generation = process->generation,
        .name = process->session->ledger.maps_name,
    };
    strcpy(job->session_id, process->session->id);
    survey->is_looking = true;
    worker_submit(survey->worker, &job->job);
}

static struct process *next_process(struct survey *survey)
{
    struct session *session = session_find_id(survey->daemon, survey->session_id);
    struct process *best = NULL;
    for (struct process *at = session ? session->processes : NULL; at; at = at->next)
        if (at->slot > survey->slot && (!best || at->slot < best->slot))
            best = at;
    session = session ? session->next : NULL;
    for (unsigned tries = 0; !best && tries <= survey->daemon->session_count; tries++) {
        if (!session)
            session = survey->daemon->sessions;
        for (struct process *at = session ? session->processes : NULL; at; at = at->next)
            if (!best || at->slot < best->slot)
                best = at;
        session = session ? session->next : NULL;
    }
    return best;
}

static int on_survey(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct survey *survey = userdata;
    struct daemon *daemon = survey->daemon;
    uint64_t now = daemon_now_usec(), processes = 0;
    struct process *process = survey->is_looking ? NULL : next_process(survey);
    if (process) {
        strcpy(survey->session_id, process->session->id);
        survey->slot = process->slot;
        begin_look(survey, process);
    }
    for (const struct session *session = daemon->sessions; session; session = session->next)
        processes += session->process_count;
    uint64_t pause = daemon->config.daemon.recovery_usec / (processes ? processes : 1);
    sd_event_source_set_time(source, now + (pause < 1000 ? 1000 : pause));
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int reaper_start(struct daemon *daemon, struct error *error)
{
    struct survey *survey = calloc(1, sizeof(*survey));
    if (!survey)
        return error_set_errno(error, ENOMEM, "cannot check processes at intervals");
    survey->daemon = daemon;
    int result = worker_start(&survey->worker, daemon->loop, "gpusliced-maps", look_in_maps, NULL, error);
    if (result < 0) {
        free(survey);
        return result;
    }
    daemon->survey = survey;
    result = sd_event_add_time_relative(daemon->loop, &survey->timer, CLOCK_MONOTONIC,
                                        daemon->config.daemon.recovery_usec, 0, on_survey, survey);
    return result < 0 ? error_set_errno(error, -result, "cannot check processes at intervals") : 0;
}

void reaper_stop(struct daemon *daemon)
{
    struct survey *survey = daemon->survey;
    if (!survey)
        return;
    sd_event_source_disable_unref(survey->timer);
    daemon->survey = NULL;
    if (worker_stop(survey->worker, STOP_SECONDS))
        free(survey);
}
