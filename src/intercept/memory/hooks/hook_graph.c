/* hook_graph.c - memory nodes of graphs. A node takes nothing when it is made, nor when its graph is instantiated.
 * All graphs of a device reserve memory together, when one of them is uploaded or launched
 * (cuDeviceGetGraphMemAttribute). That is what they are charged for, as one more pool (pool_charge.h).
 *
 * What an executable graph needs on each device is read when it is instantiated. A launch reserves in the ledger what
 * the driver's reserved and unused memory does not cover, in the driver's steps, so that the launch is refused before
 * the driver takes anything. A launch right after another of the same graph reserves nothing, since its memory is
 * there. After a launch of another graph it may not be there: that graph may use what is reserved, until the program
 * frees it. If the driver takes more all the same (memory in pieces; nodes side by side), the session is charged for
 * it whether it fits or not: a launch cannot be taken back. */
#include "cuda/driver_more.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/full_card.h"
#include "intercept/memory/hooks/graph_need.h"
#include "intercept/memory/hooks/named.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define UPLOAD 2 /* CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD */

static bool read_need(CUgraph graph, struct graph_need *need)
{
    struct own_calls calls;
    if (!charge_has_any())
        return false;
    own_calls_begin(&calls, NULL);
    bool any = graph_need(graph, need);
    own_calls_end(&calls);
    return any;
}

/* What a graph needs on the session's GPUs: one record for each, in the order of the devices, so that all threads
 * take the pools' locks in the same order. */
struct parts {
    unsigned count;
    struct record all[LEDGER_GPUS];
    struct pool *pools[LEDGER_GPUS]; /* this thread holds their locks while the driver maps */
};

static uint64_t handle_key(CUgraphExec exec)
{
    return (uint64_t)(uintptr_t)exec;
}

/* The first record is found by the handle alone, and each record names the next one's device. No address uses the
 * last byte. */
static uint64_t key_of(CUgraphExec exec, unsigned next)
{
    return handle_key(exec) | (uint64_t)next << 56;
}

typedef bool get_record(struct records *records, enum record_kind kind, uint64_t key, struct record *got);

static bool get_parts(get_record *get, struct records *records, CUgraphExec exec, struct parts *parts)
{
    unsigned next = 0;
    parts->count = 0;
    do {
        struct record *part = &parts->all[parts->count];
        if (!get(records, RECORD_EXEC, key_of(exec, next), part))
            break;
        next = part->exec.next;
        parts->count++;
    } while (next && parts->count < LEDGER_GPUS);
    return parts->count > 0;
}

/* Enters the last record first: a thread that finds the first record finds all of them. */
static void remember(CUgraphExec exec, struct parts *parts)
{
    unsigned next = 0;
    for (unsigned i = parts->count; i-- > 0;) {
        struct record displaced, *part = &parts->all[i];
        unsigned own = (unsigned)part->exec.device + 1;
        part->key = key_of(exec, i ? own : 0);
        part->exec.next = next;
        next = own;
        records_put(memory_records(), part, &displaced);
    }
    atomic_store_explicit(&memory_area()->uses_graphs, true, memory_order_relaxed);
}

/* Before a call that maps graph memory: gets the pools and takes their locks. False: refused, without the locks. */
static bool begin(struct parts *parts, CUgraphExec exec)
{
    for (unsigned i = 0; i < parts->count; i++) {
        const struct record *part = &parts->all[i];
        struct pool *pool = pool_charge_get_graphs(part->exec.device, part->gpu);
        parts->pools[i] = pool;
        if (pool && pool_charge_prepare_graph(pool, part->exec.bytes, handle_key(exec)))
            continue;
        while (i-- > 0)
            pool_charge_accept(parts->pools[i]);
        /* Without their locks, since it may attach (area.h). */
        refusal_by_limit(part->gpu, part->exec.bytes);
        return false;
    }
    charge_begin_move();
    charge_enter();
    return true;
}

/* After the call: the driver has mapped what `exec` needs. NULL: it mapped nothing, or not for good. */
static void end(const struct parts *parts, CUgraphExec exec)
{
    for (unsigned i = 0; i < parts->count; i++) {
        struct pool *pool = parts->pools[i];
        pool->mapped_by = handle_key(exec);
        if (pool_charge_correct(pool))
            pool_charge_done(pool);
        else
            pool_charge_accept(pool);
    }
    charge_leave();
}

/* What fits the quota but found no room on the card. `bytes` 0: there was room. */
struct lack {
    uint32_t gpu;
    uint64_t bytes;
};

/* The driver does not say which device had no room: take the one where the graph needs most. */
static struct lack lack_of(const struct parts *parts)
{
    struct lack lack = {0};
    for (unsigned i = 0; i < parts->count; i++)
        if (parts->all[i].exec.bytes > lack.bytes)
            lack = (struct lack){parts->all[i].gpu, parts->all[i].exec.bytes};
    return lack;
}

static bool is_mapped(const struct parts *parts, CUgraphExec exec)
{
    for (unsigned i = 0; i < parts->count; i++)
        if (parts->pools[i]->mapped_by != handle_key(exec))
            return false;
    return true;
}

/* `where` is the stream that `stream` means. A launch into a capture maps nothing. */
static CUresult launch(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream,
                       CUstream where, struct lack *lack)
{
    *lack = (struct lack){0};
    struct memory_area *area = memory_area_if_any();
    struct parts parts;
    if (!area || !atomic_load_explicit(&area->uses_graphs, memory_order_relaxed) || !charge_has_any() ||
        !get_parts(records_find, &area->records, exec, &parts))
        return driver(exec, stream);
    if (!begin(&parts, exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool was_mapped = is_mapped(&parts, exec);
    CUresult result = driver(exec, stream);
    bool maps = result == CUDA_SUCCESS && !in_flight_is_capturing(where);
    end(&parts, was_mapped || maps ? exec : NULL);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        *lack = lack_of(&parts);
    return result;
}

/* Pass the gate first: a thread that has a pool's lock must not wait there, since other threads allocate meanwhile.
 * And wait for room outside the gate: other processes leave the card to make it, and this one may have to. */
static CUresult pass_and_launch(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream,
                                CUstream where)
{
    struct gate *gate = gate_of();
    struct lack lack;
    CUresult result;
    unsigned attempt = 0;
    do {
        if (gate)
            gate_enter_pieces(gate, where);
        result = launch(driver, exec, stream, where, &lack);
        if (gate)
            gate_leave(gate, where);
    } while (lack.bytes && full_card_wait(lack.gpu, lack.bytes, lack.bytes, false, attempt++));
    return result;
}

#define LAUNCHES(symbol, default_stream)                                                                     \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                                       \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        return pass_and_launch(real(symbol), exec, stream, stream ? stream : (default_stream));              \
    }
LAUNCHES(cuGraphLaunch, CU_STREAM_LEGACY)
LAUNCHES(cuGraphLaunch_ptsz, CU_STREAM_PER_THREAD)
LAUNCHES(cuGraphUpload, CU_STREAM_LEGACY)
LAUNCHES(cuGraphUpload_ptsz, CU_STREAM_PER_THREAD)

/* --- Instantiation --------------------------------------------------------------------------------- */

static enum gpu_place place_of(CUgraph graph, struct parts *parts)
{
    struct graph_need need;
    parts->count = 0;
    if (!read_need(graph, &need))
        return PLACE_NOWHERE;
    for (unsigned device = 0; device < LEDGER_GPUS; device++) {
        struct charge charge;
        enum gpu_place place =
            need.bytes[device] ? charge_place_device(&charge, (CUdevice)device) : PLACE_NOWHERE;
        if (place == PLACE_ON_GPU)
            parts->all[parts->count++] =
                (struct record){.kind = RECORD_EXEC,
                                .gpu = (uint8_t)charge.gpu,
                                .exec = {.bytes = need.bytes[device], .device = (int)device}};
        if (place != PLACE_FORBIDDEN)
            continue;
        refusal_of_gpu();
        return PLACE_FORBIDDEN;
    }
    return parts->count ? PLACE_ON_GPU : PLACE_NOWHERE;
}

/* What an instantiation keeps from before the driver's call until after it. */
struct instantiation {
    CUgraph graph;
    CUgraphExec *exec;
    bool uploads;
    CUresult result;
    struct parts parts; /* none: the graph does not allocate on the session's GPUs */
    struct lack lack;   /* if it uploads */
    unsigned attempts;
    bool has_begun, holds; /* memory is held (named.h) */
};

/* Before the driver is asked. False: refused. */
static bool begin_instantiation(struct instantiation *one)
{
    one->lack = (struct lack){0};
    one->parts.count = 0;
    enum gpu_place place = one->exec && one->graph ? place_of(one->graph, &one->parts) : PLACE_NOWHERE;
    if (place != PLACE_ON_GPU)
        return place == PLACE_NOWHERE;
    return !one->uploads || begin(&one->parts, NULL);
}

static void end_instantiation(struct instantiation *one)
{
    struct parts *parts = &one->parts;
    if (!parts->count)
        return;
    CUgraphExec made = one->result == CUDA_SUCCESS ? *one->exec : NULL;
    if (one->uploads) {
        end(parts, made);
        if (one->result == CUDA_ERROR_OUT_OF_MEMORY)
            one->lack = lack_of(parts);
    } else if (made) {
        for (unsigned i = 0; i < parts->count; i++)
            pool_charge_forget_exec(parts->all[i].exec.device, handle_key(made));
    }
    if (made)
        remember(made, parts);
}

/* Whether the driver is to be asked now, the first time or once more. `caller`: of the hook. */
static bool instantiation_goes_on(struct instantiation *one, const void *caller)
{
    if (one->has_begun) {
        end_instantiation(one);
        named_let_go(one->holds);
        if (!one->lack.bytes ||
            !full_card_wait(one->lack.gpu, one->lack.bytes, one->lack.bytes, false, one->attempts++))
            return false;
    }
    one->has_begun = true;
    one->holds = named_hold(caller);
    if (begin_instantiation(one))
        return true;
    named_let_go(one->holds);
    one->result = CUDA_ERROR_OUT_OF_MEMORY;
    return false;
}

#define INSTANTIATES(symbol, parameters, arguments, is_uploaded)                                             \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct instantiation one = {.graph = graph, .exec = exec, .uploads = is_uploaded};                   \
        real_needed(symbol);                                                                                 \
        while (instantiation_goes_on(&one, __builtin_return_address(0)))                                     \
            one.result = real(symbol) arguments;                                                             \
        return one.result;                                                                                   \
    }
INSTANTIATES(cuGraphInstantiate,
             (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t log_bytes),
             (exec, graph, error, log, log_bytes), false)
INSTANTIATES(cuGraphInstantiate_v2,
             (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t log_bytes),
             (exec, graph, error, log, log_bytes), false)
INSTANTIATES(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
             (exec, graph, flags), flags &UPLOAD)
INSTANTIATES(cuGraphInstantiateWithParams,
             (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
             (exec, graph, params), params && (params->flags & UPLOAD))
INSTANTIATES(cuGraphInstantiateWithParams_ptsz,
             (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
             (exec, graph, params), params && (params->flags & UPLOAD))

/* --- Destroying, and trimming ---------------------------------------------------------------------- */

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct parts parts = {.count = 0};
    real_needed(cuGraphExecDestroy);
    if (charge_has_any())
        get_parts(records_take, memory_records(), exec, &parts);
    CUresult result = real(cuGraphExecDestroy)(exec);
    if (result != CUDA_SUCCESS)
        while (parts.count-- > 0)
            records_restore(memory_records(), &parts.all[parts.count]);
    pool_charge_refresh();
    return result;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    real_needed(cuGraphDestroy);
    CUresult result = real(cuGraphDestroy)(graph);
    pool_charge_refresh();
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    real_needed(cuDeviceGraphMemTrim);
    return pool_charge_trim_graphs(device);
}
