#include "daemon/process/drift.h"

#include <stdlib.h>

#include "daemon/gpu/gpu.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

#define GLANCE_USEC UINT64_C(100000)
/* Less is no reason to ask NVML for its lists: a block or two that the driver takes for small allocations. */
#define GROWTH_BYTES (INT64_C(4) << 20)

struct drift {
    struct observer observer;
    sd_event_source *timer;
    int64_t seen_bytes[LEDGER_GPUS]; /* by the last sample */
};

static int64_t drift_of(const struct daemon *daemon, unsigned gpu, uint64_t used_bytes)
{
    uint64_t charged = 0;
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            if (session->gpus[i].gpu == (int)gpu)
                charged += session_used(session, i);
    return (int64_t)(used_bytes - charged);
}

static void on_change(void *context, const struct change *change)
{
    struct daemon *daemon = context;
    for (unsigned i = 0; change->kind == CHANGE_GPUS_SAMPLED && i < daemon->gpu_count; i++)
        daemon->drift->seen_bytes[i] = drift_of(daemon, i, daemon->gpus[i].used_bytes);
}

static void on_glance(void *argument, const struct nvml_sample *samples)
{
    struct daemon *daemon = argument;
    bool has_grown = false;
    for (unsigned i = 0; daemon->drift && i < daemon->gpu_count; i++) {
        struct gpu now = daemon->gpus[i];
        if (!samples[i].ok)
            continue;
        gpu_take_figures(&now, &samples[i].memory);
        has_grown |= drift_of(daemon, i, now.used_bytes) > daemon->drift->seen_bytes[i] + GROWTH_BYTES;
    }
    if (has_grown)
        gpu_sample_soon(daemon);
}

static bool has_processes(const struct daemon *daemon)
{
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session->process_count)
            return true;
    return false;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct daemon *daemon = userdata;
    if (has_processes(daemon))
        gpu_glance(daemon, on_glance, daemon);
    sd_event_source_set_time(source, usec + GLANCE_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int drift_start(struct daemon *daemon, struct error *error)
{
    struct drift *drift = daemon->drift = calloc(1, sizeof(*drift));
    if (!drift)
        return error_set_errno(error, ENOMEM, "cannot watch the cards' used memory");
    drift->observer = (struct observer){.take = on_change, .context = daemon};
    change_observe(daemon, &drift->observer);
    int result = sd_event_add_time_relative(daemon->loop, &drift->timer, CLOCK_MONOTONIC, GLANCE_USEC, 10000,
                                            on_timer, daemon);
    return result < 0 ? error_set_errno(error, -result, "cannot watch the cards' used memory") : 0;
}

void drift_stop(struct daemon *daemon)
{
    if (!daemon->drift)
        return;
    sd_event_source_disable_unref(daemon->drift->timer);
    change_observe_no_more(daemon, &daemon->drift->observer);
    free(daemon->drift);
    daemon->drift = NULL;
}
