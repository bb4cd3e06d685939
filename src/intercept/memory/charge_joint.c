/* charge_joint.c - charging memory that several processes hold: to the session, by a joint place of the ledger. */
#include "intercept/memory/charge.h"
#include "intercept/memory/refusal.h"

bool charge_reserve_import(uint32_t gpu, uint64_t bytes, uint64_t name, uint8_t *joint)
{
    bool is_new;
    struct ledger_slot *slot = session_slot();
    int joined = *joint ? *joint - 1 : ledger_joint_join(slot, name, true, &is_new);
    if (joined < 0)
        return true;
    uint32_t place = (uint32_t)joined;
    if (!ledger_joint_reserve(slot, place, gpu, bytes) &&
        !(charge_relieve(gpu, bytes) && ledger_joint_reserve(slot, place, gpu, bytes))) {
        if (!*joint)
            ledger_joint_leave(slot, place);
        return false;
    }
    *joint = (uint8_t)(place + 1);
    return true;
}

enum charge_answer charge_take_import(struct charge *charge, CUdevice device, uint64_t bytes, uint64_t name)
{
    enum gpu_place place = charge_place_device(charge, device);
    charge->bytes = bytes;
    if (place == PLACE_NOWHERE)
        return CHARGE_PASS;
    if (place == PLACE_ON_GPU) {
        charge_begin_move();
        if (charge_reserve_import(charge->gpu, bytes, name, &charge->joint) &&
            (charge->joint || charge_reserve(charge->gpu, bytes)))
            return CHARGE_TAKEN;
        charge_end_move();
    }
    refusal_at(place == PLACE_ON_GPU, charge->gpu, bytes);
    return CHARGE_REFUSED;
}

static void leave(int joint)
{
    if (joint >= 0)
        ledger_joint_leave(session_slot(), (uint32_t)joint);
}

enum charge_answer charge_ask_import(struct charge *charge, uint64_t bytes, uint64_t name, int *joint)
{
    enum gpu_place place = charge_place_current(charge);
    bool is_new;
    *joint = -1;
    if (place == PLACE_NOWHERE)
        return CHARGE_PASS;
    if (place == PLACE_ON_GPU) {
        const struct ledger_slot *slot = session_slot();
        /* The process that noted it is charged for it. */
        if (ledger_is_exported(&slot->ledger, name))
            return CHARGE_PASS;
        charge_begin_move();
        *joint = ledger_joint_join(slot, name, true, &is_new);
        /* The place has at least that as long as this process holds it. */
        uint64_t has = *joint < 0 ? 0 : ledger_joint_bytes(slot->ledger.usage, (uint32_t)*joint, charge->gpu);
        charge->bytes = bytes > has ? bytes - has : 0;
        if (!charge->bytes || charge_reserve(charge->gpu, charge->bytes))
            return CHARGE_TAKEN;
        leave(*joint);
        charge_end_move();
    }
    refusal_at(place == PLACE_ON_GPU, charge->gpu, bytes);
    return CHARGE_REFUSED;
}

void charge_settle_import(struct charge *charge, uint64_t bytes, int joint)
{
    if (joint < 0)
        return;
    /* By no more than is reserved in the slot: another process may only have raised it meanwhile. */
    ledger_joint_charge(session_slot(), (uint32_t)joint, charge->gpu, bytes);
    charge_release(charge->gpu, charge->bytes);
    charge->bytes = bytes;
    charge->joint = (uint8_t)(joint + 1);
}

void charge_return_import(struct charge *charge, int joint)
{
    if (!charge->joint)
        leave(joint);
    charge_return(charge);
}

/* The charge of `record`, which is this process's alone, moves to the new joint place. */
static bool hand_over(const struct record *record, uint32_t joint)
{
    struct ledger_slot *slot = session_slot();
    ledger_joint_charge(slot, joint, record->gpu, record_charge(record));
    if (!records_make_joint(memory_records(), record->kind, record->key, record->charged.bytes,
                            (uint8_t)(joint + 1)))
        return false;
    ledger_release(slot, record->gpu, record_charge(record));
    return true;
}

bool charge_make_joint(enum record_kind kind, uint64_t key, uint64_t name)
{
    struct record record;
    struct ledger_slot *slot = session_slot();
    if (!name || !records_find(memory_records(), kind, key, &record))
        return false;
    if (record.joint)
        return ledger_joint_is_named(&slot->ledger, record.joint - 1u, name);
    /* Hidden memory cannot be handed to another process. Imported memory that is not mapped yet is charged to others
     * when they map it. */
    if (!record.charged.bytes || record.flags & RECORD_HIDDEN)
        return record.flags & RECORD_IMPORTED;
    bool is_new, is_joint = false;
    charge_begin_move();
    int joint = ledger_joint_join(slot, name, true, &is_new);
    if (joint >= 0) {
        is_joint = is_new && hand_over(&record, (uint32_t)joint);
        if (!is_joint)
            ledger_joint_leave(slot, (uint32_t)joint);
    }
    charge_end_move();
    return is_joint;
}
