#include "intercept/session/standalone.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/units.h"
#include "cuda/nvml_entries.h"
#include "cuda/uuid.h"
#include "intercept/resolve/real.h"
#include "intercept/session/limits.h"

/* If NVML shows more processes than this on a GPU, none of them is looked at. */
#define PROCESSES_MOST 256u

/* Of this process; standalone_open() reads them from the settings. Where the settings say nothing about memory, it is
 * not limited; where they say nothing about compute, there is no cap. */
static struct limits memory, compute;

/* What GPUSLICE_OVERSUBSCRIBE says. */
static enum ledger_engine engine;
static uint64_t move_us;

/* The cap of each GPU of the policy, in ten-thousandths of the time; set before the GPU is in the policy. */
static _Atomic uint32_t caps[LEDGER_GPUS];

static void *private_memory(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    madvise(pages, bytes, MADV_DONTFORK);
    return pages;
}

/* "swap" or "managed", or "swap,5ms" with the time between moves; empty: plain. */
static int parse_engine(const char *text, struct error *error)
{
    static const char *const names[] = {[LEDGER_ENGINE_SWAP] = "swap", [LEDGER_ENGINE_MANAGED] = "managed"};
    size_t length = strcspn(text, ",");
    struct error cause;
    engine = LEDGER_ENGINE_PLAIN;
    move_us = 0;
    for (unsigned i = LEDGER_ENGINE_SWAP; i < sizeof(names) / sizeof(names[0]); i++)
        if (length == strlen(names[i]) && strncmp(text, names[i], length) == 0)
            engine = i;
    bool is_whole = text[length] == '\0';
    if (engine == LEDGER_ENGINE_PLAIN
            ? !*text
            : is_whole || units_parse_duration(text + length + 1, &move_us, &cause) == 0)
        return 0;
    return error_set(
        error, EINVAL, NULL,
        "GPUSLICE_OVERSUBSCRIBE is '%s'; expected 'swap' or 'managed', or 'swap,5ms' to have memory "
        "moved that often",
        text);
}

uint64_t standalone_move_ns(void)
{
    return move_us * 1000;
}

int standalone_open(const struct session_settings *settings, struct lock *lock, struct attachment *attachment,
                    struct error *error)
{
    memory = (struct limits){.every_gpu = true, .every_gpu_amount = LEDGER_UNLIMITED};
    compute = (struct limits){.every_gpu = true, .every_gpu_amount = SHARE_WHOLE};
    struct error cause;
    if (*settings->limit && limits_parse(settings->limit, &memory, &cause) < 0)
        return error_set(error, EINVAL, NULL, "GPUSLICE_MEMORY_LIMIT, or what stands for it: %s",
                         cause.message);
    if (*settings->compute && limits_parse_shares(settings->compute, &compute, &cause) < 0)
        return error_set(error, EINVAL, NULL, "GPUSLICE_COMPUTE_LIMIT, or what stands for it: %s",
                         cause.message);
    if (parse_engine(settings->oversubscribe, error) < 0)
        return -EINVAL;
    struct ledger_policy *policy = private_memory(LEDGER_POLICY_BYTES);
    struct ledger_usage *usage = policy ? private_memory(ledger_usage_bytes()) : NULL;
    if (!usage) {
        if (policy)
            munmap(policy, LEDGER_POLICY_BYTES);
        return error_set_errno(error, ENOMEM, "no memory for a ledger");
    }
    ledger_policy_init(policy, "standalone", 1);
    policy->engine = engine;
    policy->may_pass_card = settings->may_pass_card;
    ledger_usage_init(usage, 1);

    uint64_t generation = 0;
    int slot = ledger_slot_claim(usage, (struct ledger_owner){.pid = getpid()}, &generation);
    *attachment = (struct attachment){
        .slot = {.ledger = {policy, usage}, .index = (uint32_t)slot, .generation = generation, .lock = lock},
        .epoch = 1,
        .standalone = true,
    };
    return 0;
}

/* Find a GPU, or a MIG instance, in NVML. If it is found, the caller must call nvmlShutdown(). */
static bool find_in_nvml(const uint8_t uuid[static 16], nvmlDevice_t *device)
{
    char text[GPU_UUID_TEXT];
    if (!real_nvml_ready() || !real_nvml(nvmlInit_v2) || !real_nvml(nvmlShutdown) ||
        !real_nvml(nvmlDeviceGetHandleByUUID) || real_nvml(nvmlInit_v2)() != NVML_SUCCESS)
        return false;
    if (real_nvml(nvmlDeviceGetHandleByUUID)(gpu_uuid_format(uuid, text), device) == NVML_SUCCESS)
        return true;
    gpu_uuid_set_mig(text);
    if (real_nvml(nvmlDeviceGetHandleByUUID)(text, device) == NVML_SUCCESS)
        return true;
    real_nvml(nvmlShutdown)();
    return false;
}

/* NVML's index of a GPU. CUDA's ordinal does if NVML cannot be asked: without CUDA_VISIBLE_DEVICES, the two differ
 * only where CUDA puts the fastest GPU first. */
static int nvml_index(const uint8_t uuid[static 16], int ordinal)
{
    nvmlDevice_t device;
    unsigned index;
    if (!find_in_nvml(uuid, &device))
        return ordinal;
    if (real_nvml(nvmlDeviceGetIndex) && real_nvml(nvmlDeviceGetIndex)(device, &index) == NVML_SUCCESS)
        ordinal = (int)index;
    real_nvml(nvmlShutdown)();
    return ordinal;
}

/* The bytes that NVML shows for this process on a GPU; 0 if it shows none. */
static uint64_t shown_bytes(nvmlDevice_t device)
{
    char entries[PROCESSES_MOST * NVML_ENTRY_BYTES_MOST];
    unsigned count = PROCESSES_MOST;
    nvmlReturn_t result = NVML_ERROR_FUNCTION_NOT_FOUND;
    nvml_entries_prepare(entries, PROCESSES_MOST);
    if (real_nvml(nvmlDeviceGetComputeRunningProcesses_v3))
        result = real_nvml(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, (void *)entries);
    else if (real_nvml(nvmlDeviceGetComputeRunningProcesses_v2))
        result = real_nvml(nvmlDeviceGetComputeRunningProcesses_v2)(device, &count, (void *)entries);
    else if (real_nvml(nvmlDeviceGetComputeRunningProcesses))
        result = real_nvml(nvmlDeviceGetComputeRunningProcesses)(device, &count, (void *)entries);
    size_t length = result == NVML_SUCCESS ? nvml_entries_length(entries, PROCESSES_MOST, count) : 0;
    uint64_t sum = 0;
    for (unsigned i = 0; length && i < count; i++) {
        nvmlProcessInfo_v1_t head; /* all forms begin like this one */
        memcpy(&head, entries + i * length, sizeof(head));
        if (head.pid == (unsigned)getpid() && head.usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_U64)
            sum += head.usedGpuMemory;
    }
    return sum;
}

uint64_t standalone_context_cost(const struct ledger_slot *slot, uint32_t gpu)
{
    /* This policy is ours alone, and writable; all others are the daemon's. */
    struct ledger_policy *policy = (struct ledger_policy *)(uintptr_t)slot->ledger.policy;
    nvmlDevice_t device;
    if (atomic_load_explicit(&policy->gpus[gpu].limit_bytes, memory_order_relaxed) == LEDGER_UNLIMITED ||
        !find_in_nvml(policy->gpus[gpu].uuid, &device))
        return 0;
    uint64_t shown = shown_bytes(device),
             charged = ledger_slot_shown_bytes(slot->ledger.usage, slot->index, gpu);
    real_nvml(nvmlShutdown)();
    uint64_t cost = shown > charged ? shown - charged : 0;
    atomic_store_explicit(&policy->gpus[gpu].context_bytes, cost, memory_order_relaxed);
    return cost;
}

static bool names_an_index(const struct limits *limits)
{
    for (uint32_t i = 0; i < limits->count; i++)
        if (!limits->rows[i].by_uuid)
            return true;
    return false;
}

int standalone_add_gpu(struct ledger *ledger, const uint8_t uuid[static 16], int ordinal)
{
    /* This policy is ours alone, and writable; all others are the daemon's. */
    struct ledger_policy *policy = (struct ledger_policy *)(uintptr_t)ledger->policy;
    uint64_t bytes, cap = SHARE_WHOLE;
    uint32_t index = policy->gpu_count;
    bool asks_nvml = names_an_index(&memory) || names_an_index(&compute);
    int known_as = asks_nvml ? nvml_index(uuid, ordinal) : -1;
    if (index == LEDGER_GPUS || !limits_find(&memory, uuid, known_as, &bytes))
        return -1;
    limits_find(&compute, uuid, known_as, &cap);
    atomic_store_explicit(&caps[index], (uint32_t)cap, memory_order_relaxed);
    struct ledger_policy_gpu *gpu = &policy->gpus[index];
    memcpy(gpu->uuid, uuid, 16);
    atomic_store_explicit(&gpu->limit_bytes, bytes, memory_order_relaxed);
    /* Threads that look GPUs up without the lock see the row before the count that includes it. */
    __atomic_store_n(&policy->gpu_count, index + 1, __ATOMIC_RELEASE);
    return (int)index;
}

uint32_t standalone_cap(uint64_t gpus)
{
    uint32_t least = SHARE_WHOLE;
    for (unsigned i = 0; i < LEDGER_GPUS; i++) {
        uint32_t cap = atomic_load_explicit(&caps[i], memory_order_relaxed);
        if ((gpus >> i & 1) && cap < least)
            least = cap;
    }
    return least;
}
