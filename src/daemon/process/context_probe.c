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
#include "cuda/prototypes.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/gpu/traits.h"
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

/* What the probe says, as it is on the pipe: before it has a context, when it has one, and before it ends. */
struct told {
    uint64_t cuda_bytes; /* the GPU's size; once there is a context, as programs see it */
    uint32_t traits, reserved;
};

/* --- The probe ------------------------------------------------------------------------------------- */

#define REACHED_BYTES (UINT64_C(2) << 20)

static void *driver_library;

static void *look_up(const char *symbol)
{
    void *function = dlsym(driver_library, symbol);
    if (!function) {
        fprintf(stderr, "the driver has no %s\n", symbol);
        exit(1);
    }
    return function;
}

/* The driver's function of that name, as cuda/prototypes.h declares it; the probe ends where there is none. */
#define DRIVER(name) ((__typeof__(&name))look_up(#name))

static void must(const char *call, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s answered %d\n", call, (int)result);
    exit(1);
}

/* 0 where the driver does not know the attribute: then it has not what the attribute is about. */
static int attribute_of(CUdevice device, CUdevice_attribute attribute)
{
    int value = 0;
    return DRIVER(cuDeviceGetAttribute)(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

static uint32_t traits_of(CUdevice device)
{
    static const struct {
        CUdevice_attribute attribute;
        int value; /* with which the GPU has the trait */
        enum gpu_trait trait;
    } rows[] = {{CU_DEVICE_ATTRIBUTE_INTEGRATED, 1, GPU_UNIFIED},
                {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0, GPU_NO_VMM},
                {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0, GPU_NO_PAGE_LOCK},
                {CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 1, GPU_HOST_NODE}};
    uint32_t traits = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (attribute_of(device, rows[i].attribute) == rows[i].value)
            traits |= GPU_TRAIT_BIT(rows[i].trait);
    return traits;
}

/* Whether the driver creates and maps memory for RDMA, which its attribute claims, and then refuses to let the device
 * reach it. Nothing is given back: the probe is about to end. */
static bool is_rdma_out_of_reach(CUdevice device)
{
    const CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                     .allocFlags.gpuDirectRDMACapable = 1};
    const CUmemAccessDesc access = {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    return attribute_of(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) &&
           DRIVER(cuMemAddressReserve)(&address, REACHED_BYTES, 0, 0, 0) == CUDA_SUCCESS &&
           DRIVER(cuMemCreate)(&handle, REACHED_BYTES, &how, 0) == CUDA_SUCCESS &&
           DRIVER(cuMemMap)(address, REACHED_BYTES, 0, handle, 0) == CUDA_SUCCESS &&
           DRIVER(cuMemSetAccess)(address, REACHED_BYTES, &access, 1) != CUDA_SUCCESS;
}

static void write_answer(const struct told *told)
{
    if (write(STDOUT_FILENO, told, sizeof(*told)) != sizeof(*told))
        exit(1);
}

int context_probe_run(const char *uuid, bool is_simulated)
{
    char byte;
    size_t free_bytes, total_bytes;
    struct error error;
    CUdevice device;
    CUcontext context;
    prctl(PR_SET_NAME, "gpuslice-probe");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    driver_library = driver_program_load(is_simulated, &error);
    if (!driver_library) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    must("cuInit", DRIVER(cuInit)(0));
    must("cuDeviceGet", DRIVER(cuDeviceGet)(&device, 0));
    must("cuDeviceTotalMem", DRIVER(cuDeviceTotalMem_v2)(&total_bytes, device));
    struct told told = {.cuda_bytes = total_bytes, .traits = traits_of(device)};
    write_answer(&told);
    must("cuDevicePrimaryCtxRetain", DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
    must("cuCtxSetCurrent", DRIVER(cuCtxSetCurrent)(context));
    must("cuCtxSynchronize", DRIVER(cuCtxSynchronize)());
    must("cuMemGetInfo", DRIVER(cuMemGetInfo_v2)(&free_bytes, &total_bytes));
    told.cuda_bytes = total_bytes;
    write_answer(&told);
    if (read(STDIN_FILENO, &byte, 1) != 0)
        return 1;
    /* The daemon has seen what the context takes, so memory may be made now. */
    if (!(told.traits & GPU_TRAIT_BIT(GPU_NO_VMM)) && is_rdma_out_of_reach(device))
        told.traits |= GPU_TRAIT_BIT(GPU_NO_RDMA_ACCESS);
    write_answer(&told);
    return 0;
}

/* --- The daemon ------------------------------------------------------------------------------------ */

struct probe {
    unsigned gpu;
    pid_t pid; /* 0: none, or it has ended */
    int to, from;
    bool is_ready; /* it has a context */
    bool has_told; /* `told` is what it said last */
    struct told told;
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

/* Take what the probe says next, in `end_usec` at the latest. */
static bool hear(struct probe *probe, uint64_t end_usec)
{
    struct pollfd wanted = {.fd = probe->from, .events = POLLIN};
    struct told told;
    uint64_t now = daemon_now_usec();
    if (!probe->pid || poll(&wanted, 1, now < end_usec ? (int)((end_usec - now) / 1000) : 0) <= 0 ||
        read(probe->from, &told, sizeof(told)) != sizeof(told))
        return false;
    probe->told = told;
    return probe->has_told = true;
}

/* Wait until each probe has its context, or has ended. */
static void await_contexts(struct probe *probes, unsigned count)
{
    uint64_t end_usec = daemon_now_usec() + MAKE_USEC;
    for (unsigned i = 0; i < count; i++)
        probes[i].is_ready = hear(&probes[i], end_usec) && hear(&probes[i], end_usec);
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
static void end_probe(struct daemon *daemon, struct probe *probe)
{
    if (!probe->pid)
        return;
    close(probe->to);
    if (ends_within(probe->pid, END_USEC)) {
        if (probe->is_ready && hear(probe, 0)) /* it has looked closer before it gave up its context */
            gpu_take_traits(&daemon->gpus[probe->gpu], probe->told.traits);
    } else {
        kill(probe->pid, SIGKILL);
        if (!ends_within(probe->pid, KILLED_USEC))
            log_warning(
                "process %d, which made a context on a GPU to measure its cost, does not die of SIGKILL",
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
static struct seen look_at_gpu(struct daemon *daemon, unsigned gpu, pid_t pid)
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
    uint64_t total_bytes = card->total_bytes;
    gpu_take_traits(card, probe->told.traits);
    gpu_take_cuda_bytes(card, probe->told.cuda_bytes);
    if (card->kept_bytes == kept_bytes && card->total_bytes == total_bytes)
        return;
    if (card->kept_bytes != kept_bytes)
        log_info("GPU %s: the driver keeps %llu bytes for itself, and NVML says %llu", card->label,
                 (unsigned long long)card->kept_bytes, (unsigned long long)kept_bytes);
    for (struct session *session = daemon->sessions; session; session = session->next)
        policy_publish(session);
}

static void learn_cost(struct daemon *daemon, struct probe *probe)
{
    const struct gpu *card = &daemon->gpus[probe->gpu];
    struct seen seen = look_at_gpu(daemon, probe->gpu, probe->pid);
    uint64_t risen = seen.device_bytes > probe->before_bytes ? seen.device_bytes - probe->before_bytes : 0;
    bool is_listed = seen.process_bytes != 0;
    end_probe(daemon, probe);
    if (!seen.ok || (!is_listed && !risen))
        return;
    if (!is_listed) {
        struct seen after = look_at_gpu(daemon, probe->gpu, 0);
        if (!after.ok || after.device_bytes != probe->before_bytes)
            return; /* something else changed it */
        log_info("NVML has no figure for a process on GPU %s; the daemon takes the rise of the whole GPU's "
                 "figure as the cost of a context",
                 card->label);
    }
    context_cost_replace(daemon, probe->gpu, is_listed ? seen.process_bytes : risen);
}

static void tell_traits(const struct daemon *daemon)
{
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        for (unsigned trait = 0; trait < GPU_TRAITS; trait++)
            if (gpu_has(&daemon->gpus[i], (enum gpu_trait)trait))
                log_info("GPU %s: %s", daemon->gpus[i].label, gpu_trait_text((enum gpu_trait)trait));
}

int context_probe_start(struct daemon *daemon, struct error *error)
{
    struct probe *probes = calloc(daemon->gpu_count ? daemon->gpu_count : 1, sizeof(*probes));
    unsigned count = 0;
    for (unsigned i = 0; probes && i < daemon->gpu_count; i++) {
        struct gpu *gpu = &daemon->gpus[i];
        if (gpu->context_bytes && gpu->cuda_bytes && gpu->knows_traits)
            continue;
        probes[count] = (struct probe){.gpu = i, .before_bytes = gpu->used_bytes + gpu->kept_bytes};
        int result = spawn(&probes[count], gpu->uuid_text, daemon->options.simulated);
        if (result == 0)
            count++;
        else
            log_warning("the cost of a context on GPU %s is unknown until a program has a context: %s",
                        gpu->label, strerror(result));
    }
    await_contexts(probes, count);
    for (unsigned i = 0; i < count; i++) {
        if (probes[i].has_told)
            learn_size(daemon, &probes[i]);
        if (probes[i].is_ready)
            learn_cost(daemon, &probes[i]);
        end_probe(daemon, &probes[i]);
    }
    tell_traits(daemon);
    free(probes);
    return 0;
}
