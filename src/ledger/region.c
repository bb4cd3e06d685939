/* region.c - making the two regions of a ledger, and checking what was mapped. */
#include <string.h>

#include "ledger/usage.h"

_Static_assert(offsetof(struct ledger_policy, gpu_count) == 12 &&
                   offsetof(struct ledger_policy, gpus) == 64 && sizeof(struct ledger_policy_gpu) == 64 &&
                   offsetof(struct ledger_policy_gpu, uuid) == 0 &&
                   offsetof(struct ledger_policy_gpu, busy) == 60,
               "programs read the policy by what libgpuslice(7) says");

static size_t whole_pages(size_t bytes)
{
    return (bytes + USAGE_PAGE_BYTES - 1) / USAGE_PAGE_BYTES * USAGE_PAGE_BYTES;
}

size_t ledger_usage_bytes(void)
{
    return whole_pages(sizeof(struct ledger_usage));
}

size_t ledger_usage_touched_bytes(unsigned gpu_count)
{
    unsigned count = gpu_count < LEDGER_GPUS ? gpu_count : LEDGER_GPUS;
    return whole_pages(offsetof(struct ledger_usage, gpus) + count * sizeof(struct usage_gpu));
}

void ledger_policy_init(struct ledger_policy *policy, const char *session_id, uint64_t epoch)
{
    policy->magic = LEDGER_MAGIC;
    policy->layout = LEDGER_LAYOUT;
    policy->gpu_count = 0;
    policy->epoch = epoch;
    size_t length = strnlen(session_id, sizeof policy->session_id - 1);
    memcpy(policy->session_id, session_id, length);
    policy->session_id[length] = '\0';
}

void ledger_usage_init(struct ledger_usage *usage, uint64_t epoch)
{
    usage->magic = LEDGER_MAGIC;
    usage->layout = LEDGER_LAYOUT;
    atomic_store_explicit(&usage->epoch, epoch, memory_order_release);
}

bool ledger_policy_is_valid(const struct ledger_policy *policy, size_t mapped_bytes)
{
    return mapped_bytes >= sizeof *policy && policy->magic == LEDGER_MAGIC &&
           policy->layout == LEDGER_LAYOUT && policy->gpu_count <= LEDGER_GPUS &&
           memchr(policy->session_id, '\0', sizeof policy->session_id);
}

bool ledger_usage_is_valid(const struct ledger_usage *usage, size_t mapped_bytes)
{
    return mapped_bytes >= sizeof *usage && usage->magic == LEDGER_MAGIC && usage->layout == LEDGER_LAYOUT;
}

uint64_t ledger_epoch(const struct ledger_usage *usage)
{
    return atomic_load_explicit(&usage->epoch, memory_order_acquire);
}

void ledger_epoch_set(struct ledger_usage *usage, uint64_t epoch)
{
    /* Pairs with ledger_epoch(): a process that sees the new epoch asks for a policy that exists. */
    atomic_store_explicit(&usage->epoch, epoch, memory_order_release);
}

int ledger_gpu_find(const struct ledger_policy *policy, const uint8_t uuid[static 16])
{
    for (unsigned gpu = 0; gpu < policy->gpu_count && gpu < LEDGER_GPUS; gpu++)
        if (memcmp(policy->gpus[gpu].uuid, uuid, sizeof policy->gpus[gpu].uuid) == 0)
            return (int)gpu;
    return -1;
}
