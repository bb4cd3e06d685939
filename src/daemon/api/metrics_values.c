#include "daemon/api/metrics_values.h"

#include <time.h>
#include <unistd.h>

#include "daemon/gpu/card.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/daemon.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves.h"
#include "daemon/schedule/schedule.h"
#include "daemon/schedule/standing.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

static uint64_t sessions_active(const struct subject *subject)
{
    uint64_t count = 0;
    for (const struct session *session = subject->daemon->sessions; session; session = session->next)
        count += session->state == SESSION_ACTIVE;
    return count;
}

static uint64_t processes_attached(const struct subject *subject)
{
    uint64_t count = 0;
    for (const struct session *session = subject->daemon->sessions; session; session = session->next)
        count += session->process_count;
    return count;
}

static uint64_t attaches(const struct subject *subject)
{
    return subject->daemon->attaches;
}

static uint64_t refused_attaches(const struct subject *subject)
{
    return subject->daemon->refused_attaches;
}

static uint64_t deaths(const struct subject *subject)
{
    return subject->daemon->deaths;
}

static uint64_t refused_deaths(const struct subject *subject)
{
    return subject->daemon->refused_deaths;
}

static uint64_t failed_writes(const struct subject *subject)
{
    return subject->daemon->failed_writes;
}

static uint64_t queue_oldest_wait(const struct subject *subject)
{
    int64_t now = time(NULL), oldest = now;
    for (const struct session *session = subject->daemon->sessions; session; session = session->next)
        if (session->state == SESSION_QUEUED && session->created_at < oldest)
            oldest = session->created_at;
    return (uint64_t)(now - oldest);
}

static uint64_t host_memory_bytes(const struct subject *subject)
{
    return moves_host_memory_bytes(subject->daemon);
}

static uint64_t host_memory_limit(const struct subject *subject)
{
    return arena_bound_bytes(subject->daemon);
}

static uint64_t config_refused(const struct subject *subject)
{
    return subject->daemon->is_config_refused || subject->daemon->are_sessions_refused;
}

static uint64_t broken_ledgers(const struct subject *subject)
{
    return subject->daemon->broken_ledgers;
}

static uint64_t long_holds(const struct subject *subject)
{
    return subject->daemon->long_holds;
}

static uint64_t longest_hold_nano(const struct subject *subject)
{
    return subject->daemon->longest_hold_usec * 1000;
}

static uint64_t start_time(const struct subject *subject)
{
    return (uint64_t)subject->daemon->started_at;
}

static uint64_t one(const struct subject *subject)
{
    return 1;
}

static uint64_t sessions_queued(const struct subject *subject)
{
    uint64_t count = 0;
    for (const struct session *session = subject->daemon->sessions; session; session = session->next)
        count += session->state == SESSION_QUEUED;
    return count;
}

static uint64_t daemon_cpu_nano(const struct subject *subject)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * NANO + (uint64_t)used.tv_nsec;
}

static uint64_t daemon_resident_bytes(const struct subject *subject)
{
    unsigned long long pages;
    FILE *file = fopen("/proc/self/statm", "re");
    bool is_read = file && fscanf(file, "%*u %llu", &pages) == 1;
    if (file)
        fclose(file);
    return is_read ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : METRIC_UNKNOWN;
}

/* At most what the card has (or the limit, if that is more), whatever the session's processes wrote into its ledger. */
static uint64_t used_of(const struct session *session, unsigned policy_gpu)
{
    const struct session_gpu *gpu = &session->gpus[policy_gpu];
    uint64_t total = gpu->gpu >= 0 ? session->daemon->gpus[gpu->gpu].total_bytes : 0;
    uint64_t used = session_used(session, policy_gpu),
             most = total > gpu->limit_bytes ? total : gpu->limit_bytes;
    return used < most ? used : most;
}

/* What all sessions use on the subject's GPU, and their counts. */
static void sum_over_gpu(const struct subject *subject, uint64_t *used, struct ledger_counts *counts)
{
    for (const struct session *session = subject->daemon->sessions; session; session = session->next) {
        for (unsigned i = 0; i < session->gpu_count; i++) {
            if (session->gpus[i].gpu != (int)subject->gpu)
                continue;
            *used += used_of(session, i);
            for (const struct process *at = session->processes; at; at = at->next) {
                struct ledger_counts slot = process_counts(at, i);
                counts->granted += slot.granted;
                counts->refused += slot.refused;
            }
        }
    }
}

static uint64_t used_bytes(const struct subject *subject)
{
    uint64_t used = 0;
    struct ledger_counts counts = {0};
    sum_over_gpu(subject, &used, &counts);
    return used;
}

/* The sum over all sessions that have the subject's GPU. */
static uint64_t sum_over_sessions(const struct subject *subject,
                                  uint64_t (*value)(const struct session *session, unsigned policy_gpu))
{
    uint64_t sum = 0;
    for (const struct session *session = subject->daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            if (session->gpus[i].gpu == (int)subject->gpu &&
                __builtin_add_overflow(sum, value(session, i), &sum))
                return UINT64_MAX;
    return sum;
}

static uint64_t driver_bytes_of(const struct session *session, unsigned policy_gpu)
{
    return session->gpus[policy_gpu].driver_bytes;
}

static uint64_t orphan_bytes_of(const struct session *session, unsigned policy_gpu)
{
    return session->gpus[policy_gpu].orphan_bytes;
}

static uint64_t driver_bytes(const struct subject *subject)
{
    return sum_over_sessions(subject, driver_bytes_of);
}

static uint64_t orphan_bytes(const struct subject *subject)
{
    return sum_over_sessions(subject, orphan_bytes_of);
}

static uint64_t granted(const struct subject *subject)
{
    uint64_t used = 0;
    struct ledger_counts counts = {0};
    sum_over_gpu(subject, &used, &counts);
    return subject->daemon->counters[subject->gpu].granted + counts.granted;
}

static uint64_t refused(const struct subject *subject)
{
    uint64_t used = 0;
    struct ledger_counts counts = {0};
    sum_over_gpu(subject, &used, &counts);
    return subject->daemon->counters[subject->gpu].refused + counts.refused;
}

static uint64_t recovered_bytes(const struct subject *subject)
{
    return subject->daemon->counters[subject->gpu].recovered_bytes;
}

static uint64_t reserved_bytes(const struct subject *subject)
{
    return promises_reserved_bytes(subject->daemon, subject->gpu);
}

static uint64_t gpu_healthy(const struct subject *subject)
{
    return subject->daemon->gpus[subject->gpu].healthy;
}

static uint64_t gpu_total(const struct subject *subject)
{
    return subject->daemon->gpus[subject->gpu].total_bytes;
}

static uint64_t gpu_kept(const struct subject *subject)
{
    return subject->daemon->gpus[subject->gpu].kept_bytes;
}

static uint64_t gpu_used(const struct subject *subject)
{
    return subject->daemon->gpus[subject->gpu].used_bytes;
}

static uint64_t gpu_busy_nano(const struct subject *subject)
{
    int percent = subject->daemon->gpus[subject->gpu].busy_percent;
    return percent < 0 ? METRIC_UNKNOWN : (uint64_t)percent * (NANO / 100);
}

static uint64_t gpu_celsius(const struct subject *subject)
{
    int celsius = subject->daemon->gpus[subject->gpu].heat.celsius;
    return celsius < 0 ? METRIC_UNKNOWN : (uint64_t)celsius;
}

static uint64_t gpu_power_nano(const struct subject *subject)
{
    int milliwatts = subject->daemon->gpus[subject->gpu].heat.milliwatts;
    return milliwatts < 0 ? METRIC_UNKNOWN : (uint64_t)milliwatts * (NANO / 1000);
}

static uint64_t gpu_uncovered_bytes(const struct subject *subject)
{
    return promises_outside_bytes(subject->daemon, subject->gpu);
}

static uint64_t gpu_uncovered_processes(const struct subject *subject)
{
    const struct gpu *card = &subject->daemon->gpus[subject->gpu];
    uint64_t count = 0;
    for (unsigned i = 0; i < card->process_count; i++)
        count += !process_session_of(subject->daemon, card->processes[i].pid);
    return count;
}

static uint64_t gpu_context(const struct subject *subject)
{
    return subject->daemon->gpus[subject->gpu].context_bytes;
}

static uint64_t session_used_bytes(const struct subject *subject)
{
    return session_used(subject->session, subject->policy_gpu);
}

static uint64_t session_driver_bytes(const struct subject *subject)
{
    return subject->session->gpus[subject->policy_gpu].driver_bytes;
}

static uint64_t session_orphan_bytes(const struct subject *subject)
{
    return subject->session->gpus[subject->policy_gpu].orphan_bytes;
}

static uint64_t session_limit_bytes(const struct subject *subject)
{
    return subject->session->gpus[subject->policy_gpu].limit_bytes;
}

static uint64_t session_processes(const struct subject *subject)
{
    return subject->session->process_count;
}

static uint64_t session_movable_bytes(const struct subject *subject)
{
    return moves_standing(subject->session).memory.movable_bytes;
}

static uint64_t session_waits_for_room(const struct subject *subject)
{
    return moves_standing(subject->session).waits;
}

static uint64_t session_evicted_bytes(const struct subject *subject)
{
    return moves_standing(subject->session).memory.evicted_bytes;
}

static uint64_t session_unmovable_bytes(const struct subject *subject)
{
    const struct moves_standing standing = moves_standing(subject->session);
    return wire_stays_sum(standing.memory.stays_bytes);
}

static uint64_t session_partly_away(const struct subject *subject)
{
    return moves_standing(subject->session).state == MOVE_PARTLY_AWAY;
}

static uint64_t session_host_memory_bytes(const struct subject *subject)
{
    return moves_standing(subject->session).arena_bytes;
}

/* Billionths, of a second or of a whole. */
static uint64_t quantum_nano(const struct subject *subject)
{
    const struct arbiter *arbiter = schedule_arbiter(subject->daemon);
    return arbiter ? arbiter_quantum(arbiter) : 0;
}

static uint64_t handover_gap_nano(const struct subject *subject)
{
    const struct arbiter *arbiter = schedule_arbiter(subject->daemon);
    return arbiter ? arbiter_gap(arbiter) : 0;
}

static uint64_t gpu_has_shares(const struct subject *subject)
{
    return schedule_mode(subject->daemon, subject->gpu) != ARBITER_MODE_FREE;
}

static uint64_t gpu_has_turns(const struct subject *subject)
{
    return schedule_mode(subject->daemon, subject->gpu) == ARBITER_MODE_SHARES;
}

static uint64_t gpu_has_memory_turns(const struct subject *subject)
{
    return moves_takes_turns(subject->daemon, subject->gpu);
}

static uint64_t gpu_handovers(const struct subject *subject)
{
    const struct arbiter *arbiter = schedule_arbiter(subject->daemon);
    return arbiter ? arbiter_handovers(arbiter, subject->gpu) : 0;
}

static uint64_t session_gate_wait_nano(const struct subject *subject)
{
    return standing_of(subject->session).waited_ns;
}

static uint64_t session_overruns(const struct subject *subject)
{
    return standing_of(subject->session).overruns;
}

static uint64_t session_undrainable(const struct subject *subject)
{
    return standing_of(subject->session).is_undrainable;
}

static uint64_t session_gpu_time_nano(const struct subject *subject)
{
    return standing_used_ns(subject->session, subject->policy_gpu);
}

static uint64_t session_nvml_nano(const struct subject *subject)
{
    return subject->session->gpus[subject->policy_gpu].nvml_ns;
}

static uint64_t session_held_nano(const struct subject *subject)
{
    return standing_held_ns(subject->session, subject->policy_gpu);
}

static uint64_t session_progress_nano(const struct subject *subject)
{
    struct standing standing = standing_of(subject->session);
    bool is_measured = standing.waits || (standing.lease != LEASE_NONE && standing.lease != LEASE_FREE);
    return is_measured ? (uint64_t)(standing.progress * NANO) : NANO;
}

static uint64_t session_takes_turns(const struct subject *subject)
{
    return standing_of(subject->session).takes_turns;
}

static uint64_t session_achieved_nano(const struct subject *subject)
{
    return (uint64_t)(standing_achieved_ratio(subject->session, subject->policy_gpu) * NANO);
}

static uint64_t session_min_nano(const struct subject *subject)
{
    return subject->session->properties.compute.min * (NANO / SHARE_WHOLE);
}

static uint64_t session_max_nano(const struct subject *subject)
{
    return subject->session->properties.compute.max * (NANO / SHARE_WHOLE);
}

/* --- The rows -------------------------------------------------------------------------------------- */

const struct metric metrics[] = {
#define METRIC(name, type, scope, value, unit, help) {#name, #type, help, scope, value, METRIC_##unit},
#include "daemon/api/metrics.def"
#undef METRIC
};
const unsigned metrics_count = sizeof(metrics) / sizeof(metrics[0]);

const struct metric metrics_gslice_used = {.name = "gpuslice_used_bytes_total",
                                           .type = "gauge",
                                           .help = "Device memory that sessions use, over all GPUs.",
                                           .value = used_bytes};
