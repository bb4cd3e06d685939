/* time_ledger.c - nanoseconds for a reserve and its release, with 1 and with 64 live slots; not a test.
 *
 * One thread measures, so that what shows is the work itself: the other slots hold bytes and are added up. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "ledger/ledger.h"

#define PAIRS 2000000u
#define ROUNDS 7

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("time_ledger: cannot map shared memory");
        exit(1);
    }
    return memory;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double time_pairs(unsigned live_slots)
{
    struct ledger_policy *policy = map(LEDGER_POLICY_BYTES);
    struct ledger_usage *usage = map(ledger_usage_bytes());
    ledger_policy_init(policy, "0123456789ab", 1);
    policy->gpu_count = 1;
    policy->gpus[0].limit_bytes = UINT64_C(64) << 30;
    ledger_usage_init(usage, 1);

    struct ledger_slot slot = {.ledger = {policy, usage}, .lock = &(struct lock){0}};
    for (unsigned i = 0; i < live_slots; i++) {
        slot.index = (uint32_t)ledger_slot_claim(usage, (struct ledger_owner){.pid = 1}, &slot.generation);
        ledger_reserve(&slot, 0, 4096);
    }

    double rounds[ROUNDS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t start = monotonic_ns();
        for (unsigned i = 0; i < PAIRS; i++) {
            if (!ledger_reserve(&slot, 0, 1 << 20))
                abort();
            ledger_release(&slot, 0, 1 << 20);
        }
        rounds[round] = (double)(monotonic_ns() - start) / PAIRS;
    }
    munmap(policy, LEDGER_POLICY_BYTES);
    munmap(usage, ledger_usage_bytes());
    qsort(rounds, ROUNDS, sizeof rounds[0], ascending);
    return rounds[ROUNDS / 2];
}

int main(void)
{
    static const unsigned live_slots[] = {1, 64, LEDGER_SLOTS};
    for (unsigned i = 0; i < sizeof live_slots / sizeof live_slots[0]; i++)
        printf("%4u live slots: %6.1f ns a reserve and release (median of %d rounds)\n", live_slots[i],
               time_pairs(live_slots[i]), ROUNDS);
    return 0;
}
