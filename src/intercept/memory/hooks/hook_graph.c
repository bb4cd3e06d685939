/* hook_graph.c - memory nodes of graphs. A node takes nothing when it is made, nor when its graph is
 * instantiated: the device's graphs reserve memory together, when one of them is uploaded or launched
 * (cuDeviceGetGraphMemAttribute). They are charged by that, as one more pool (pool_charge.h).
 *
 * What an executable graph needs is read when it is instantiated. A launch asks the ledger for what the
 * reserved and unused memory does not cover, in the driver's steps, so that it is refused before the driver
 * takes anything. One right after another of the same graph asks for nothing: its memory is there. After
 * another graph was launched that need not be so: what is reserved may be in use by that one, for as long as
 * the program does not free it. If the driver takes more all the same (memory in pieces; nodes side by side;
 * on another device than the one where the graph needs most), that is charged as it is: a launch cannot be
 * taken back. */
#include "cuda/driver_more.h"
#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/hooks/graph_need.h"
#include "intercept/memory/hooks/named.h"
#include "intercept/memory/pool_charge.h"
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

static bool is_on_several(const struct graph_need *need)
{
    return need->devices & (need->devices - 1);
}

/* Remember what an executable graph needs, and where. */
static void remember(CUgraphExec exec, const struct graph_need *need, uint32_t gpu)
{
    struct record displaced;
    struct record record = {.key = (uint64_t)(uintptr_t)exec,
                            .kind = RECORD_EXEC,
                            .gpu = (uint8_t)gpu,
                            .flags = is_on_several(need) ? RECORD_ON_SEVERAL : 0,
                            .exec = {.bytes = need->bytes, .device = need->device}};
    records_put(memory_records(), &record, &displaced);
    atomic_store_explicit(&memory_area()->uses_graphs, true, memory_order_relaxed);
}

/* Before what maps graph memory: the pool, whose lock this thread has then. NULL: refused. */
static struct pool *begin(const struct graph_need *need, uint32_t gpu, CUgraphExec exec)
{
    struct pool *pool = pool_charge_get_graphs(need->device, gpu);
    if (!pool || !pool_charge_prepare_graph(pool, need->bytes, (uint64_t)(uintptr_t)exec)) {
        charge_say_refused(true, gpu, need->bytes);
        return NULL;
    }
    charge_begin_move();
    charge_enter();
    return pool;
}

static void end(struct pool *pool)
{
    if (pool_charge_correct(pool))
        pool_charge_done(pool);
    else
        pool_charge_accept(pool);
    charge_leave();
}

/* What fits the quota, and the card had no room for. `bytes` 0: there was room. */
struct lack {
    uint32_t gpu;
    uint64_t bytes;
};

/* `where` is what `stream` means. A launch into a capture maps nothing. */
static CUresult launch(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream,
                       CUstream where, struct lack *lack)
{
    *lack = (struct lack){0};
    struct memory_area *area = memory_area_if_any();
    struct record record;
    if (!area || !atomic_load_explicit(&area->uses_graphs, memory_order_relaxed) || !charge_has_any() ||
        !records_find(&area->records, RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record))
        return driver(exec, stream);
    struct graph_need need = {.bytes = record.exec.bytes, .device = record.exec.device};
    struct pool *pool = begin(&need, record.gpu, exec);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool is_mapped = pool->mapped_by == record.key;
    CUresult result = driver(exec, stream);
    if (!is_mapped)
        pool->mapped_by = result == CUDA_SUCCESS && !in_flight_is_capturing(where) ? record.key : 0;
    end(pool);
    if (record.flags & RECORD_ON_SEVERAL)
        pool_charge_refresh_graphs();
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        *lack = (struct lack){record.gpu, need.bytes};
    return result;
}

/* Through the gate first: a thread that has a pool's lock must not wait there, others allocate meanwhile. Nor is room waited
 * for behind the gate: others leave to make it, and this process may have to. */
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
    } while (lack.bytes && agent_wait_for_room(lack.gpu, lack.bytes, false, attempt++));
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

/* Where the graph's memory is charged: on the device where it needs most. Of its other devices, what graphs reserve is
 * followed from now on. */
static enum gpu_place place_of(CUgraph graph, struct graph_need *need, struct charge *charge)
{
    if (!read_need(graph, need))
        return PLACE_NOWHERE;
    for (uint64_t others = need->devices & ~(UINT64_C(1) << need->device); others; others &= others - 1) {
        CUdevice device = __builtin_ctzll(others);
        enum gpu_place place = charge_place_device(charge, device);
        if (place == PLACE_FORBIDDEN ||
            (place == PLACE_ON_GPU && !pool_charge_get_graphs(device, charge->gpu)))
            return PLACE_FORBIDDEN;
    }
    return charge_place_device(charge, need->device);
}

/* What is known of an instantiation between its two ends. */
struct instantiation {
    struct graph_need need;
    uint32_t gpu;
    struct pool *pool; /* of one that uploads: with its lock */
    bool is_charged;   /* the graph allocates on the session's GPUs */
    struct lack lack;  /* of one that uploads */
};

/* Before the driver is asked. False: refused. */
static bool begin_instantiation(struct instantiation *one, CUgraphExec *exec, CUgraph graph, bool uploads)
{
    struct charge charge;
    *one = (struct instantiation){0};
    enum gpu_place place = exec && graph ? place_of(graph, &one->need, &charge) : PLACE_NOWHERE;
    if (place == PLACE_FORBIDDEN)
        charge_say_refused(false, 0, one->need.bytes);
    if (place != PLACE_ON_GPU)
        return place == PLACE_NOWHERE;
    one->is_charged = true;
    one->gpu = charge.gpu;
    if (uploads)
        one->pool = begin(&one->need, charge.gpu, NULL);
    return !uploads || one->pool;
}

static CUresult end_instantiation(struct instantiation *one, CUresult result, const CUgraphExec *exec)
{
    if (!one->is_charged)
        return result;
    uint64_t key = result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*exec : 0;
    if (one->pool) {
        one->pool->mapped_by = key;
        end(one->pool);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            one->lack = (struct lack){one->gpu, one->need.bytes};
        if (is_on_several(&one->need))
            pool_charge_refresh_graphs();
    } else if (key) {
        pool_charge_forget_exec(one->need.device, key);
    }
    if (key)
        remember(*exec, &one->need, one->gpu);
    return result;
}

#define INSTANTIATES(symbol, parameters, arguments, uploads)                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct instantiation one;                                                                            \
        CUresult result;                                                                                     \
        unsigned attempt = 0;                                                                                \
        real_needed(symbol);                                                                                 \
        do {                                                                                                 \
            bool holds = named_hold(__builtin_return_address(0));                                            \
            result = begin_instantiation(&one, exec, graph, uploads)                                         \
                         ? end_instantiation(&one, real(symbol) arguments, exec)                             \
                         : CUDA_ERROR_OUT_OF_MEMORY;                                                         \
            named_let_go(holds);                                                                             \
        } while (one.lack.bytes && agent_wait_for_room(one.lack.gpu, one.lack.bytes, false, attempt++));     \
        return result;                                                                                       \
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

/* --- The end --------------------------------------------------------------------------------------- */

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct record record;
    real_needed(cuGraphExecDestroy);
    bool known =
        charge_has_any() && records_take(memory_records(), RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record);
    CUresult result = real(cuGraphExecDestroy)(exec);
    if (known && result != CUDA_SUCCESS)
        records_restore(memory_records(), &record);
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
