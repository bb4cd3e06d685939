#include "intercept/memory/engine/swap/extents/quiet.h"

#include <time.h>

#include "base/clock.h"
#include "intercept/memory/context_locks.h"
#include "intercept/memory/engine/swap/move/tools.h"
#include "intercept/memory/engine/swap/pools/pool_orders.h"
#include "intercept/memory/engine/swap/state.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/in_flight.h"

#define CAPTURE_PATIENCE_NS UINT64_C(1000000000)
#define FIRST_NAP_NS UINT64_C(10000)
#define LONGEST_NAP_NS UINT64_C(1000000)

/* A context whose work may use the memory, with an event behind that work. */
struct concerned {
    CUcontext context;
    struct order order; /* without an event: none could be recorded yet */
    bool is_over;
};

struct quiet {
    uint64_t devices;
    CUcontext own;
    CUresult own_error;
    orders_recorder *record;
    /* As they were when the contexts were found. */
    uint64_t gone, doubts;
    bool has_all; /* these are all contexts of the process */
    /* There could be no event for one of them, as while a capture is open. */
    bool lacks_events;
    /* More than one extent is dying: somebody has waited in vain already. */
    bool others_die;
    uint32_t count;
    struct concerned contexts[SWAP_CONTEXTS_MAX];
};

/* --- How a context's work is recorded --------------------------------------------------------------- */

static CUresult record_context(CUcontext context, CUevent event)
{
    return real(cuCtxRecordEvent)(context, event);
}

/* In a drained process, where the driver has nothing better. The legacy stream waits for all blocking streams, other
 * threads' own ones among them; the others have answered for themselves. */
static CUresult record_legacy(CUcontext context, CUevent event)
{
    if (!own_calls_push(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuEventRecord)(event, CU_STREAM_LEGACY);
    own_calls_pop();
    return result;
}

/* --- Looking: while the contexts are kept alive ------------------------------------------------------ */

static void drop(struct quiet *quiet)
{
    for (uint32_t i = 0; i < quiet->count; i++)
        if (quiet->contexts[i].order.event)
            orders_drop(&quiet->contexts[i].order);
    quiet->count = 0;
}

/* A context that has gone took its events with it, and another one may have its handle: then all is recorded anew. */
static void find_contexts(struct quiet *quiet)
{
    const struct swap *swap = swap_state();
    guard_lock(&swap_state()->lock);
    quiet->gone = swap->contexts_gone;
    quiet->count = 0;
    quiet->has_all = true;
    for (unsigned i = 0; swap->tools && i < SWAP_CONTEXTS_MAX; i++) {
        const struct swap_tools *tools = &swap->tools[i];
        bool is_concerned = tools->context && quiet->devices >> tools->device & 1;
        if (is_concerned)
            quiet->contexts[quiet->count++] = (struct concerned){.context = tools->context};
        quiet->has_all &= is_concerned || !tools->context;
    }
    guard_unlock(&swap_state()->lock);
    quiet->doubts = in_flight_doubts();
}

static bool has_changed(struct quiet *quiet)
{
    guard_lock(&swap_state()->lock);
    bool has_changed = quiet->gone != swap_state()->contexts_gone;
    quiet->others_die = swap_state()->dying_count > 1;
    guard_unlock(&swap_state()->lock);
    return has_changed;
}

/* Without an event, what is known of the streams has to do. In a process without a gate that
 * captures, nobody knows anything; but its memory never moves. */
static CUresult ask(struct quiet *quiet, struct concerned *one)
{
    CUresult result =
        one->order.event ? CUDA_SUCCESS : orders_begin_all(one->context, quiet->record, &one->order);
    switch (result) {
    case CUDA_SUCCESS:
        return real(cuEventQuery)(one->order.event);
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_OUT_OF_MEMORY:
        quiet->lacks_events = true;
        return in_flight_is_surely_finished() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    case CUDA_ERROR_NOT_SUPPORTED:
        return CUDA_SUCCESS;
    default:
        return result;
    }
}

/* Whether all is over. A context that answers with an error has no work any more. */
static bool look(struct quiet *quiet)
{
    bool is_over = true;
    uint32_t locked = context_lock_all();
    if (has_changed(quiet))
        find_contexts(quiet);
    quiet->lacks_events = false;
    for (uint32_t i = 0; i < quiet->count; i++) {
        struct concerned *one = &quiet->contexts[i];
        CUresult result = one->is_over ? CUDA_SUCCESS : ask(quiet, one);
        one->is_over = result != CUDA_ERROR_NOT_READY;
        is_over &= one->is_over;
        if (one->is_over && one->context == quiet->own && result != CUDA_SUCCESS)
            quiet->own_error = result;
    }
    if (is_over) {
        if (quiet->has_all && !quiet->lacks_events)
            in_flight_note_proof(quiet->doubts);
        drop(quiet);
    }
    context_unlock_all(locked);
    return is_over;
}

/* --- Waiting ---------------------------------------------------------------------------------------- */

static void nap(uint64_t *ns)
{
    const struct timespec time = {.tv_nsec = (long)*ns};
    nanosleep(&time, NULL);
    *ns = *ns * 2 < LONGEST_NAP_NS ? *ns * 2 : LONGEST_NAP_NS;
}

static void give_up(struct quiet *quiet)
{
    uint32_t locked = context_lock_all();
    if (!has_changed(quiet))
        drop(quiet);
    context_unlock_all(locked);
}

static bool wait_by_looking(struct quiet *quiet, uint64_t patience_ns)
{
    uint64_t from_ns = 0, passed_ns = 0, nap_ns = FIRST_NAP_NS;
    quiet->gone = UINT64_MAX;
    while (!look(quiet)) {
        from_ns = from_ns ? from_ns : monotonic_ns();
        passed_ns = monotonic_ns() - from_ns;
        if (passed_ns >= patience_ns ||
            (quiet->lacks_events && (quiet->others_die || passed_ns >= CAPTURE_PATIENCE_NS))) {
            give_up(quiet);
            return false;
        }
        nap(&nap_ns);
    }
    return true;
}

/* A driver without cuCtxRecordEvent. */
static bool wait_in_driver(struct quiet *quiet)
{
    bool is_over = true;
    find_contexts(quiet);
    for (uint32_t i = 0; i < quiet->count; i++) {
        CUcontext context = quiet->contexts[i].context;
        if (in_flight_has_captures()) {
            is_over &= in_flight_is_surely_finished();
        } else if (own_calls_push(context)) {
            CUresult result = real(cuCtxSynchronize)();
            own_calls_pop();
            if (context == quiet->own && result != CUDA_SUCCESS)
                quiet->own_error = result;
        }
    }
    return is_over;
}

CUresult quiet_wait(uint64_t devices, CUcontext own, uint64_t patience_ns)
{
    struct quiet quiet = {.devices = devices, .own = own, .record = record_context};
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    bool is_over = real(cuCtxRecordEvent) ? wait_by_looking(&quiet, patience_ns) : wait_in_driver(&quiet);
    own_calls_end(&calls);
    return is_over ? quiet.own_error : CUDA_ERROR_NOT_READY;
}

void quiet_order(struct order *order)
{
    struct own_calls calls;
    CUcontext current;
    *order = (struct order){0};
    if (!real(cuCtxRecordEvent) || real(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || !current)
        return;
    own_calls_begin(&calls, NULL);
    if (orders_begin_all(current, record_context, order) == CUDA_SUCCESS && orders_is_over(order)) {
        orders_drop(order);
        order->event = NULL;
    }
    own_calls_end(&calls);
}

bool quiet_is_drained(uint64_t patience_ns)
{
    struct quiet quiet = {.devices = QUIET_ALL_DEVICES,
                          .record = real(cuCtxRecordEvent) ? record_context : record_legacy};
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    bool is_over = wait_by_looking(&quiet, patience_ns);
    own_calls_end(&calls);
    return is_over;
}
