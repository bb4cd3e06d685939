#include "daemon/history/nvml_time.h"

#include <stdlib.h>
#include <systemd/sd-event.h>

#include "base/clock.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/schedule/schedule.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

#define NS_PER_PERCENT_US 10 /* one percent of a microsecond */
/* Between two questions: the first after a process has attached, and the longest. */
#define SOON_USEC UINT64_C(100000)
#define PERIOD_USEC UINT64_C(1000000)
/* NVML is left alone for so many times as long as its answer took. */
#define PAUSE_FACTOR 35
/* How much of the time that NVML has not told of counts for a process that dies. */
#define TAIL_NS UINT64_C(2000000000)
#define WINDOW_NS UINT64_C(5000000000)

struct nvml_time {
    struct daemon *daemon;
    struct observer observer;
    sd_event_source *timer;
    uint64_t period_usec;
    uint64_t told_ns[LEDGER_GPUS]; /* when NVML last told, by GPU of the daemon; 0: never */
};

bool nvml_time_counts(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    return gpu >= 0 && session->processes &&
           schedule_mode(session->daemon, (unsigned)gpu) == ARBITER_MODE_FREE;
}

/* Begin another half of the window where the present one is over. */
static void move_window(struct nvml_window *window, uint64_t now_ns)
{
    if (now_ns - window->from_ns < WINDOW_NS)
        return;
    window->before_ns = now_ns - window->from_ns < 2 * WINDOW_NS ? window->busy_ns : 0;
    window->busy_ns = 0;
    window->from_ns = now_ns;
}

static void count(struct session_gpu *gpu, uint64_t ns, uint64_t now_ns)
{
    gpu->nvml_ns += ns;
    move_window(&gpu->nvml_window, now_ns);
    gpu->nvml_window.busy_ns += ns;
}

double nvml_time_ratio(const struct session *session, unsigned policy_gpu)
{
    struct nvml_window window = session->gpus[policy_gpu].nvml_window;
    uint64_t now_ns = monotonic_ns();
    move_window(&window, now_ns);
    uint64_t length_ns = now_ns - window.from_ns + (window.before_ns ? WINDOW_NS : 0);
    double ratio = length_ns ? (double)(window.busy_ns + window.before_ns) / (double)length_ns : 0;
    return ratio < 1 ? ratio : 1;
}

/* --- What NVML tells ------------------------------------------------------------------------------- */

static unsigned percent_of(const struct nvml_sample *sample, pid_t pid)
{
    for (unsigned i = 0; i < sample->activity_count; i++)
        if (sample->activity[i].pid == pid)
            return sample->activity[i].percent;
    return 0;
}

/* A process that has several slots counts once. */
static bool is_first_of_pid(const struct process *process)
{
    for (const struct process *newer = process->newer; newer; newer = newer->newer)
        if (newer->pid == process->pid)
            return false;
    return true;
}

static void take_session(struct session *session, const struct nvml_sample *samples, uint64_t now_ns)
{
    for (unsigned i = 0; i < session->gpu_count; i++) {
        const struct nvml_sample *sample =
            nvml_time_counts(session, i) ? &samples[session->gpus[i].gpu] : NULL;
        if (!sample || !sample->knows_activity)
            continue;
        for (struct process *process = session->processes; process; process = process->next) {
            unsigned percent = is_first_of_pid(process) ? percent_of(sample, process->pid) : 0;
            process->nvml_percent[i] = (uint8_t)percent;
            count(&session->gpus[i], percent * sample->activity_usec * NS_PER_PERCENT_US, now_ns);
        }
    }
}

static void set_timer(struct nvml_time *time, uint64_t usec)
{
    sd_event_source_set_time_relative(time->timer, usec);
    sd_event_source_set_enabled(time->timer, SD_EVENT_ONESHOT);
}

static void on_activity(void *argument, const struct nvml_sample *samples, uint64_t took_usec)
{
    struct daemon *daemon = argument;
    struct nvml_time *time = daemon->nvml_time;
    uint64_t now_ns = monotonic_ns(), pause_usec = PAUSE_FACTOR * took_usec;
    if (!time)
        return;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        if (samples[i].knows_activity)
            time->told_ns[i] = now_ns;
    for (struct session *session = daemon->sessions; session; session = session->next)
        take_session(session, samples, now_ns);
    set_timer(time, pause_usec > time->period_usec ? pause_usec : time->period_usec);
}

/* A bit for each of the daemon's GPUs where it is asked for. */
static uint64_t find_wanted(const struct daemon *daemon)
{
    uint64_t wanted = 0;
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; session->processes && i < session->gpu_count; i++)
            if (nvml_time_counts(session, i))
                wanted |= UINT64_C(1) << session->gpus[i].gpu;
    return wanted;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct nvml_time *time = userdata;
    uint64_t wanted = find_wanted(time->daemon);
    time->period_usec = 2 * time->period_usec < PERIOD_USEC ? 2 * time->period_usec : PERIOD_USEC;
    if (!wanted || !gpu_activity(time->daemon, wanted, on_activity, time->daemon))
        set_timer(time, time->period_usec);
    return 0;
}

/* --- Following the core ---------------------------------------------------------------------------- */

static void count_tail(const struct nvml_time *time, const struct process *process)
{
    struct session *session = process->session;
    uint64_t now_ns = monotonic_ns();
    for (unsigned i = 0; i < session->gpu_count; i++) {
        if (!nvml_time_counts(session, i) || !process->nvml_percent[i])
            continue;
        uint64_t ns = now_ns - time->told_ns[session->gpus[i].gpu];
        count(&session->gpus[i], process->nvml_percent[i] * (ns < TAIL_NS ? ns : TAIL_NS) / 100, now_ns);
    }
}

static void on_change(void *context, const struct change *change)
{
    struct nvml_time *time = context;
    if (change->kind == CHANGE_PROCESS_DIED)
        count_tail(time, change->process);
    /* However many attach, the question that comes soon is put off once. */
    if (change->kind != CHANGE_PROCESS_ATTACHED || time->period_usec == SOON_USEC)
        return;
    time->period_usec = SOON_USEC;
    set_timer(time, SOON_USEC);
}

/* --- Start and end --------------------------------------------------------------------------------- */

int nvml_time_start(struct daemon *daemon, struct error *error)
{
    struct nvml_time *time = daemon->nvml_time = calloc(1, sizeof(*time));
    if (!time)
        return error_set_errno(error, ENOMEM, "cannot count GPU time");
    time->daemon = daemon;
    time->period_usec = SOON_USEC;
    time->observer = (struct observer){.take = on_change, .context = time};
    change_observe(daemon, &time->observer);
    int result = sd_event_add_time_relative(daemon->loop, &time->timer, CLOCK_MONOTONIC, SOON_USEC, 10000,
                                            on_timer, time);
    return result < 0 ? error_set_errno(error, -result, "cannot count GPU time") : 0;
}

void nvml_time_stop(struct daemon *daemon)
{
    struct nvml_time *time = daemon->nvml_time;
    if (!time)
        return;
    sd_event_source_disable_unref(time->timer);
    change_observe_no_more(daemon, &time->observer);
    free(time);
    daemon->nvml_time = NULL;
}
