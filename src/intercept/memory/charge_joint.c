/* charge_joint.c - charges of memory that several processes hold: the session's, by a share of the ledger. */
#include "intercept/memory/charge.h"
#include "intercept/memory/pool_charge.h"

bool charge_reserve_import(uint32_t gpu, uint64_t bytes, uint64_t name, uint8_t *share)
{
    bool is_new;
    int joined = *share ? *share - 1 : ledger_joint_join(session_slot(), name, true, &is_new);
    if (joined < 0)
        return true;
    if (!ledger_joint_reserve(session_slot(), (uint32_t)joined, gpu, bytes) &&
        !(pool_charge_trim(gpu, bytes) &&
          ledger_joint_reserve(session_slot(), (uint32_t)joined, gpu, bytes))) {
        if (!*share)
            ledger_joint_leave(session_slot(), (uint32_t)joined);
        return false;
    }
    *share = (uint8_t)(joined + 1);
    return true;
}

enum charge_answer charge_take_import(struct charge *charge, CUdevice device, uint64_t bytes, uint64_t name)
{
    enum charge_place place = charge_place_device(charge, device);
    charge->bytes = bytes;
    if (place == CHARGE_NOWHERE)
        return CHARGE_PASS;
    if (place == CHARGE_ON_GPU) {
        charge_moving();
        bool is_taken = charge_reserve_import(charge->gpu, bytes, name, &charge->share) &&
                        (charge->share || charge_reserve(charge->gpu, bytes));
        charge_moving(); /* trimming pools may have settled it */
        if (is_taken)
            return CHARGE_TAKEN;
        charge_settled();
    }
    charge_say_refused(place == CHARGE_ON_GPU, charge->gpu, bytes);
    return CHARGE_REFUSED;
}

/* The charge of `record`, of this process alone, becomes the new share's. */
static bool hand_over(const struct record *record, uint32_t share)
{
    struct ledger_slot *slot = session_slot();
    ledger_joint_charge(slot, share, record->gpu, record->bytes);
    if (!records_make_joint(&private_get()->records, record->kind, record->key, record->bytes,
                       (uint8_t)(share + 1)))
        return false;
    ledger_release(slot, record->gpu, record->bytes);
    return true;
}

bool charge_make_joint(enum record_kind kind, uint64_t key, uint64_t name)
{
    struct record record;
    struct ledger_slot *slot = session_slot();
    if (!name || !records_find(&private_get()->records, kind, key, &record))
        return false;
    if (record.share)
        return ledger_joint_is_named(&slot->ledger, record.share - 1u, name);
    /* What is hidden is nothing that processes can hand out; what is not mapped yet, others charge as they
     * map it. */
    if (!record.bytes || record.flags & RECORD_HIDDEN)
        return record.flags & RECORD_IMPORTED;
    bool is_new, is_shared = false;
    charge_moving();
    int share = ledger_joint_join(slot, name, true, &is_new);
    if (share >= 0) {
        is_shared = is_new && hand_over(&record, (uint32_t)share);
        if (!is_shared)
            ledger_joint_leave(slot, (uint32_t)share);
    }
    charge_settled();
    return is_shared;
}
