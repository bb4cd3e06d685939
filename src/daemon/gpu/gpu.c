#include "daemon/gpu/gpu.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/process.h"
#include "base/units.h"
#include "daemon/gpu/driver_line.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/process/reaper.h"
#include "daemon/session/queue.h"
#include "daemon/session/session.h"
#include "daemon/store/store.h"

#define START_USEC UINT64_C(30000000)
#define SAMPLE_INTERVAL_USEC UINT64_C(5000000)
#define SAMPLE_TIMEOUT_USEC UINT64_C(1000000)
#define STOP_SECONDS 2
/* From a notice to its sample: longer than a client keeps quiet after one (NOTICE_PAUSE_NS there), so that
 * what happens meanwhile is seen as well. And between samples that were asked for by notices. */
#define NOTICE_DELAY_USEC UINT64_C(25000)
#define NOTICE_INTERVAL_USEC UINT64_C(50000)
/* NVML holds the driver's locks for as long as it takes: programs' allocations wait for those. So after a sample it is left
 * alone for so many times as long, and one of 30 ms is not taken again within a second. */
#define PAUSE_FACTOR 35
/* Whoever waits for a sample gets the last one meanwhile; not where it costs next to nothing. */
#define DEAR_USEC UINT64_C(5000)
/* Samples in a row for processes that moved during each; after that they wait for the next. */
#define MOVED_TRIES 5
#define MEASURE_TIMEOUT_USEC UINT64_C(90000) /* the client waits 100 ms */

/* Somebody who waits for a fresh sample. */
struct waiter {
    struct waiter *next;
    void (*done)(void *argument);
    void *argument;
};

struct gpu_sampler {
    struct daemon *daemon;
    struct nvml *nvml;
    struct worker *worker;
    struct waiter *waiting; /* for the sample under way */
    struct waiter *later;   /* came after it began: for the next */
    bool is_sampling;
    bool has_listed; /* at the start */
    struct error list_error;
    sd_event_source *interval, *timeout, *soon;
    bool is_awaited;      /* `soon` is set */
    bool is_wanted;       /* `soon` came while a sample was under way */
    unsigned tries;       /* samples in a row that some process moved during */
    uint64_t begun_usec;  /* the last sample */
    uint64_t took_usec;   /* what that took */
    uint64_t rested_usec; /* when NVML may be asked again after it */
    bool is_dear;         /* samples take more than DEAR_USEC */
};

/* --- Samples --------------------------------------------------------------------------------------- */

static void answer(struct waiter **list)
{
    struct waiter *waiter = *list;
    *list = NULL;
    while (waiter) {
        struct waiter *next = waiter->next;
        waiter->done(waiter->argument);
        free(waiter);
        waiter = next;
    }
}

static void set_healthy(struct daemon *daemon, struct gpu *gpu, bool is_healthy, const char *why)
{
    if (gpu->healthy == is_healthy)
        return;
    gpu->healthy = is_healthy;
    log_warning("GPU %s: %s", gpu->label, why);
    change_publish(daemon,
                   &(struct change){is_healthy ? CHANGE_GPU_HEALTHY : CHANGE_GPU_UNHEALTHY, .gpu = gpu},
                   "GPU %s: %s", gpu->label, why);
}

void gpu_tell_silence(struct gpu *gpu, const char *why)
{
    if (!gpu->is_silent)
        log_warning("GPU %s: NVML does not tell what each process holds: %s. Sessions are charged what their "
                    "programs "
                    "ask for, and not what the driver takes beyond that",
                    gpu->label, why);
    gpu->is_silent = true;
}

static void see_silence(struct gpu *gpu, const struct nvml_sample *sample)
{
    if (sample->no_processes)
        gpu_tell_silence(gpu, sample->no_processes);
    for (unsigned i = 0; i < sample->process_count; i++)
        if (!sample->processes[i].is_known)
            gpu_tell_silence(gpu, "it has no figure for some");
}

static void take_sample(struct daemon *daemon, struct gpu *gpu, struct nvml_sample *sample)
{
    set_healthy(daemon, gpu, sample->ok, sample->ok ? "NVML answers again" : "NVML cannot say how it is");
    if (!sample->ok)
        return;
    gpu->total_bytes = sample->total_bytes;
    gpu->free_bytes = sample->free_bytes;
    gpu->used_bytes = sample->used_bytes;
    gpu->busy_percent = sample->busy_percent;
    see_silence(gpu, sample);
    free(gpu->processes);
    gpu->processes = sample->processes;
    gpu->process_count = sample->process_count;
    sample->processes = NULL;
}

static void begin_sample(struct gpu_sampler *sampler);
static void sample_soon(struct gpu_sampler *sampler);

/* What counts is what the cheaper of two samples took: the thread of one may not have been run for a moment. */
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
    bool any_moved = false;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        any_moved |= driver_line_take(daemon, i, &job->samples[i]);
        take_sample(daemon, &daemon->gpus[i], &job->samples[i]);
    }
    driver_line_end(daemon);
    change_publish(daemon, &(struct change){CHANGE_GPUS_SAMPLED}, "the GPUs were sampled");
    queue_advance_soon(daemon); /* what others held may be free */
    rest_after(sampler, job->took_usec);
    nvml_sample_free(job);
    sampler->is_sampling = false;
    sd_event_source_set_enabled(sampler->timeout, SD_EVENT_OFF);
    answer(&sampler->waiting);
    sampler->tries = any_moved ? sampler->tries + 1 : 0;
    if (sampler->tries > 0 && sampler->tries < MOVED_TRIES)
        sample_soon(sampler);
    if (sampler->is_dear)
        answer(&sampler->later); /* this one ended after they came */
    if (sampler->later) {
        sampler->waiting = sampler->later;
        sampler->later = NULL;
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
    driver_line_begin(sampler->daemon);
    sd_event_source_set_time_relative(sampler->timeout, SAMPLE_TIMEOUT_USEC);
    sd_event_source_set_enabled(sampler->timeout, SD_EVENT_ONESHOT);
    worker_submit(sampler->worker, &job->job);
}

/* NVML hangs with the driver. What was known stays, marked; its answer, should one come, makes all well. */
static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct gpu_sampler *sampler = userdata;
    struct daemon *daemon = sampler->daemon;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        set_healthy(daemon, &daemon->gpus[i], false, "NVML has not answered for a second");
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
    bool hangs = sampler->is_sampling && sd_event_source_get_enabled(sampler->timeout, NULL) <= 0;
    bool is_resting = !sampler->is_sampling && sampler->is_dear && daemon_now_usec() < sampler->rested_usec;
    if (!waiter || hangs || is_resting) {
        free(waiter);
        done(argument);
        return;
    }
    *waiter = (struct waiter){.done = done, .argument = argument};
    struct waiter **list = sampler->is_sampling ? &sampler->later : &sampler->waiting;
    waiter->next = *list;
    *list = waiter;
    if (!sampler->is_sampling)
        begin_sample(sampler);
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
        gpu->healthy = true;
    }
    daemon->gpu_count = list->count;
    memcpy(daemon->driver_version, list->driver_version, sizeof(daemon->driver_version));
    sampler->list_error = list->error;
    sampler->has_listed = true;
    free(list);
}

/* Run the loop until `*is_done`. */
static int wait_for(struct daemon *daemon, const bool *is_done)
{
    uint64_t end = daemon_now_usec() + START_USEC;
    while (!*is_done) {
        uint64_t now = daemon_now_usec();
        int result = now < end ? sd_event_run(daemon->loop, end - now) : -ETIMEDOUT;
        if (result < 0)
            return result;
    }
    return 0;
}

static void set_true(void *argument)
{
    *(bool *)argument = true;
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
    int result = wait_for(daemon, &sampler->has_listed);
    bool has_sample = false;
    if (result == 0 && sampler->list_error.status) {
        *error = sampler->list_error;
        return -error->status;
    }
    if (result == 0 && daemon->gpu_count == 0)
        return error_set(error, ENODEV, NULL,
                         "the NVIDIA driver shows no GPU, nor any MIG instance of one in MIG mode; add "
                         "--simulated for a simulated one");
    if (result == 0) {
        gpu_refresh(daemon, set_true, &has_sample);
        result = wait_for(daemon, &has_sample);
    }
    if (result < 0)
        return error_set_errno(error, -result, "NVML has not listed the GPUs within %llu s",
                               (unsigned long long)START_USEC / 1000000);
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        if (!daemon->gpus[i].healthy)
            return error_set(error, EIO, NULL, "NVML does not say how much memory GPU %s has; see nvidia-smi",
                             daemon->gpus[i].label);
    return 0;
}

int gpu_start(struct daemon *daemon, const char *library, struct error *error)
{
    struct gpu_sampler *sampler = calloc(1, sizeof(*sampler));
    if (!sampler)
        return error_set_errno(error, ENOMEM, "cannot start the GPU sampler");
    daemon->sampler = sampler;
    sampler->daemon = daemon;
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
    bool has_stopped = worker_stop(sampler->worker, STOP_SECONDS); /* not from inside a hung driver */
    sd_event_source_disable_unref(sampler->timeout);
    daemon->sampler = NULL;
    if (!has_stopped)
        return;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        free(daemon->gpus[i].processes);
    nvml_free(sampler->nvml);
    free(sampler);
}

/* --- Finding --------------------------------------------------------------------------------------- */

int gpu_find_uuid(const struct daemon *daemon, const uint8_t uuid[static GPU_UUID_BYTES])
{
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        if (memcmp(daemon->gpus[i].uuid, uuid, GPU_UUID_BYTES) == 0)
            return (int)i;
    return -1;
}

static bool begins_with(const struct gpu *gpu, const char *text)
{
    size_t length = strlen(text);
    return strncasecmp(gpu->uuid_text, text, length) == 0 ||
           strncasecmp(gpu->uuid_text + strlen("GPU-"), text, length) == 0; /* or "MIG-" */
}

static int find_label(const struct daemon *daemon, const char *text, unsigned *gpu, struct error *error)
{
    const size_t length = strlen(text);
    const struct gpu *instance = NULL;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        const char *label = daemon->gpus[i].label;
        if (strcmp(label, text) == 0) {
            *gpu = i;
            return 0;
        }
        if (strncmp(label, text, length) == 0 && label[length] == ':')
            instance = &daemon->gpus[i];
    }
    if (instance)
        return error_set(
            error, ENOENT, "ERR_GPU_NOT_FOUND",
            "GPU %s is in MIG mode; name one of its instances, like %s, as GET /v1/gpus lists them", text,
            instance->label);
    return error_set(error, ENOENT, "ERR_GPU_NOT_FOUND",
                     "there is no GPU %.40s; there are %u, counted from 0", text, daemon->gpu_count);
}

int gpu_find(const struct daemon *daemon, const char *text, unsigned *gpu, struct error *error)
{
    uint64_t index;
    /* Up to three digits are an index; more may begin a UUID. */
    if ((strlen(text) <= 3 && units_parse_number(text, 999, &index, NULL) == 0) || strchr(text, ':'))
        return find_label(daemon, text, gpu, error);
    unsigned count = 0;
    for (unsigned i = 0; i < daemon->gpu_count && *text; i++) {
        if (!begins_with(&daemon->gpus[i], text))
            continue;
        *gpu = i;
        count++;
    }
    if (count > 1)
        return error_set(error, EBUSY, "ERR_AMBIGUOUS",
                         "the UUIDs of %u GPUs begin with '%.80s'; give more of it", count, text);
    if (count == 0)
        return error_set(
            error, ENOENT, "ERR_GPU_NOT_FOUND",
            "'%.80s' is no GPU; expected an index or the beginning of a UUID, as GET /v1/gpus lists them",
            text);
    return 0;
}

uint64_t gpu_reserved(const struct daemon *daemon, unsigned gpu, const struct session *except)
{
    uint64_t sum = 0;
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; session != except && i < session->gpu_count; i++)
            if (session->gpus[i].gpu == (int)gpu && session->gpus[i].reserved &&
                __builtin_add_overflow(sum, session->gpus[i].limit_bytes, &sum))
                return UINT64_MAX;
    return sum;
}

uint64_t gpu_held_by_others(const struct daemon *daemon, unsigned gpu)
{
    const struct gpu *card = &daemon->gpus[gpu];
    uint64_t sum = 0, ticks;
    for (unsigned i = 0; i < card->process_count; i++) {
        const struct nvml_process *process = &card->processes[i];
        /* The sample may be older than a death. */
        if (reaper_session_of(daemon, process->pid) || process_start_time(process->pid, &ticks) == -ESRCH)
            continue;
        if (__builtin_add_overflow(sum, process->used_bytes, &sum))
            return UINT64_MAX;
    }
    return sum;
}

/* --- What a context costs -------------------------------------------------------------------------- */

struct gpu_measurement {
    struct nvml_job *job; /* under way; its measurement is NULL once nobody waits */
    struct process *process;
    unsigned policy_gpu, gpu;
    struct ledger_slot_sample slot_before;
    uint64_t granted_before;
    sd_event_source *timeout;
    void (*done)(void *argument, uint64_t bytes);
    void *argument;
};

static void keep_context_cost(struct daemon *daemon, unsigned gpu, uint64_t bytes)
{
    daemon->gpus[gpu].context_bytes = bytes;
    for (struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            if (session->gpus[i].gpu == (int)gpu && session->ledger.policy)
                atomic_store_explicit(&session->ledger.policy->gpus[i].context_bytes, bytes,
                                      memory_order_release);
    store_put_context_cost(daemon, daemon->gpus[gpu].uuid, bytes);
    log_info("a context on GPU %s costs %llu bytes", daemon->gpus[gpu].label, (unsigned long long)bytes);
}

void gpu_measure_cancel(struct gpu_measurement *measurement)
{
    if (measurement->job)
        measurement->job->measurement = NULL;
    measurement->process->measurement = NULL;
    sd_event_source_disable_unref(measurement->timeout);
    free(measurement);
}

static void end_measurement(struct gpu_measurement *measurement, uint64_t bytes)
{
    void (*done)(void *, uint64_t) = measurement->done;
    void *argument = measurement->argument;
    gpu_measure_cancel(measurement);
    done(argument, bytes);
}

static int on_measure_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    end_measurement(userdata, 0);
    return 0;
}

/* The slot's bytes, and a count that moves with every grant, so that one there and back is seen too. */
static void look_at_slot(const struct gpu_measurement *measurement, struct ledger_slot_sample *look,
                         uint64_t *granted)
{
    const struct ledger_usage *usage = measurement->process->session->ledger.usage;
    *look = ledger_slot_sample(usage, measurement->process->slot, measurement->policy_gpu);
    *granted = ledger_slot_counts(usage, measurement->process->slot, measurement->policy_gpu).granted;
}

static bool begin_measurement(struct gpu_measurement *measurement);

static void on_measured(struct worker_job *worker_job)
{
    struct nvml_job *job = (struct nvml_job *)worker_job;
    struct gpu_measurement *measurement = job->measurement;
    if (!measurement) {
        nvml_sample_free(job);
        return;
    }
    measurement->job = NULL;
    struct ledger_slot_sample look;
    uint64_t granted, shown = 0;
    look_at_slot(measurement, &look, &granted);
    const struct nvml_sample *sample = &job->samples[measurement->gpu];
    for (unsigned i = 0; i < sample->process_count; i++)
        if (sample->processes[i].pid == measurement->process->pid)
            shown += sample->processes[i].used_bytes;
    nvml_sample_free(job);

    /* It is moving, of course: its first context. */
    if (look.bytes != measurement->slot_before.bytes ||
        look.hidden_bytes != measurement->slot_before.hidden_bytes ||
        granted != measurement->granted_before) {
        if (!begin_measurement(measurement))
            end_measurement(measurement, 0);
        return;
    }
    struct daemon *daemon = measurement->process->session->daemon;
    uint64_t bytes = look.bytes - look.hidden_bytes;
    uint64_t cost = shown > bytes ? shown - bytes : 0;
    /* More than the card has is no answer. */
    if (cost >= daemon->gpus[measurement->gpu].total_bytes)
        cost = 0;
    if (cost && daemon->gpus[measurement->gpu].context_bytes == 0)
        keep_context_cost(daemon, measurement->gpu, cost);
    end_measurement(measurement, cost);
}

static bool begin_measurement(struct gpu_measurement *measurement)
{
    struct gpu_sampler *sampler = measurement->process->session->daemon->sampler;
    struct nvml_job *job = make_job(sampler, measurement->gpu, measurement->gpu, on_measured);
    if (!job)
        return false;
    job->measurement = measurement;
    measurement->job = job;
    look_at_slot(measurement, &measurement->slot_before, &measurement->granted_before);
    worker_submit(sampler->worker, &job->job);
    return true;
}

struct gpu_measurement *gpu_measure_context(struct process *process, unsigned policy_gpu,
                                            void (*done)(void *argument, uint64_t bytes), void *argument)
{
    struct daemon *daemon = process->session->daemon;
    struct gpu_measurement *measurement = calloc(1, sizeof(*measurement));
    if (!measurement)
        return NULL;
    *measurement = (struct gpu_measurement){
        .process = process,
        .policy_gpu = policy_gpu,
        .gpu = (unsigned)process->session->gpus[policy_gpu].gpu,
        .done = done,
        .argument = argument,
    };
    if (sd_event_add_time_relative(daemon->loop, &measurement->timeout, CLOCK_MONOTONIC, MEASURE_TIMEOUT_USEC,
                                   1000, on_measure_timeout, measurement) < 0 ||
        !begin_measurement(measurement)) {
        sd_event_source_disable_unref(measurement->timeout);
        free(measurement);
        return NULL;
    }
    process->measurement = measurement;
    return measurement;
}
