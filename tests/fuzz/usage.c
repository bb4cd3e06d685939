/* The usage region of a session, which its programs may write over: what the daemon reads of it is bounded, and a slot that it
 * takes back is free then.
 *
 * An input is the places to write, and what: two bytes of a place in words, one of how many words, and one that is each of
 * their bytes, or an index where it is odd. */
#include <sys/mman.h>

#include "fuzz.h"
#include "ledger/ledger.h"
#include "ledger/usage.h"

#define WRITES_MAX 400u
#define GPUS 2u
#define SLOTS_READ 64u

static void write_over(struct ledger_usage *usage, const uint8_t *data, size_t bytes)
{
    uint64_t *words = (uint64_t *)usage;
    size_t most = ledger_usage_touched_bytes(GPUS) / sizeof(*words);
    for (unsigned writes = 0; writes < WRITES_MAX && bytes >= 4; writes++) {
        size_t at = ((size_t)data[0] | (size_t)data[1] << 8) * 7 % most;
        uint64_t value = data[3] & 1 ? data[3] >> 1 : data[3] * UINT64_C(0x0101010101010101);
        for (unsigned i = 0; i < data[2] && at + i < most; i++)
            words[at + i] = value;
        data += 4;
        bytes -= 4;
    }
}

static void read_all(const struct ledger *ledger)
{
    const struct ledger_usage *usage = ledger->usage;
    uint32_t joints = ledger_joint_end(usage), holders[LEDGER_JOINT_HOLDERS];
    struct ledger_owner owner;
    uint64_t generation;
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        ledger_used(ledger, gpu);
        ledger_joint_total_bytes(usage, gpu);
        ledger_joint_stamp(usage, gpu);
        for (uint32_t slot = 0; slot < SLOTS_READ; slot++) {
            struct ledger_slot_sample sample = ledger_slot_sample(usage, slot, gpu);
            fuzz_require(sample.hidden_bytes <= sample.bytes);
            ledger_slot_shown_bytes(usage, slot, gpu);
            ledger_slot_counts(usage, slot, gpu);
        }
    }
    fuzz_require(joints <= LEDGER_JOINT_PLACES);
    for (uint32_t joint = 0; joint < joints; joint++)
        fuzz_require(ledger_joint_holders(usage, joint, holders) <= LEDGER_JOINT_HOLDERS);
    for (uint32_t slot = 0; slot < SLOTS_READ; slot++)
        if (ledger_slot_owner(usage, slot, &owner, &generation))
            ledger_slot_has_exported(usage, slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ledger_policy policy;
    size_t length = ledger_usage_bytes();
    struct ledger_usage *usage =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fuzz_require(usage != MAP_FAILED);
    ledger_policy_init(&policy, "0123456789ab", 1);
    policy.gpu_count = GPUS;
    ledger_usage_init(usage, 1);
    struct ledger ledger = {.policy = &policy, .usage = usage};
    uint64_t generation, recovered[LEDGER_GPUS] = {0};
    int slot = ledger_slot_claim(usage, (struct ledger_owner){1, 1}, &generation);
    fuzz_require(slot == 0);
    write_over(usage, data, bytes);
    (void)ledger_usage_is_valid(usage, length);
    read_all(&ledger);
    for (uint32_t at = 0; at < SLOTS_READ; at++)
        ledger_slot_clear(usage, at, recovered);
    struct ledger_owner owner;
    for (uint32_t at = 0; at < SLOTS_READ; at++)
        fuzz_require(!ledger_slot_owner(usage, at, &owner, &generation));
    ledger_slot_claim(usage, (struct ledger_owner){2, 2}, &generation);
    munmap(usage, length);
    return 0;
}
