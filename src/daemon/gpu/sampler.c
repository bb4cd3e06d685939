#include "daemon/gpu/sampler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/gpu/gpu.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"

#define START_USEC UINT64_C(30000000)
/* The first sample at the start. Programs wait for the daemon meanwhile, and it can do without. */
#define FIRST_SAMPLE_USEC UINT64_C(5000000)
#define SAMPLE_INTERVAL_USEC UINT64_C(5000000)
#define SAMPLE_TIMEOUT_USEC UINT64_C(1000000)
#define STOP_SECONDS 2
/* How long after a notice the sample is taken: longer than a client waits between notices (NOTICE_PAUSE_NS in the
 * interceptor), so that the sample shows what happens meanwhile too. And the least time between samples that notices
 * asked for. */
#define NOTICE_DELAY_USEC UINT64_C(25000)
#define NOTICE_INTERVAL_USEC UINT64_C(50000)
/* NVML holds the driver's locks while it answers, and programs' allocations wait for those locks. So after a sample
 * NVML is left alone for this many times as long as the sample took: one of 30 ms is not repeated within a second. */
#define PAUSE_FACTOR 35
/* A sample is dear if it takes longer than this: while NVML is left alone, those who wait for one get the last one. */
#define DEAR_USEC UINT64_C(5000)
/* How many samples in a row observers can ask for; after that they wait for the next regular one. */
#define TRIES_MAX 5

/* A caller that waits for a fresh sample. */
struct waiter {
    STAILQ_ENTRY(waiter) next;
    void (*done)(void *argument);
    void *argument;
};

STAILQ_HEAD(waiters, waiter);

struct gpu_sampler {
    struct daemon *daemon;
    struct nvml *nvml;
    struct worker *worker;
    struct waiters waiting; /* for the sample under way */
    struct waiters later;   /* came after that sample began: for the next one */
    bool is_sampling;
    bool has_listed, has_sampled; /* during the start */
    struct error list_error;
    sd_event_source *interval, *timeout, *soon;
    bool is_awaited;      /* `soon` is set */
    bool is_wanted;       /* `soon` fired while a sample was under way */
    bool is_asked_again;  /* an observer of the sample wants another */
    unsigned tries;       /* how many samples in a row were asked for again */
    uint64_t begun_usec;  /* when the last sample began */
    uint64_t took_usec;   /* how long that sample took */
    uint64_t rested_usec; /* when NVML may be asked again after that sample */
    struct {
        bool is_under_way;
        void (*done)(void *argument, const struct nvml_sample *samples);
        void *argument;
    } glance;
    struct {
        bool is_under_way;
        void (*done)(void *argument, const struct nvml_sample *samples, uint64_t took_usec);
        void *argument;
    } activity;
    bool is_dear; /* samples take more than DEAR_USEC */
};

/* NVML has been asked, and does not answer. It may never: a process that NVIDIA's kernel module leaves waiting for a lock
 * cannot even be killed (open-gpu-kernel-modules, issue 1333). Then the helper thread is lost, and nobody waits for it. */
static bool hangs(const struct gpu_sampler *sampler)
{
    return sampler->is_sampling && sd_event_source_get_enabled(sampler->timeout, NULL) <= 0;
}

/* --- Samples --------------------------------------------------------------------------------------- */

static void answer(struct waiters *list)
{
    struct waiters answered = STAILQ_HEAD_INITIALIZER(answered);
    STAILQ_CONCAT(&answered, list);
    while (!STAILQ_EMPTY(&answered)) {
        struct waiter *waiter = STAILQ_FIRST(&answered);
        STAILQ_REMOVE_HEAD(&answered, next);
        waiter->done(waiter->argument);
        free(waiter);
    }
}

/* What it held lately is the best guess at what it holds now. How busy it was then says nothing about now. */
static void forget_busy(struct gpu *gpu)
{
    gpu->busy_percent = -1;
    gpu->heat = (struct gpu_heat){GPU_HEAT_UNKNOWN, GPU_HEAT_UNKNOWN};
    for (unsigned i = 0; i < gpu->process_count; i++)
        gpu->processes[i].busy_percent = -1;
}

static void set_healthy(struct daemon *daemon, struct gpu *gpu, bool is_healthy, const char *why)
{
    if (gpu->healthy == is_healthy)
        return;
    gpu->healthy = is_healthy;
    if (!is_healthy)
        forget_busy(gpu);
    log_warning("GPU %s: %s", gpu->label, why);
    change_publish(daemon,
                   &(struct change){is_healthy ? CHANGE_GPU_HEALTHY : CHANGE_GPU_UNHEALTHY, .gpu = gpu},
                   "GPU %s: %s", gpu->label, why);
}

void gpu_tell_silence(struct gpu *gpu, const char *why)
{
    if (!gpu->is_silent)
        log_warning("GPU %s: NVML does not tell what each process holds: %s. Sessions are charged for what "
                    "their programs ask for, but not for what the driver takes beyond that",
                    gpu->label, why);
    gpu->is_silent = true;
}

static void see_silence(struct gpu *gpu, const struct nvml_sample *sample)
{
    if (sample->no_processes)
        gpu_tell_silence(gpu, sample->no_processes);
    for (unsigned i = 0; i < sample->process_count; i++)
        if (!sample->processes[i].is_known)
            gpu_tell_silence(gpu, "it has no figure for some processes");
}

static void take_sample(struct daemon *daemon, struct gpu *gpu, struct nvml_sample *sample)
{
    set_healthy(daemon, gpu, sample->ok,
                sample->ok ? "NVML answers again" : "NVML cannot tell the GPU's state");
    if (!sample->ok)
        return;
    gpu_take_figures(gpu, &sample->memory);
    gpu->busy_percent = sample->busy_percent;
    gpu->heat = sample->heat;
    gpu->no_processes = sample->no_processes;
    see_silence(gpu, sample);
    free(gpu->processes);
    gpu->processes = sample->processes;
    gpu->process_count = sample->process_count;
    sample->processes = NULL;
}

static void begin_sample(struct gpu_sampler *sampler);
static void sample_soon(struct gpu_sampler *sampler);

/* Count the cheaper of the last two samples: during the other one the thread may not have been running for a moment. */
static void rest_after(struct gpu_sampler *sampler, uint64_t took_usec)
{
    uint64_t usec = took_usec < sampler->took_usec ? took_usec : sampler->took_usec;
    sampler->took_usec = took_usec;
    sampler->is_dear = usec > DEAR_USEC;
    sampler->rested_usec = daemon_now_usec() + PAUSE_FACTOR * usec;
}

static void on_sampled(struct worker_job *worker_job)
{
    struct nvml_job *job = (struct nvml_job *)worker_job;
    struct gpu_sampler *sampler = job->sampler;
    struct daemon *daemon = sampler->daemon;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        take_sample(daemon, &daemon->gpus[i], &job->samples[i]);
    rest_after(sampler, job->took_usec);
    nvml_sample_free(job);
    sampler->is_asked_again = false;
    sampler->has_sampled = true;
    change_publish(daemon, &(struct change){CHANGE_GPUS_SAMPLED}, "the GPUs were sampled");
    sampler->is_sampling = false;
    sd_event_source_set_enabled(sampler->timeout, SD_EVENT_OFF);
    answer(&sampler->waiting);
    sampler->tries = sampler->is_asked_again ? sampler->tries + 1 : 0;
    if (sampler->tries > 0 && sampler->tries < TRIES_MAX)
        sample_soon(sampler);
    if (sampler->is_dear)
        answer(&sampler->later); /* this sample ended after they came */
    if (!STAILQ_EMPTY(&sampler->later)) {
        STAILQ_CONCAT(&sampler->waiting, &sampler->later);
        begin_sample(sampler);
    } else if (sampler->is_wanted) {
        sample_soon(sampler);
    }
}

static struct nvml_job *make_job(struct gpu_sampler *sampler, unsigned first, unsigned last,
                                 void (*done)(struct worker_job *))
{
    struct nvml_job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->job.done = done;
    job->sampler = sampler;
    job->first_gpu = first;
    job->last_gpu = last;
    return job;
}

static void begin_sample(struct gpu_sampler *sampler)
{
    unsigned count = sampler->daemon->gpu_count;
    struct nvml_job *job = make_job(sampler, 0, count ? count - 1 : 0, on_sampled);
    if (!job) {
        answer(&sampler->waiting);
        return;
    }
    sampler->is_sampling = true;
    sampler->is_wanted = false;
    sampler->begun_usec = daemon_now_usec();
    change_publish(sampler->daemon, &(struct change){CHANGE_SAMPLE_BEGINS}, "the GPUs are sampled");
    sd_event_source_set_time_relative(sampler->timeout, SAMPLE_TIMEOUT_USEC);
    sd_event_source_set_enabled(sampler->timeout, SD_EVENT_ONESHOT);
    worker_submit(sampler->worker, &job->job);
}

/* NVML hangs with the driver. What was held last stays, marked as unhealthy; if NVML answers later, the GPUs are healthy
 * again. */
static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct gpu_sampler *sampler = userdata;
    struct daemon *daemon = sampler->daemon;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        set_healthy(daemon, &daemon->gpus[i], false, "NVML has not answered for a second");
    log_warning(
        "sessions, limits and shares go on without NVML; what it shows stays as it was until it answers");
    answer(&sampler->waiting);
    answer(&sampler->later);
    return 0;
}

static int on_soon(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct gpu_sampler *sampler = userdata;
    sampler->is_awaited = false;
    if (sampler->is_sampling)
        sampler->is_wanted = true;
    else
        begin_sample(sampler);
    return 0;
}

static void sample_soon(struct gpu_sampler *sampler)
{
    uint64_t now = daemon_now_usec(), at = now + NOTICE_DELAY_USEC;
    if (sampler->is_awaited || !sampler->soon)
        return;
    if (at < sampler->begun_usec + NOTICE_INTERVAL_USEC)
        at = sampler->begun_usec + NOTICE_INTERVAL_USEC;
    if (at < sampler->rested_usec)
        at = sampler->rested_usec;
    sd_event_source_set_time(sampler->soon, at);
    sampler->is_awaited = sd_event_source_set_enabled(sampler->soon, SD_EVENT_ONESHOT) >= 0;
}

void gpu_sample_soon(struct daemon *daemon)
{
    if (!daemon->sampler)
        return;
    daemon->sampler->tries = 0;
    sample_soon(daemon->sampler);
}

void gpu_sample_again(struct daemon *daemon)
{
    daemon->sampler->is_asked_again = true;
}

static int on_interval(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct gpu_sampler *sampler = userdata;
    if (!sampler->is_sampling)
        begin_sample(sampler);
    sd_event_source_set_time(source, usec + SAMPLE_INTERVAL_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

void gpu_refresh(struct daemon *daemon, void (*done)(void *argument), void *argument)
{
    struct gpu_sampler *sampler = daemon->sampler;
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    bool is_resting = !sampler->is_sampling && sampler->is_dear && daemon_now_usec() < sampler->rested_usec;
    if (!waiter || hangs(sampler) || is_resting) {
        free(waiter);
        done(argument);
        return;
    }
    *waiter = (struct waiter){.done = done, .argument = argument};
    STAILQ_INSERT_TAIL(sampler->is_sampling ? &sampler->later : &sampler->waiting, waiter, next);
    if (!sampler->is_sampling)
        begin_sample(sampler);
}

/* --- Looks ----------------------------------------------------------------------------------------- */

struct gpu_look {
    struct nvml_job *job;
    unsigned gpu;
    void (*done)(void *argument, const struct nvml_sample *sample);
    void *argument;
};

static void on_looked(struct worker_job *worker_job)
{
    struct nvml_job *job = (struct nvml_job *)worker_job;
    struct gpu_look *look = job->look;
    if (look) {
        look->done(look->argument, &job->samples[look->gpu]);
        free(look);
    }
    nvml_sample_free(job);
}

struct gpu_look *gpu_look(struct daemon *daemon, unsigned gpu,
                          void (*done)(void *argument, const struct nvml_sample *sample), void *argument)
{
    struct gpu_look *look = hangs(daemon->sampler) ? NULL : calloc(1, sizeof(*look));
    struct nvml_job *job = look ? make_job(daemon->sampler, gpu, gpu, on_looked) : NULL;
    if (!job) {
        free(look);
        return NULL;
    }
    *look = (struct gpu_look){.job = job, .gpu = gpu, .done = done, .argument = argument};
    job->look = look;
    worker_submit(daemon->sampler->worker, &job->job);
    return look;
}

void gpu_look_cancel(struct gpu_look *look)
{
    look->job->look = NULL;
    free(look);
}

static void on_glanced(struct worker_job *worker_job)
{
    struct nvml_job *job = (struct nvml_job *)worker_job;
    struct gpu_sampler *sampler = job->sampler;
    sampler->glance.is_under_way = false;
    sampler->glance.done(sampler->glance.argument, job->samples);
    nvml_sample_free(job);
}

bool gpu_glance(struct daemon *daemon, void (*done)(void *argument, const struct nvml_sample *samples),
                void *argument)
{
    struct gpu_sampler *sampler = daemon->sampler;
    unsigned count = daemon->gpu_count;
    struct nvml_job *job = sampler->is_sampling || sampler->glance.is_under_way || count == 0
                               ? NULL
                               : make_job(sampler, 0, count - 1, on_glanced);
    if (!job)
        return false;
    job->is_glance = true;
    sampler->glance.is_under_way = true;
    sampler->glance.done = done;
    sampler->glance.argument = argument;
    worker_submit(sampler->worker, &job->job);
    return true;
}

static void on_activity(struct worker_job *worker_job)
{
    struct nvml_job *job = (struct nvml_job *)worker_job;
    struct gpu_sampler *sampler = job->sampler;
    sampler->activity.is_under_way = false;
    sampler->activity.done(sampler->activity.argument, job->samples, job->took_usec);
    nvml_sample_free(job);
}

bool gpu_activity(struct daemon *daemon, uint64_t wanted,
                  void (*done)(void *argument, const struct nvml_sample *samples, uint64_t took_usec),
                  void *argument)
{
    struct gpu_sampler *sampler = daemon->sampler;
    struct nvml_job *job = sampler->is_sampling || sampler->activity.is_under_way
                               ? NULL
                               : make_job(sampler, 0, daemon->gpu_count - 1, on_activity);
    if (!job)
        return false;
    job->activity_of = wanted;
    sampler->activity.is_under_way = true;
    sampler->activity.done = done;
    sampler->activity.argument = argument;
    worker_submit(sampler->worker, &job->job);
    return true;
}

/* --- Starting -------------------------------------------------------------------------------------- */

static void on_listed(struct worker_job *worker_job)
{
    struct nvml_list_job *list = (struct nvml_list_job *)worker_job;
    struct gpu_sampler *sampler = list->sampler;
    struct daemon *daemon = sampler->daemon;
    for (unsigned i = 0; i < list->count; i++) {
        struct gpu *gpu = &daemon->gpus[i];
        gpu->index = list->cards[i].index;
        gpu->mig_index = list->cards[i].mig_index;
        memcpy(gpu->uuid, list->cards[i].uuid, sizeof(gpu->uuid));
        gpu_uuid_format(gpu->uuid, gpu->uuid_text);
        if (gpu->mig_index < 0) {
            snprintf(gpu->label, sizeof(gpu->label), "%u", gpu->index);
        } else {
            snprintf(gpu->label, sizeof(gpu->label), "%u:%d", gpu->index, gpu->mig_index);
            gpu_uuid_set_mig(gpu->uuid_text);
        }
        memcpy(gpu->name, list->cards[i].name, sizeof(gpu->name));
        memcpy(gpu->pci_address, list->cards[i].pci_address, sizeof(gpu->pci_address));
        memcpy(gpu->compute_capability, list->cards[i].compute_capability, sizeof(gpu->compute_capability));
        gpu_take_figures(gpu, &list->cards[i].memory);
        gpu->healthy = true;
    }
    if (list->count == 0 && list->failure_count > 0)
        list->error = list->failures[0];
    for (unsigned i = 0; i < list->failure_count && list->count > 0; i++)
        log_warning("%s; sessions cannot have it until the daemon starts again", list->failures[i].message);
    if (list->left_out)
        log_warning("the machine has %u GPUs and MIG instances, and sessions can have the first %u",
                    list->count + list->left_out, list->count);
    daemon->gpu_count = list->count;
    memcpy(daemon->driver_version, list->driver_version, sizeof(daemon->driver_version));
    sampler->list_error = list->error;
    sampler->has_listed = true;
    free(list);
}

/* Run the loop until `*is_done`: a driver that has not been used yet needs seconds for its first answer. */
static int wait_for(struct daemon *daemon, const bool *is_done, uint64_t usec)
{
    uint64_t end = daemon_now_usec() + usec;
    while (!*is_done) {
        uint64_t now = daemon_now_usec();
        int result = now < end ? sd_event_run(daemon->loop, end - now) : -ETIMEDOUT;
        if (result < 0)
            return result;
    }
    return 0;
}

static int list_cards(struct daemon *daemon, struct error *error)
{
    struct gpu_sampler *sampler = daemon->sampler;
    struct nvml_list_job *list = calloc(1, sizeof(*list));
    if (!list)
        return error_set_errno(error, ENOMEM, "cannot list the GPUs");
    list->job.done = on_listed;
    list->sampler = sampler;
    worker_submit(sampler->worker, &list->job);
    int result = wait_for(daemon, &sampler->has_listed, START_USEC);
    if (result == 0 && sampler->list_error.status) {
        *error = sampler->list_error;
        return -error->status;
    }
    if (result == 0 && daemon->gpu_count == 0)
        return error_set(error, ENODEV, NULL,
                         "the NVIDIA driver shows no GPU, nor any MIG instance of one in MIG mode; add "
                         "--simulated for a simulated one");
    if (result == 0) {
        begin_sample(sampler);
        result = wait_for(daemon, &sampler->has_sampled, FIRST_SAMPLE_USEC);
        if (result == -ETIMEDOUT)
            return 0; /* the GPUs are known, and not healthy */
    }
    if (result < 0)
        return error_set_errno(
            error, -result,
            "NVML has not listed the GPUs within %llu s; if nvidia-smi hangs too, restart the machine",
            (unsigned long long)START_USEC / 1000000);
    return 0;
}

int gpu_start(struct daemon *daemon, const char *library, struct error *error)
{
    struct gpu_sampler *sampler = calloc(1, sizeof(*sampler));
    if (!sampler)
        return error_set_errno(error, ENOMEM, "cannot start the GPU sampler");
    daemon->sampler = sampler;
    sampler->daemon = daemon;
    STAILQ_INIT(&sampler->waiting);
    STAILQ_INIT(&sampler->later);
    int result = nvml_load(&sampler->nvml, library, error);
    if (result < 0)
        return result;
    result = worker_start(&sampler->worker, daemon->loop, "gpusliced-nvml", nvml_run, sampler->nvml, error);
    if (result < 0)
        return result;
    result = sd_event_add_time_relative(daemon->loop, &sampler->timeout, CLOCK_MONOTONIC, SAMPLE_TIMEOUT_USEC,
                                        10000, on_timeout, sampler);
    if (result == 0)
        result = sd_event_source_set_enabled(sampler->timeout, SD_EVENT_OFF);
    if (result == 0)
        result = list_cards(daemon, error);
    else
        error_set_errno(error, -result, "cannot start the GPU sampler");
    if (result < 0)
        return result;
    result =
        sd_event_add_time_relative(daemon->loop, &sampler->soon, CLOCK_MONOTONIC, 0, 5000, on_soon, sampler);
    if (result >= 0)
        result = sd_event_source_set_enabled(sampler->soon, SD_EVENT_OFF);
    if (result >= 0)
        result = sd_event_add_time_relative(daemon->loop, &sampler->interval, CLOCK_MONOTONIC,
                                            SAMPLE_INTERVAL_USEC, 0, on_interval, sampler);
    return result < 0 ? error_set_errno(error, -result, "cannot start the GPU sampler") : 0;
}

void gpu_stop(struct daemon *daemon)
{
    struct gpu_sampler *sampler = daemon->sampler;
    if (!sampler)
        return;
    sd_event_source_disable_unref(sampler->interval);
    sampler->soon = sd_event_source_disable_unref(sampler->soon);
    answer(&sampler->waiting);
    answer(&sampler->later);
    bool has_stopped = worker_stop(sampler->worker, STOP_SECONDS); /* false if it is inside a hung driver */
    sd_event_source_disable_unref(sampler->timeout);
    daemon->sampler = NULL;
    if (!has_stopped)
        return;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        free(daemon->gpus[i].processes);
    nvml_free(sampler->nvml);
    free(sampler);
}
