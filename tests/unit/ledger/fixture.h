/* fixture.h - a ledger in memory for tests: one policy, one usage region, slots on demand. */
#pragma once

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "ledger/usage.h"

#define TEST_PID 4242
#define GIB (UINT64_C(1) << 30)

struct fixture {
    struct ledger_policy *policy;
    struct ledger_usage *usage;
    struct ledger ledger;
    struct lock turns[LEDGER_SLOTS];
};

static inline void *fixture_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* Two GPUs of 1 GiB each. */
static inline int fixture_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->policy = fixture_map(LEDGER_POLICY_BYTES);
    fixture->usage = fixture_map(ledger_usage_bytes());
    ledger_policy_init(fixture->policy, "0123456789ab", 7);
    fixture->policy->gpu_count = 2;
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        fixture->policy->gpus[gpu].uuid[0] = (uint8_t)(0xa0 + gpu);
        fixture->policy->gpus[gpu].limit_bytes = GIB;
    }
    ledger_usage_init(fixture->usage, 7);
    fixture->ledger = (struct ledger){fixture->policy, fixture->usage};
    *state = fixture;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    munmap(fixture->policy, LEDGER_POLICY_BYTES);
    munmap(fixture->usage, ledger_usage_bytes());
    free(fixture);
    return 0;
}

static inline struct ledger_slot fixture_slot(struct fixture *fixture)
{
    struct ledger_slot slot = {.ledger = fixture->ledger};
    struct ledger_owner owner = {.pid = TEST_PID, .start_ticks = 99};
    int index = ledger_slot_claim(fixture->usage, owner, &slot.generation);
    assert_true(index >= 0);
    slot.index = (uint32_t)index;
    slot.lock = &fixture->turns[index];
    return slot;
}

/* What a process leaves that stopped right after it published a request: it stands in the deciding word. */
static inline void fixture_ask_and_stop(const struct ledger_slot *slot, unsigned gpu, uint64_t bytes)
{
    struct usage_gpu *there = &slot->ledger.usage->gpus[gpu];
    if (usage_stamp_generation(there->words[slot->index].high) != slot->generation)
        there->words[slot->index] = (struct word128){.high = usage_first_stamp(slot->generation)};
    slot->ledger.usage->gpus_used |= UINT64_C(1) << gpu;
    there->requests[slot->index].bytes = bytes;
    there->requests[slot->index].limit_bytes = slot->ledger.policy->gpus[gpu].limit_bytes;
    there->requests[slot->index].is_charge = 0;
    there->deciding = (struct word128){.low = slot->index + 1, .high = there->words[slot->index].high};
}
