/* hook_context.c - contexts: they take memory when they are made, and all that belongs to them goes with
 * them.
 *
 * A handle's value may be used again as soon as its context is gone. So the GPU's turn is held from before
 * the driver destroys a context until its records are taken out, and a new context is entered under it: no
 * memory of a new context is taken for that of an old one. */
#include "intercept/memory/hooks/context.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/hooks/vmm.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"

/* --- Making ---------------------------------------------------------------------------------------- */

enum charge_answer context_take(struct charge *charge, CUdevice device)
{
    uint64_t bytes = 0;
    enum charge_place place = charge_place_device(charge, device);
    if (place == CHARGE_NOWHERE)
        return CHARGE_PASS;
    if (place == CHARGE_ON_GPU) {
        charge_moving();
        bytes = atomic_load_explicit(&session_slot()->ledger.policy->gpus[charge->gpu].context_bytes,
                                     memory_order_relaxed);
        if (charge_reserve(charge->gpu, bytes)) {
            charge->bytes = bytes;
            charge_moving(); /* trimming pools may have settled it */
            return CHARGE_TAKEN;
        }
        charge_settled();
    }
    charge_say_refused(place == CHARGE_ON_GPU, charge->gpu, bytes);
    return CHARGE_REFUSED;
}

void context_keep(struct charge *charge, CUcontext context)
{
    struct private_area *area = private_get();
    struct record known;
    charge->context = context;
    agent_meet(charge->gpu);
    if (records_find(&area->records, RECORD_CONTEXT, (uint64_t)(uintptr_t)context, &known)) {
        charge_return(charge);
        return;
    }
    /* Nobody knew what the first one would cost: charge it now, whether it fits or not. */
    if (charge->bytes == 0 &&
        !atomic_exchange_explicit(&area->cost_asked[charge->gpu], true, memory_order_relaxed)) {
        charge->bytes = session_context_cost(charge->gpu);
        if (charge->bytes)
            ledger_charge(session_slot(), charge->gpu, charge->bytes);
    }
    charge_keep(charge, RECORD_CONTEXT, (uint64_t)(uintptr_t)context);
}

static CUresult settle_context(struct charge *charge, CUresult result, const CUcontext *context)
{
    if (result != CUDA_SUCCESS) {
        charge_return(charge);
        return result;
    }
    pthread_mutex_lock(context_turn(charge->gpu));
    context_keep(charge, *context);
    pthread_mutex_unlock(context_turn(charge->gpu));
    session_notice(WIRE_NOTICE_CONTEXT);
    session_forget();
    return result;
}

/* The forms of cuCtxCreate differ in what they pass on. */
#define CREATES(symbol, parameters, arguments)                                                               \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct charge charge;                                                                                \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        if (!context)                                                                                        \
            return real(symbol) arguments;                                                                   \
        switch (context_take(&charge, device)) {                                                             \
        case CHARGE_PASS:                                                                                    \
            return real(symbol) arguments;                                                                   \
        case CHARGE_REFUSED:                                                                                 \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        case CHARGE_TAKEN:                                                                                   \
            break;                                                                                           \
        }                                                                                                    \
        charge_enter();                                                                                      \
        CUresult result = settle_context(&charge, real(symbol) arguments, context);                          \
        charge_leave();                                                                                      \
        return result;                                                                                       \
    }
CREATES(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device), (context, flags, device))
CREATES(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device), (context, flags, device))
CREATES(cuCtxCreate_v3,
        (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device),
        (context, affinity, count, flags, device))
CREATES(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *how, unsigned int flags, CUdevice device),
        (context, how, flags, device))
CREATES(cuGLCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device), (context, flags, device))
CREATES(cuGLCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
        (context, flags, device))
CREATES(cuVDPAUCtxCreate,
        (CUcontext * context, unsigned int flags, CUdevice device, VdpDevice vdp, VdpGetProcAddress *lookup),
        (context, flags, device, vdp, lookup))
CREATES(cuVDPAUCtxCreate_v2,
        (CUcontext * context, unsigned int flags, CUdevice device, VdpDevice vdp, VdpGetProcAddress *lookup),
        (context, flags, device, vdp, lookup))

bool context_primary_is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    return real(cuDevicePrimaryCtxGetState) &&
           real(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* A primary context that was there already costs nothing, and is retained once more. Returns whether it is new. */
static bool keep_primary(struct charge *charge, CUcontext context)
{
    struct record known;
    if (records_count(&private_get()->records, RECORD_CONTEXT, (uint64_t)(uintptr_t)context, 1, &known)) {
        charge_return(charge);
        return false;
    }
    context_keep(charge, context);
    return true;
}

/* The turn is held, so that the context is not made, or gone, meanwhile. Programs retain and release it around
 * each copy (UCX): what is not new is told to nobody. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    struct charge charge = {0};
    if (!real_ready() || !real(cuDevicePrimaryCtxRetain))
        return real_absent();
    if (!context)
        return real(cuDevicePrimaryCtxRetain)(context, device);
    enum charge_place place = charge_place_device(&charge, device);
    if (place == CHARGE_NOWHERE)
        return real(cuDevicePrimaryCtxRetain)(context, device);
    if (place == CHARGE_FORBIDDEN) {
        charge_say_refused(false, 0, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_t *turn = context_turn(charge.gpu);
    pthread_mutex_lock(turn);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool is_new = false;
    if (context_primary_is_active(device) || context_take(&charge, device) == CHARGE_TAKEN) {
        charge_enter();
        result = real(cuDevicePrimaryCtxRetain)(context, device);
        if (result == CUDA_SUCCESS)
            is_new = keep_primary(&charge, *context);
        else
            charge_return(&charge);
        charge_leave();
    }
    pthread_mutex_unlock(turn);
    if (is_new) {
        session_notice(WIRE_NOTICE_CONTEXT);
        session_forget();
    }
    return result;
}

/* --- Destroying ------------------------------------------------------------------------------------ */

struct death {
    uint64_t context;
    uint32_t gpu;
    /* Of each GPU: opened memory of another process may be on another one. */
    uint64_t bytes[LEDGER_GPUS], hidden_bytes[LEDGER_GPUS];
    bool others; /* contexts that this process still has on the GPU */
    bool arrays; /* some array went with it */
};

static bool dies_with(const struct record *record, void *argument)
{
    const struct death *death = argument;
    return record_is_charged(record->kind) && record->kind != RECORD_ALLOCATION &&
           record->owner == death->context;
}

static void add_bytes(const struct record *record, void *argument)
{
    struct death *death = argument;
    if (record->share) {
        charge_release_record(record);
        return;
    }
    death->bytes[record->gpu] += record->bytes;
    if (record->flags & RECORD_HIDDEN)
        death->hidden_bytes[record->gpu] += record->bytes;
    death->arrays |= record->kind == RECORD_ARRAY;
}

static void see_other(const struct record *record, void *argument)
{
    struct death *death = argument;
    if (record->kind == RECORD_CONTEXT && record->gpu == death->gpu)
        death->others = true;
}

static bool array_is_gone(const struct record *tile, const void *argument)
{
    struct record array;
    (void)argument;
    return !records_find(&private_get()->records, RECORD_ARRAY, tile->bytes, &array);
}

void context_bury(uint64_t context, uint32_t gpu)
{
    struct private_area *area = private_get();
    struct death death = {.context = context, .gpu = gpu};
    records_sweep(&area->records, dies_with, add_bytes, &death);
    for (unsigned i = 0; i < LEDGER_GPUS; i++) {
        if (death.hidden_bytes[i])
            ledger_unhide(session_slot(), i, death.hidden_bytes[i]);
        charge_release(i, death.bytes[i]);
    }
    if (death.arrays && atomic_load_explicit(&area->tiles_used, memory_order_relaxed))
        vmm_let_go_all(RECORD_TILE, array_is_gone, NULL);
    records_each(&area->records, see_other, &death);
    if (death.others) {
        pool_charge_refresh();
    } else {
        pool_charge_forget_gpu(gpu);
        agent_part(gpu);
    }
    session_notice(WIRE_NOTICE_CONTEXT); /* what the driver had for it is free as well */
    session_forget();
}

static CUresult destroy(CUresult (*driver)(CUcontext), CUcontext context)
{
    struct record record;
    uint64_t key = (uint64_t)(uintptr_t)context;
    if (!charge_holds() || !records_find(&private_get()->records, RECORD_CONTEXT, key, &record))
        return driver(context);
    agent_leave_context(context);
    pthread_mutex_lock(context_turn(record.gpu));
    charge_enter();
    CUresult result = driver(context);
    charge_leave();
    if (result == CUDA_SUCCESS)
        context_bury(key, record.gpu);
    pthread_mutex_unlock(context_turn(record.gpu));
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    if (!real_ready() || !real(cuCtxDestroy))
        return real_absent();
    return destroy(real(cuCtxDestroy), context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!real_ready() || !real(cuCtxDestroy_v2))
        return real_absent();
    return destroy(real(cuCtxDestroy_v2), context);
}

bool context_primary(CUdevice device, CUcontext *context)
{
    if (!context_primary_is_active(device) || real(cuDevicePrimaryCtxRetain)(context, device) != CUDA_SUCCESS)
        return false;
    (real(cuDevicePrimaryCtxRelease_v2) ? real(cuDevicePrimaryCtxRelease_v2)
                                        : real(cuDevicePrimaryCtxRelease))(device);
    return true;
}

/* Release or, with `all`, reset. Which context that is must be asked while it lives, and the gate forgets its work before the
 * driver ends it: nobody may ask after an event of a context that has gone. Where other references are left, it lives on
 * with all that is in flight. */
static CUresult let_primary_go(CUresult (*driver)(CUdevice), CUdevice device, bool all)
{
    struct charge charge;
    struct record record;
    CUcontext context = NULL;
    if (!charge_holds() || charge_place_device(&charge, device) != CHARGE_ON_GPU)
        return driver(device);
    pthread_mutex_lock(context_turn(charge.gpu));
    charge_enter();
    bool known = context_primary(device, &context);
    uint64_t key = (uint64_t)(uintptr_t)context;
    bool others = !all && known && records_find(&private_get()->records, RECORD_CONTEXT, key, &record) &&
                  record.references > 1;
    if (known && !others)
        agent_leave_context(context);
    CUresult result = driver(device);
    bool gone = known && result == CUDA_SUCCESS && !context_primary_is_active(device);
    charge_leave();
    if (gone)
        context_bury(key, charge.gpu);
    else if (others && result == CUDA_SUCCESS)
        records_count(&private_get()->records, RECORD_CONTEXT, key, -1, &record);
    pthread_mutex_unlock(context_turn(charge.gpu));
    return result;
}

#define LETS_PRIMARY_GO(symbol, all)                                                                         \
    CUresult symbol(CUdevice device)                                                                         \
    {                                                                                                        \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        return let_primary_go(real(symbol), device, all);                                                    \
    }
LETS_PRIMARY_GO(cuDevicePrimaryCtxRelease, false)
LETS_PRIMARY_GO(cuDevicePrimaryCtxRelease_v2, false)
LETS_PRIMARY_GO(cuDevicePrimaryCtxReset, true)
LETS_PRIMARY_GO(cuDevicePrimaryCtxReset_v2, true)

/* --- Usage counts of before CUDA 4 ----------------------------------------------------------------- */

CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    struct record record;
    if (!real_ready() || !real(cuCtxAttach))
        return real_absent();
    CUresult result = real(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS && context && charge_holds())
        records_count(&private_get()->records, RECORD_CONTEXT, (uint64_t)(uintptr_t)*context, 1, &record);
    return result;
}

CUresult cuCtxDetach(CUcontext context)
{
    struct record record;
    uint64_t key = (uint64_t)(uintptr_t)context;
    if (!real_ready() || !real(cuCtxDetach))
        return real_absent();
    if (!charge_holds() || !records_find(&private_get()->records, RECORD_CONTEXT, key, &record))
        return real(cuCtxDetach)(context);
    agent_leave_context(context);
    pthread_mutex_lock(context_turn(record.gpu));
    charge_enter();
    CUresult result = real(cuCtxDetach)(context);
    charge_leave();
    if (result == CUDA_SUCCESS && records_find(&private_get()->records, RECORD_CONTEXT, key, &record)) {
        if (record.references > 1)
            records_count(&private_get()->records, RECORD_CONTEXT, key, -1, &record);
        else
            context_bury(key, record.gpu);
    }
    pthread_mutex_unlock(context_turn(record.gpu));
    return result;
}
