#include "intercept/memory/engine/unmovable.h"

#include "intercept/memory/area.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/engine.h"

/* Why memory with this record stays. */
static enum wire_stays why_it_stays(const struct record *record)
{
    if (record->joint && record->kind != RECORD_EXTERNAL)
        return WIRE_STAYS_JOINT;
    switch (record->kind) {
    case RECORD_CONTEXT:
    case RECORD_LIMIT:
        return WIRE_STAYS_CONTEXT;
    case RECORD_ARRAY:
        return WIRE_STAYS_ARRAY;
    case RECORD_POINTER:
        return record->flags & RECORD_HIDDEN ? WIRE_STAYS_MANAGED : WIRE_STAYS_IMPORTED;
    case RECORD_PHYSICAL:
        return record->flags & RECORD_IMPORTED ? WIRE_STAYS_IMPORTED : WIRE_STAYS_PROPERTIES;
    default:
        return WIRE_STAYS_IMPORTED;
    }
}

struct unmovable {
    uint64_t *bytes;                          /* by reason */
    uint64_t joint_gpus[LEDGER_JOINT_PLACES]; /* a bit for each GPU of which a joint place was counted */
};

/* What the record adds. Memory that several processes of the session hold stays once, and so does what one of them
 * holds by several records. */
static uint64_t bytes_of(const struct record *record, struct unmovable *unmovable)
{
    const struct ledger_slot *slot = session_slot();
    uint32_t joint = record->joint - 1u;
    uint64_t bit = UINT64_C(1) << record->gpu;
    if (!record->joint)
        return record_charge(record);
    if (unmovable->joint_gpus[joint] & bit || !ledger_joint_is_first(slot, joint))
        return 0;
    unmovable->joint_gpus[joint] |= bit;
    return ledger_joint_bytes(slot->ledger.usage, joint, record->gpu);
}

static void add_unmovable(const struct record *record, void *argument)
{
    struct unmovable *unmovable = argument;
    if (record_is_charged(record->kind) && !(record->flags & RECORD_MOVES))
        unmovable->bytes[why_it_stays(record)] += bytes_of(record, unmovable);
}

/* As it is at this moment; read without the pool's lock. */
static void add_pool(struct pool *pool, uint64_t *bytes)
{
    CUmemoryPool handle = (CUmemoryPool)atomic_load_explicit(&pool->handle, memory_order_relaxed);
    enum wire_stays why = pool->is_of_graphs ? WIRE_STAYS_GRAPH
                          : pool->is_managed ? WIRE_STAYS_MANAGED
                                             : WIRE_STAYS_POOL;
    uint64_t charged_bytes = pool->charged_bytes;
    uint64_t engines_bytes = pool->is_of_graphs ? 0 : engine_pools()->engines_bytes(handle);
    bytes[why] += charged_bytes > engines_bytes ? charged_bytes - engines_bytes : 0;
}

void unmovable_add(uint64_t bytes[static WIRE_STAYS_COUNT])
{
    struct memory_area *area = memory_area();
    records_each(&area->records, add_unmovable, &(struct unmovable){.bytes = bytes});
    for (unsigned i = 0; i < POOLS_MAX && atomic_load_explicit(&area->pools[i].handle, memory_order_relaxed);
         i++)
        add_pool(&area->pools[i], bytes);
}
