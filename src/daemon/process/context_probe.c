#include "daemon/process/context_probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/driver.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/process/context_cost.h"
#include "daemon/process/driver_program.h"
#include "daemon/session/policy.h"
#include "daemon/session/session.h"

/* A first context may make the kernel load the driver, and wake the card. */
#define MAKE_USEC UINT64_C(15000000)
#define LOOK_USEC UINT64_C(2000000)
#define END_USEC UINT64_C(5000000)
#define KILLED_USEC UINT64_C(1000000)

/* --- The probe ------------------------------------------------------------------------------------- */

static void *look_up(void *library, const char *symbol)
{
    void *function = dlsym(library, symbol);
    if (!function) {
        fprintf(stderr, "the driver has no %s\n", symbol);
        exit(1);
    }
    return function;
}

static void must(const char *call, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s answered %d\n", call, (int)result);
    exit(1);
}

int context_probe_run(const char *uuid, bool is_simulated)
{
    char byte;
    size_t free_bytes, total_bytes;
    uint64_t told_bytes;
    struct error error;
    prctl(PR_SET_NAME, "gpuslice-probe");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    void *library = driver_program_load(is_simulated, &error);
    if (!library) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    CUdevice device;
    CUcontext context;
    CUresult (*initialise)(unsigned), (*get)(CUdevice *, int), (*retain)(CUcontext *, CUdevice),
        (*set_current)(CUcontext), (*synchronise)(void), (*memory)(size_t *, size_t *);
    const struct {
        const char *name;
        void *place;
    } symbols[] = {{"cuInit", &initialise},
                   {"cuDeviceGet", &get},
                   {"cuDevicePrimaryCtxRetain", &retain},
                   {"cuCtxSetCurrent", &set_current},
                   {"cuCtxSynchronize", &synchronise},
                   {"cuMemGetInfo_v2", &memory}};
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = look_up(library, symbols[i].name);
        memcpy(symbols[i].place, &function, sizeof(function));
    }
    must("cuInit", initialise(0));
    must("cuDeviceGet", get(&device, 0));
    must("cuDevicePrimaryCtxRetain", retain(&context, device));
    must("cuCtxSetCurrent", set_current(context));
    must("cuCtxSynchronize", synchronise());
    must("cuMemGetInfo", memory(&free_bytes, &total_bytes));
    told_bytes = total_bytes;
    if (write(STDOUT_FILENO, &told_bytes, sizeof(told_bytes)) != sizeof(told_bytes))
        return 1;
    return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;
}

/* --- The daemon ------------------------------------------------------------------------------------ */

struct probe {
    unsigned gpu;
    pid_t pid; /* 0: none, or it has ended */
    int to, from;
    bool is_ready;         /* it has a context */
    uint64_t cuda_bytes;   /* the GPU's size, as it was told there */
    uint64_t before_bytes; /* what was used of the GPU, and kept by the driver */
};

static int spawn(struct probe *probe, char *uuid, bool is_simulated)
{
    char *words[] = {"gpusliced", "--probe-context", uuid, is_simulated ? "--simulated" : NULL, NULL};
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) < 0)
        return errno;
    if (pipe2(from, O_CLOEXEC) < 0) {
        close(to[0]);
        close(to[1]);
        return errno;
    }
    int result = driver_program_start(words, to[0], from[1], &probe->pid);
    close(to[0]);
    close(from[1]);
    if (result != 0) {
        probe->pid = 0;
        close(to[1]);
        close(from[0]);
        return result;
    }
    probe->to = to[1];
    probe->from = from[0];
    return 0;
}

/* Wait until each probe has its context, or has ended. */
static void await_contexts(struct probe *probes, unsigned count)
{
    uint64_t end_usec = daemon_now_usec() + MAKE_USEC;
    for (unsigned i = 0; i < count; i++) {
        struct pollfd wanted = {.fd = probes[i].from, .events = POLLIN};
        uint64_t now = daemon_now_usec();
        probes[i].is_ready =
            probes[i].pid && poll(&wanted, 1, now < end_usec ? (int)((end_usec - now) / 1000) : 0) > 0 &&
            read(probes[i].from, &probes[i].cuda_bytes, sizeof(uint64_t)) == sizeof(uint64_t);
    }
}

static bool ends_within(pid_t pid, uint64_t usec)
{
    uint64_t end_usec = daemon_now_usec() + usec;
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (daemon_now_usec() > end_usec)
            return false;
        usleep(1000);
    }
    return true;
}

/* A process that hangs inside the kernel does not die of SIGKILL: the daemon goes on without it. */
static void end_probe(struct probe *probe)
{
    if (!probe->pid)
        return;
    close(probe->to);
    if (!ends_within(probe->pid, END_USEC)) {
        kill(probe->pid, SIGKILL);
        if (!ends_within(probe->pid, KILLED_USEC))
            log_warning(
                "process %d, which made a context on a GPU to see what one costs, does not die of SIGKILL",
                (int)probe->pid);
    }
    close(probe->from);
    probe->pid = 0;
}

struct seen {
    bool is_over;
    bool ok;
    pid_t pid; /* the process whose bytes are wanted */
    uint64_t device_bytes, process_bytes;
};

static void on_looked(void *argument, const struct nvml_sample *sample)
{
    struct seen *seen = argument;
    seen->is_over = true;
    seen->ok = sample->ok;
    seen->device_bytes = sample->memory.used_bytes;
    for (unsigned i = 0; i < sample->process_count; i++)
        if (sample->processes[i].pid == seen->pid)
            seen->process_bytes += sample->processes[i].used_bytes;
}

/* What NVML shows of a GPU and of a process on it; not `ok` if NVML does not answer in time. */
static struct seen look(struct daemon *daemon, unsigned gpu, pid_t pid)
{
    struct seen seen = {.pid = pid};
    struct gpu_look *under_way = gpu_look(daemon, gpu, on_looked, &seen);
    uint64_t end_usec = daemon_now_usec() + LOOK_USEC;
    while (under_way && !seen.is_over) {
        uint64_t now = daemon_now_usec();
        if (now >= end_usec || sd_event_run(daemon->loop, end_usec - now) < 0) {
            gpu_look_cancel(under_way);
            break;
        }
    }
    return seen;
}

/* From here on programs can have as much of the GPU as CUDA says. */
static void learn_size(struct daemon *daemon, const struct probe *probe)
{
    struct gpu *card = &daemon->gpus[probe->gpu];
    uint64_t kept_bytes = card->kept_bytes;
    gpu_take_cuda_bytes(card, probe->cuda_bytes);
    if (card->kept_bytes == kept_bytes)
        return;
    log_info("GPU %s: the driver keeps %llu bytes for itself, and NVML says %llu", card->label,
             (unsigned long long)card->kept_bytes, (unsigned long long)kept_bytes);
    for (struct session *session = daemon->sessions; session; session = session->next)
        policy_publish(session);
}

static void learn_cost(struct daemon *daemon, struct probe *probe)
{
    const struct gpu *card = &daemon->gpus[probe->gpu];
    struct seen seen = look(daemon, probe->gpu, probe->pid);
    uint64_t risen = seen.device_bytes > probe->before_bytes ? seen.device_bytes - probe->before_bytes : 0;
    bool is_listed = seen.process_bytes != 0;
    end_probe(probe);
    if (!seen.ok || (!is_listed && !risen))
        return;
    if (!is_listed) {
        struct seen after = look(daemon, probe->gpu, 0);
        if (!after.ok || after.device_bytes != probe->before_bytes)
            return; /* something else changed it */
        log_info("NVML has no figure for a process on GPU %s; what a context costs is what the whole GPU's "
                 "rose by",
                 card->label);
    }
    context_cost_replace(daemon, probe->gpu, is_listed ? seen.process_bytes : risen);
}

int context_probe_start(struct daemon *daemon, struct error *error)
{
    struct probe *probes = calloc(daemon->gpu_count ? daemon->gpu_count : 1, sizeof(*probes));
    unsigned count = 0;
    for (unsigned i = 0; probes && i < daemon->gpu_count; i++) {
        struct gpu *gpu = &daemon->gpus[i];
        if (gpu->context_bytes && gpu->cuda_bytes)
            continue;
        probes[count] = (struct probe){.gpu = i, .before_bytes = gpu->used_bytes + gpu->kept_bytes};
        int result = spawn(&probes[count], gpu->uuid_text, daemon->options.simulated);
        if (result == 0)
            count++;
        else
            log_warning("what a context on GPU %s costs is not known before a program has one: %s",
                        gpu->label, strerror(result));
    }
    await_contexts(probes, count);
    for (unsigned i = 0; i < count; i++) {
        if (probes[i].is_ready) {
            learn_size(daemon, &probes[i]);
            learn_cost(daemon, &probes[i]);
        }
        end_probe(&probes[i]);
    }
    free(probes);
    return 0;
}
