#include "intercept/standalone.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/uuid.h"
#include "intercept/limits.h"
#include "intercept/real.h"

/* Read once; a forked child finds them here when it makes a ledger of its own. */
static struct limits limits;

static void *private_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_DONTFORK);
    return memory;
}

int standalone_open(const char *text, struct lock *turn, struct attachment *attachment, struct error *error)
{
    int result = limits_parse(text, &limits, error);
    if (result < 0)
        return result;
    struct ledger_policy *policy = private_memory(LEDGER_POLICY_BYTES);
    struct ledger_usage *usage = policy ? private_memory(ledger_usage_bytes()) : NULL;
    if (!usage) {
        if (policy)
            munmap(policy, LEDGER_POLICY_BYTES);
        return error_set_errno(error, ENOMEM, "no memory for a ledger");
    }
    ledger_policy_init(policy, "standalone", 1);
    ledger_usage_init(usage, 1);

    uint64_t generation = 0;
    int slot = ledger_slot_claim(usage, (struct ledger_owner){.pid = getpid()}, &generation);
    *attachment = (struct attachment){
        .slot = {.ledger = {policy, usage}, .index = (uint32_t)slot, .generation = generation, .turn = turn},
        .epoch = 1,
        .standalone = true,
    };
    return 0;
}

/* NVML's index of a GPU. CUDA's ordinal does where NVML cannot be asked: without CUDA_VISIBLE_DEVICES, they
 * differ only where CUDA puts the fastest GPU first. */
static int nvml_index(const uint8_t uuid[static 16], int ordinal)
{
    char text[GPU_UUID_TEXT];
    nvmlDevice_t device;
    unsigned index;
    if (!real_nvml_ready() || !real_nvml(nvmlInit_v2) || !real_nvml(nvmlShutdown) ||
        !real_nvml(nvmlDeviceGetHandleByUUID) || !real_nvml(nvmlDeviceGetIndex) ||
        real_nvml(nvmlInit_v2)() != NVML_SUCCESS)
        return ordinal;
    if (real_nvml(nvmlDeviceGetHandleByUUID)(gpu_uuid_format(uuid, text), &device) == NVML_SUCCESS &&
        real_nvml(nvmlDeviceGetIndex)(device, &index) == NVML_SUCCESS)
        ordinal = (int)index;
    real_nvml(nvmlShutdown)();
    return ordinal;
}

static bool find_limit(const uint8_t uuid[static 16], int ordinal, uint64_t *bytes)
{
    bool index_known = false;
    int index = -1;
    if (limits.every_gpu) {
        *bytes = limits.every_gpu_bytes;
        return true;
    }
    for (uint32_t i = 0; i < limits.count; i++) {
        const struct limit *row = &limits.rows[i];
        if (!row->by_uuid && !index_known) {
            index = nvml_index(uuid, ordinal);
            index_known = true;
        }
        if (row->by_uuid ? memcmp(row->uuid, uuid, 16) == 0 : (int)row->index == index) {
            *bytes = row->bytes;
            return true;
        }
    }
    return false;
}

int standalone_add_gpu(struct ledger *ledger, const uint8_t uuid[static 16], int ordinal)
{
    /* Ours alone, and writable: every other policy is the daemon's. */
    struct ledger_policy *policy = (struct ledger_policy *)(uintptr_t)ledger->policy;
    uint64_t bytes;
    uint32_t index = policy->gpu_count;
    if (index == LEDGER_GPUS || !find_limit(uuid, ordinal, &bytes))
        return -1;
    struct ledger_policy_gpu *gpu = &policy->gpus[index];
    memcpy(gpu->uuid, uuid, 16);
    atomic_store_explicit(&gpu->limit_bytes, bytes, memory_order_relaxed);
    /* Threads that look GPUs up without the lock see the row before the count that includes it. */
    __atomic_store_n(&policy->gpu_count, index + 1, __ATOMIC_RELEASE);
    return (int)index;
}
