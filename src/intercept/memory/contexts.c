#include "intercept/memory/contexts.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/code_room.h"
#include "intercept/memory/context_locks.h"
#include "intercept/memory/engine/choose.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/full_card.h"
#include "intercept/memory/physical.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"

/* About what a context takes, for a context whose cost is not known yet. */
#define UNKNOWN_COST_BYTES (UINT64_C(512) << 20)

static uint64_t key_of(CUcontext context)
{
    return (uint64_t)(uintptr_t)context;
}

/* --- Making ---------------------------------------------------------------------------------------- */

/* Under the GPU's lock. Enter a context; if it is known already, it costs nothing more. */
static void enter(struct charge *charge, CUcontext context)
{
    struct memory_area *area = memory_area();
    struct record known;
    charge->context = context;
    engine_choose(context);
    gate_when_full(code_wait_for_room);
    gate_when_launched(code_may_launch);
    agent_meet(charge->gpu);
    if (records_find(&area->records, RECORD_CONTEXT, key_of(context), &known)) {
        charge_return(charge);
        return;
    }
    /* Nobody knew what the first context would cost: charge it now, whether it fits or not. */
    if (charge->bytes == 0 &&
        !atomic_exchange_explicit(&area->cost_asked[charge->gpu], true, memory_order_relaxed)) {
        charge->bytes = session_context_cost(charge->gpu);
        if (charge->bytes)
            ledger_charge(session_slot(), charge->gpu, charge->bytes);
    }
    charge_keep(charge, RECORD_CONTEXT, key_of(context), 0);
    if (engine_of_process()->meet_context)
        engine_of_process()->meet_context(context);
}

/* Have the daemon compare with the card, and threads forget which GPU a context is on. */
static void say_changed(void)
{
    session_notice(WIRE_NOTICE_CONTEXT);
    session_forget();
    agent_memory_changed();
}

/* The card is full: wait until the daemon has made room for a context. */
static bool wait_for_room(uint32_t gpu, unsigned attempt)
{
    const struct ledger_policy *policy = session_slot()->ledger.policy;
    uint64_t bytes = atomic_load_explicit(&policy->gpus[gpu].context_bytes, memory_order_relaxed);
    return full_card_wait(gpu, bytes ? bytes : UNKNOWN_COST_BYTES, bytes, false, attempt);
}

/* `*waits_for`: the GPU that is full; -1: the call succeeded, or failed for another reason. */
static CUresult create(const struct allocation *wanted, int *waits_for)
{
    struct charge charge;
    *waits_for = -1;
    enum charge_answer answer = charge_take_context(&charge, wanted->device);
    if (answer == CHARGE_PASS)
        return plain_allocate(wanted);
    if (answer == CHARGE_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t gpu = charge.gpu;
    charge_enter();
    CUresult result = plain_allocate(wanted);
    *waits_for = result == CUDA_ERROR_OUT_OF_MEMORY ? (int)gpu : -1;
    if (result == CUDA_SUCCESS) {
        context_lock(gpu);
        enter(&charge, *(CUcontext *)wanted->got);
        context_unlock(gpu);
        say_changed();
    } else {
        charge_return(&charge);
    }
    charge_leave();
    return result;
}

CUresult context_create(const struct allocation *wanted)
{
    int waits_for;
    CUresult result = create(wanted, &waits_for);
    for (unsigned attempt = 0; waits_for >= 0 && wait_for_room((uint32_t)waits_for, attempt); attempt++)
        result = create(wanted, &waits_for);
    return result;
}

/* --- Primary and green contexts -------------------------------------------------------------------- */

static bool is_primary_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    return real(cuDevicePrimaryCtxGetState) &&
           real(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* Find the device's primary context, if it is active. Inside own calls. */
static bool find_primary(CUdevice device, CUcontext *context)
{
    if (!is_primary_active(device) || real(cuDevicePrimaryCtxRetain)(context, device) != CUDA_SUCCESS)
        return false;
    (real(cuDevicePrimaryCtxRelease_v2) ? real(cuDevicePrimaryCtxRelease_v2)
                                        : real(cuDevicePrimaryCtxRelease))(device);
    return true;
}

/* The ordinary context that stands for a green context. */
static CUcontext context_of_green(CUgreenCtx green)
{
    CUcontext own = NULL;
    bool is_told =
        real(cuCtxFromGreenCtx) && real(cuCtxFromGreenCtx)(&own, green) == CUDA_SUCCESS && own != NULL;
    return is_told ? own : (CUcontext)green;
}

/* Under the GPU's lock. A primary context that was active already costs nothing, and is retained once more. Returns
 * whether it is new. */
static bool enter_primary(struct charge *charge, CUcontext context)
{
    struct record known;
    if (records_count(memory_records(), RECORD_CONTEXT, key_of(context), 1, &known)) {
        charge_return(charge);
        return false;
    }
    enter(charge, context);
    return true;
}

/* Under the GPU's lock. The primary context has become active as `green` was made. Memory that is allocated under the
 * green context goes with the primary one. */
static void enter_green(struct charge *charge, CUgreenCtx green, CUdevice device)
{
    CUcontext primary = NULL, own = context_of_green(green);
    struct record displaced;
    if (!find_primary(device, &primary)) {
        enter(charge, own);
        return;
    }
    enter_primary(charge, primary); /* one reference of it is the green context's */
    if (own == primary)
        return; /* the driver has no context of its own for the green one */
    struct record record = {.key = key_of(own),
                            .kind = RECORD_CONTEXT,
                            .gpu = (uint8_t)charge->gpu,
                            .references = 1,
                            .charged = {.context = key_of(primary)}};
    records_put(memory_records(), &record, &displaced);
}

/* Under the GPU's lock, so that the context does not become active, or end, meanwhile. */
static CUresult retain(const struct allocation *wanted, struct charge *charge, bool *is_new, bool *may_wait)
{
    *is_new = *may_wait = false;
    if (!is_primary_active(wanted->device) && charge_take_context(charge, wanted->device) != CHARGE_TAKEN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    charge_enter();
    CUresult result = plain_allocate(wanted);
    if (result != CUDA_SUCCESS) {
        *may_wait = result == CUDA_ERROR_OUT_OF_MEMORY;
        charge_return(charge);
    } else if (wanted->way == WAY_cuGreenCtxCreate) {
        enter_green(charge, *(CUgreenCtx *)wanted->got, wanted->device);
        *is_new = true;
    } else {
        *is_new = enter_primary(charge, *(CUcontext *)wanted->got);
    }
    charge_leave();
    return result;
}

/* Programs retain and release the primary context around each copy (UCX), so a notice is sent only for a context that
 * is new. */
CUresult context_retain(const struct allocation *wanted)
{
    struct charge charge = {0};
    bool is_new, may_wait;
    enum gpu_place place = charge_place_device(&charge, wanted->device);
    if (place == PLACE_NOWHERE)
        return plain_allocate(wanted);
    if (place == PLACE_FORBIDDEN) {
        refusal_of_gpu();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint32_t gpu = charge.gpu;
    CUresult result;
    unsigned attempt = 0;
    do {
        context_lock(gpu);
        result = retain(wanted, &charge, &is_new, &may_wait);
        context_unlock(gpu);
    } while (may_wait && wait_for_room(gpu, attempt++));
    if (is_new)
        say_changed();
    return result;
}

/* --- What ends with a context ---------------------------------------------------------------------- */

struct death {
    uint64_t context;
    uint32_t gpu;
    /* On each GPU: memory of another process may be open on another GPU than the context's. */
    uint64_t bytes[LEDGER_GPUS], hidden_bytes[LEDGER_GPUS];
    bool has_others; /* the process still has contexts on the GPU */
    bool has_arrays; /* an array went with the context */
};

static bool dies_with(const struct record *record, void *argument)
{
    const struct death *death = argument;
    return record_is_charged(record->kind) && record->kind != RECORD_PHYSICAL &&
           record->charged.context == death->context;
}

static void add_bytes(const struct record *record, void *argument)
{
    struct death *death = argument;
    if (record->joint || record->flags & RECORD_SHARED) {
        charge_release_record(record);
        return;
    }
    death->bytes[record->gpu] += record_charge(record);
    if (record->flags & RECORD_HIDDEN)
        death->hidden_bytes[record->gpu] += record_charge(record);
    death->has_arrays |= record->kind == RECORD_ARRAY;
}

static void see_other(const struct record *record, void *argument)
{
    struct death *death = argument;
    if (record->kind == RECORD_CONTEXT && record->gpu == death->gpu)
        death->has_others = true;
}

static bool array_is_gone(const struct record *tile, const void *argument)
{
    struct record array;
    (void)argument;
    return !records_find(memory_records(), RECORD_ARRAY, tile->hold.array, &array);
}

/* Under the GPU's lock. Give back what a context had that no longer exists. */
static void bury(uint64_t context, uint32_t gpu)
{
    struct memory_area *area = memory_area();
    struct death death = {.context = context, .gpu = gpu};
    records_sweep(&area->records, dies_with, add_bytes, &death);
    for (unsigned i = 0; i < LEDGER_GPUS; i++) {
        if (death.hidden_bytes[i])
            ledger_unhide(session_slot(), i, death.hidden_bytes[i]);
        charge_release(i, death.bytes[i]);
    }
    if (engine_of_process()->forget_context)
        engine_of_process()->forget_context((CUcontext)(uintptr_t)context);
    if (death.has_arrays && atomic_load_explicit(&area->uses_tiles, memory_order_relaxed))
        physical_let_go_all(RECORD_TILE, array_is_gone, NULL);
    records_each(&area->records, see_other, &death);
    pool_charge_refresh(); /* pools belong to no context: charged as long as the driver has their memory */
    if (!death.has_others)
        agent_part(gpu);
    say_changed(); /* what the driver had for the context is free as well */
}

/* --- Destroying ------------------------------------------------------------------------------------ */

static CUresult ask_driver(enum release_way way, uint64_t key)
{
    charge_enter();
    CUresult result = plain_release(way, key, NULL);
    charge_leave();
    return result;
}

/* How many references the process holds to a context; 0: it is not known. */
static uint32_t references_of(uint64_t key)
{
    struct record record;
    return records_find(memory_records(), RECORD_CONTEXT, key, &record) ? record.references : 0;
}

static void drop_reference(uint64_t key)
{
    struct record record;
    records_count(memory_records(), RECORD_CONTEXT, key, -1, &record);
}

/* Such a context ends by other calls: the driver refuses to destroy it. */
static bool is_primary(CUcontext context)
{
    CUdevice device;
    CUcontext primary = NULL;
    charge_enter();
    bool is_so = own_calls_device(context, &device) && find_primary(device, &primary) && primary == context;
    charge_leave();
    return is_so;
}

/* A context that was attached to several times ends with its last detach. */
static CUresult destroy(enum release_way way, uint64_t key, uint32_t gpu)
{
    bool is_detach = way == RELEASE_cuCtxDetach;
    if ((!is_detach || references_of(key) <= 1) && !is_primary((CUcontext)(uintptr_t)key))
        agent_leave_context((CUcontext)(uintptr_t)key);
    context_lock_to_end(gpu, (CUcontext)(uintptr_t)key);
    CUresult result = ask_driver(way, key);
    uint32_t references = is_detach ? references_of(key) : 1;
    if (result == CUDA_SUCCESS && references == 1)
        bury(key, gpu);
    else if (result == CUDA_SUCCESS && references > 1)
        drop_reference(key);
    context_unlock(gpu);
    return result;
}

/* Whether a release leaves references to the primary context: then the context and all that is in flight in it go on. */
static bool has_other_references(enum release_way way, CUcontext context)
{
    bool is_reset = way == RELEASE_cuDevicePrimaryCtxReset || way == RELEASE_cuDevicePrimaryCtxReset_v2;
    return !is_reset && references_of(key_of(context)) > 1;
}

/* Release or reset the primary context. Only while the context lives can the driver say which it is. The gate forgets
 * the context's work before the driver ends it, since nobody may ask about an event of a context that is gone. */
static CUresult release_primary(enum release_way way, CUdevice device)
{
    struct charge charge;
    CUcontext context = NULL;
    if (!charge_has_any() || charge_place_device(&charge, device) != PLACE_ON_GPU)
        return plain_release(way, (uint64_t)device, NULL);
    context_lock_to_end(charge.gpu, NULL);
    charge_enter();
    bool is_known = find_primary(device, &context);
    bool has_others = is_known && has_other_references(way, context);
    if (is_known && !has_others)
        agent_leave_context(context);
    CUresult result = plain_release(way, (uint64_t)device, NULL);
    bool is_gone = is_known && result == CUDA_SUCCESS && !is_primary_active(device);
    charge_leave();
    if (is_gone)
        bury(key_of(context), charge.gpu);
    else if (has_others && result == CUDA_SUCCESS)
        drop_reference(key_of(context));
    context_unlock(charge.gpu);
    return result;
}

/* Under the GPU's lock; `record` is the green context's. The gate forgets the work of contexts that end, as in
 * release_primary(). */
static CUresult destroy_green(CUgreenCtx green, const struct record *record)
{
    CUcontext own = (CUcontext)(uintptr_t)record->key, primary = NULL;
    CUdevice device;
    struct record taken;
    charge_enter();
    bool is_known = own_calls_device(own, &device) && find_primary(device, &primary);
    bool ends_primary = is_known && references_of(key_of(primary)) == 1; /* nothing else keeps it */
    if (!is_known || own != primary)
        agent_leave_context(own);
    if (ends_primary)
        agent_leave_context(primary);
    CUresult result = plain_release(RELEASE_cuGreenCtxDestroy, (uint64_t)(uintptr_t)green, NULL);
    bool is_primary_gone = is_known && result == CUDA_SUCCESS && !is_primary_active(device);
    charge_leave();
    if (is_known && !ends_primary && result == CUDA_SUCCESS)
        drop_reference(key_of(primary));
    /* A green context that is the primary context itself lives as long as that is retained. */
    bool is_gone = result == CUDA_SUCCESS && !(is_known && own == primary);
    if (is_gone && record->charged.context == record->key)
        bury(record->key, record->gpu);
    else if (is_gone)
        records_take(memory_records(), RECORD_CONTEXT, record->key, &taken);
    if (is_primary_gone)
        bury(key_of(primary), record->gpu);
    return result;
}

static CUresult release(enum release_way way, uint64_t key)
{
    struct record record;
    bool is_green = way == RELEASE_cuGreenCtxDestroy;
    switch (way) {
    case RELEASE_cuDevicePrimaryCtxRelease:
    case RELEASE_cuDevicePrimaryCtxRelease_v2:
    case RELEASE_cuDevicePrimaryCtxReset:
    case RELEASE_cuDevicePrimaryCtxReset_v2:
        return release_primary(way, (CUdevice)key);
    default:
        break;
    }
    if (!charge_has_any())
        return plain_release(way, key, NULL);
    uint64_t context = is_green ? key_of(context_of_green((CUgreenCtx)(uintptr_t)key)) : key;
    if (!records_find(memory_records(), RECORD_CONTEXT, context, &record))
        return plain_release(way, key, NULL);
    if (!is_green)
        return destroy(way, key, record.gpu);
    context_lock_to_end(record.gpu, NULL);
    CUresult result = destroy_green((CUgreenCtx)(uintptr_t)key, &record);
    context_unlock(record.gpu);
    session_forget();
    return result;
}

CUresult context_release(enum release_way way, uint64_t key)
{
    CUresult result = release(way, key);
    if (engine_of_process()->contexts_ended)
        engine_of_process()->contexts_ended();
    return result;
}

void context_attached(CUcontext context)
{
    struct record record;
    if (charge_has_any())
        records_count(memory_records(), RECORD_CONTEXT, key_of(context), 1, &record);
}
