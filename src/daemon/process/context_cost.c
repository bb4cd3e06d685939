#include "daemon/process/context_cost.h"

#include <stdlib.h>
#include <systemd/sd-event.h>

#include "daemon/gpu/nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/policy.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

#define TIMEOUT_USEC UINT64_C(90000) /* the client waits 100 ms */

struct context_measurement {
    struct gpu_look *look; /* under way; NULL: none */
    struct process *process;
    unsigned policy_gpu, gpu;
    struct ledger_slot_sample slot_before;
    uint64_t granted_before;
    sd_event_source *timeout;
    void (*done)(void *argument, uint64_t bytes);
    void *argument;
};

void context_cost_keep(struct daemon *daemon, unsigned gpu, uint64_t bytes)
{
    if (!daemon->gpus[gpu].context_bytes)
        context_cost_replace(daemon, gpu, bytes);
}

void context_cost_replace(struct daemon *daemon, unsigned gpu, uint64_t bytes)
{
    /* A figure above what the card has cannot be right. */
    if (bytes == 0 || bytes >= daemon->gpus[gpu].total_bytes)
        return;
    daemon->gpus[gpu].context_bytes = bytes;
    for (struct session *session = daemon->sessions; session; session = session->next)
        policy_publish(session);
    log_info("a context on GPU %s costs %llu bytes", daemon->gpus[gpu].label, (unsigned long long)bytes);
    change_publish(daemon, &(struct change){CHANGE_CONTEXT_COST, .gpu = &daemon->gpus[gpu], .bytes = bytes},
                   "a context costs %llu bytes", (unsigned long long)bytes);
}

void context_cost_cancel(struct process *process)
{
    struct context_measurement *measurement = process->measurement;
    if (!measurement)
        return;
    if (measurement->look)
        gpu_look_cancel(measurement->look);
    process->measurement = NULL;
    sd_event_source_disable_unref(measurement->timeout);
    free(measurement);
}

static void end_measurement(struct context_measurement *measurement, uint64_t bytes)
{
    void (*done)(void *, uint64_t) = measurement->done;
    void *argument = measurement->argument;
    context_cost_cancel(measurement->process);
    done(argument, bytes);
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    end_measurement(userdata, 0);
    return 0;
}

/* The slot's bytes, and a count that changes with every grant, so that an allocation that was freed again is noticed
 * too. */
static void look_at_slot(const struct context_measurement *measurement, struct ledger_slot_sample *look,
                         uint64_t *granted)
{
    const struct ledger_usage *usage = measurement->process->session->ledger.usage;
    *look = ledger_slot_sample(usage, measurement->process->slot, measurement->policy_gpu);
    *granted = ledger_slot_counts(usage, measurement->process->slot, measurement->policy_gpu).granted;
}

static bool start_measurement(struct context_measurement *measurement);

static void on_looked(void *argument, const struct nvml_sample *sample)
{
    struct context_measurement *measurement = argument;
    struct ledger_slot_sample look;
    uint64_t granted, shown = 0;
    measurement->look = NULL;
    look_at_slot(measurement, &look, &granted);
    for (unsigned i = 0; i < sample->process_count; i++)
        if (sample->processes[i].pid == measurement->process->pid)
            shown += sample->processes[i].used_bytes;

    /* Memory of the process changed in between, as is likely with its first context: measure again. */
    if (look.bytes != measurement->slot_before.bytes ||
        look.hidden_bytes != measurement->slot_before.hidden_bytes ||
        granted != measurement->granted_before) {
        if (!start_measurement(measurement))
            end_measurement(measurement, 0);
        return;
    }
    struct daemon *daemon = measurement->process->session->daemon;
    uint64_t bytes = look.bytes - look.hidden_bytes;
    uint64_t cost = shown > bytes ? shown - bytes : 0;
    /* A figure above what the card has cannot be right. */
    if (cost >= daemon->gpus[measurement->gpu].total_bytes)
        cost = 0;
    context_cost_keep(daemon, measurement->gpu, cost);
    end_measurement(measurement, cost);
}

static bool start_measurement(struct context_measurement *measurement)
{
    look_at_slot(measurement, &measurement->slot_before, &measurement->granted_before);
    measurement->look =
        gpu_look(measurement->process->session->daemon, measurement->gpu, on_looked, measurement);
    return measurement->look;
}

bool context_cost_measure(struct process *process, unsigned policy_gpu,
                          void (*done)(void *argument, uint64_t bytes), void *argument)
{
    struct daemon *daemon = process->session->daemon;
    struct context_measurement *measurement = calloc(1, sizeof(*measurement));
    if (!measurement)
        return false;
    *measurement = (struct context_measurement){
        .process = process,
        .policy_gpu = policy_gpu,
        .gpu = (unsigned)process->session->gpus[policy_gpu].gpu,
        .done = done,
        .argument = argument,
    };
    if (sd_event_add_time_relative(daemon->loop, &measurement->timeout, CLOCK_MONOTONIC, TIMEOUT_USEC, 1000,
                                   on_timeout, measurement) < 0 ||
        !start_measurement(measurement)) {
        sd_event_source_disable_unref(measurement->timeout);
        free(measurement);
        return false;
    }
    process->measurement = measurement;
    return true;
}
