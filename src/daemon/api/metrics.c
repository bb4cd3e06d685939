#include "daemon/api/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpu/card.h"
#include "daemon/loop/daemon.h"
#include "daemon/schedule/agents.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

#define NANO UINT64_C(1000000000)

/* One value of one metric: of the daemon, of a GPU, or of a session on one of its GPUs. */
struct subject {
    const struct daemon *daemon;
    unsigned gpu;
    const struct session *session;
    unsigned policy_gpu;
};

/* What a metric has a series for. */
enum scope { OF_DAEMON, OF_GPU, OF_SESSION, OF_SESSION_GPU };

/* --- Values ---------------------------------------------------------------------------------------- */

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

/* Call `add` for each process of each session on the subject's GPU. */
static void sum_over_gpu(const struct subject *subject, uint64_t *used, struct ledger_counts *counts)
{
    for (const struct session *session = subject->daemon->sessions; session; session = session->next) {
        for (unsigned i = 0; i < session->gpu_count; i++) {
            if (session->gpus[i].gpu != (int)subject->gpu)
                continue;
            *used += session_used(session, i);
            for (const struct process *at = session->processes; at; at = at->next) {
                struct ledger_counts slot = ledger_slot_counts(session->ledger.usage, at->slot, i);
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

/* Over all sessions that have the subject's GPU. */
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

static uint64_t gpu_used(const struct subject *subject)
{
    return subject->daemon->gpus[subject->gpu].used_bytes;
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

/* Billionths, of a second or of a whole. */
static uint64_t quantum_nano(const struct subject *subject)
{
    const struct arbiter *arbiter = agents_arbiter(subject->daemon);
    return arbiter ? arbiter_quantum(arbiter) : 0;
}

static uint64_t handover_gap_nano(const struct subject *subject)
{
    const struct arbiter *arbiter = agents_arbiter(subject->daemon);
    return arbiter ? arbiter_gap(arbiter) : 0;
}

static uint64_t gpu_has_shares(const struct subject *subject)
{
    const struct arbiter *arbiter = agents_arbiter(subject->daemon);
    return arbiter && arbiter_mode(arbiter, subject->gpu) == ARBITER_MODE_SHARES;
}

static uint64_t gpu_handovers(const struct subject *subject)
{
    const struct arbiter *arbiter = agents_arbiter(subject->daemon);
    return arbiter ? arbiter_handovers(arbiter, subject->gpu) : 0;
}

static uint64_t session_gate_wait_nano(const struct subject *subject)
{
    return agents_standing(subject->session).waited_ns;
}

static uint64_t session_overruns(const struct subject *subject)
{
    return agents_standing(subject->session).overruns;
}

static uint64_t session_undrainable(const struct subject *subject)
{
    return agents_standing(subject->session).is_undrainable;
}

static uint64_t session_gpu_time_nano(const struct subject *subject)
{
    return agents_used_ns(subject->session, subject->policy_gpu);
}

static uint64_t session_achieved_nano(const struct subject *subject)
{
    return (uint64_t)(agents_achieved_ratio(subject->session, subject->policy_gpu) * NANO);
}

static uint64_t session_min_nano(const struct subject *subject)
{
    return subject->session->compute.min * (NANO / SHARE_WHOLE);
}

static uint64_t session_max_nano(const struct subject *subject)
{
    return subject->session->compute.max * (NANO / SHARE_WHOLE);
}

/* --- The table ------------------------------------------------------------------------------------- */

enum unit { METRIC_WHOLE, METRIC_NANO };

static const struct metric {
    const char *name, *type, *help;
    enum scope scope;
    uint64_t (*value)(const struct subject *subject);
    enum unit unit;
} metrics[] = {
#define METRIC(name, type, scope, value, unit, help) {#name, #type, help, scope, value, METRIC_##unit},
#include "daemon/api/metrics.def"
#undef METRIC
};

/* What goes behind the labels. */
static void write_value(FILE *out, const struct metric *metric, const struct subject *subject)
{
    uint64_t value = metric->value(subject);
    if (metric->unit == METRIC_NANO)
        fprintf(out, " %" PRIu64 ".%09" PRIu64 "\n", value / NANO, value % NANO);
    else
        fprintf(out, " %" PRIu64 "\n", value);
}

/* gslice has one series of these, without labels, and one metric more. */
static bool is_one_series(const struct daemon *daemon, const struct metric *metric)
{
    static const char *const names[] = {"gpuslice_alloc_events_total", "gpuslice_denied_alloc_total",
                                        "gpuslice_recovered_bytes_total"};
    for (size_t i = 0; daemon->config.daemon.metrics_as_gslice && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(metric->name, names[i]) == 0)
            return true;
    return false;
}

static uint64_t sum_over_gpus(const struct metric *metric, struct subject *subject)
{
    uint64_t sum = 0;
    for (subject->gpu = 0; subject->gpu < subject->daemon->gpu_count; subject->gpu++)
        sum += metric->value(subject);
    return sum;
}

static void write_gslice_total(FILE *out, const struct daemon *daemon)
{
    struct subject subject = {.daemon = daemon};
    const struct metric used = {.name = "gpuslice_used_bytes_total", .value = used_bytes};
    if (daemon->config.daemon.metrics_as_gslice)
        fprintf(out,
                "# HELP %s Device memory that sessions use, over all GPUs.\n# TYPE %s gauge\n%s %" PRIu64
                "\n",
                used.name, used.name, used.name, sum_over_gpus(&used, &subject));
}

static void write_gpus(FILE *out, const struct metric *metric, struct subject *subject)
{
    if (is_one_series(subject->daemon, metric)) {
        fprintf(out, "%s %" PRIu64 "\n", metric->name, sum_over_gpus(metric, subject));
        return;
    }
    for (unsigned i = 0; i < subject->daemon->gpu_count; i++) {
        subject->gpu = i;
        fprintf(out, "%s{gpu=\"%u\",UUID=\"%s\"}", metric->name, subject->daemon->gpus[i].index,
                subject->daemon->gpus[i].uuid_text);
        write_value(out, metric, subject);
    }
}

static void write_labels(FILE *out, const struct session_labels *labels)
{
    if (labels->namespace[0])
        fprintf(out, ",namespace=\"%s\"", labels->namespace);
    if (labels->pod[0])
        fprintf(out, ",pod=\"%s\"", labels->pod);
    if (labels->container[0])
        fprintf(out, ",container=\"%s\"", labels->container);
}

/* Names are unique an owner, so the owner is a label too. They hold no character that needs escaping. */
static void write_sessions(FILE *out, const struct metric *metric, struct subject *subject)
{
    unsigned count = 0;
    for (const struct session *session = subject->daemon->sessions; session && count < METRICS_SESSIONS_MAX;
         session = session->next, count++) {
        subject->session = session;
        const unsigned series = metric->scope == OF_SESSION ? 1 : session->gpu_count;
        for (unsigned i = 0; i < series; i++) {
            const int gpu = session->gpus[i].gpu;
            char uuid[GPU_UUID_TEXT];
            subject->policy_gpu = i;
            fprintf(out, "%s{session=\"%s\",owner=\"%u\"", metric->name, session->name,
                    (unsigned)session->owner);
            if (subject->daemon->config.daemon.metrics_debug)
                fprintf(out, ",session_id=\"%s\"", session->id);
            if (gpu >= 0 && metric->scope == OF_SESSION_GPU)
                fprintf(out, ",gpu=\"%u\"", subject->daemon->gpus[gpu].index);
            if (metric->scope == OF_SESSION_GPU)
                fprintf(out, ",UUID=\"%s\"", session_gpu_uuid(&session->gpus[i], uuid));
            write_labels(out, &session->labels);
            fputs("}", out);
            write_value(out, metric, subject);
        }
    }
}

char *metrics_text(const struct daemon *daemon)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        const struct metric *metric = &metrics[i];
        struct subject subject = {.daemon = daemon};
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name, metric->type);
        if (metric->scope == OF_DAEMON) {
            fputs(metric->name, out);
            write_value(out, metric, &subject);
        } else if (metric->scope == OF_GPU) {
            write_gpus(out, metric, &subject);
        } else {
            write_sessions(out, metric, &subject);
        }
    }
    write_gslice_total(out, daemon);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
