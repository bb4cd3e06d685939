/* hook_graph.c - memory nodes of graphs. A node takes nothing when it is made, nor when its graph is
 * instantiated: the device's graphs reserve memory together, when one of them is uploaded or launched
 * (cuDeviceGetGraphMemAttribute). They are charged by that, as one more pool (pools.h).
 *
 * What an executable graph needs is read when it is instantiated. Its first launch, and the first after graph
 * memory was trimmed, asks the ledger for what the reserved and unused memory does not cover; a later one has
 * its memory mapped, and asks only for what even all reserved memory would not cover. If the driver then
 * takes more (memory in pieces; nodes side by side; a second device), that is charged as it is: a launch
 * cannot be taken back. */
#include "cuda/driver_more.h"
#include "intercept/charge.h"
#include "intercept/gate.h"
#include "intercept/graph_need.h"
#include "intercept/pools.h"
#include "intercept/real.h"

#define UPLOAD 2 /* CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD */

static bool read_need(CUgraph graph, struct graph_need *need)
{
    CUstreamCaptureMode mode;
    if (!charge_holds())
        return false;
    pools_calls_begin(&mode);
    bool any = graph_need(graph, need);
    pools_calls_end(&mode);
    return any;
}

/* Remember what an executable graph needs, and where; and when it was mapped last, by trims_of() its pool (0:
 * never). */
static void remember(CUgraphExec exec, const struct graph_need *need, uint32_t gpu, uint32_t mapped_at)
{
    struct record displaced;
    struct record record = {.key = (uint64_t)(uintptr_t)exec,
                            .bytes = need->bytes,
                            .owner = (uint64_t)(unsigned)need->device,
                            .references = mapped_at,
                            .gpu = (uint8_t)gpu,
                            .kind = RECORD_EXEC};
    records_put(&private_get()->records, record, &displaced);
    atomic_store_explicit(&private_get()->graphs_used, true, memory_order_relaxed);
}

static uint32_t trims_of(const struct pool *pool)
{
    return atomic_load_explicit(&pool->trims, memory_order_relaxed) + 1;
}

/* Before what maps graph memory: the pool whose turn is then held. NULL, with `*answer` set: go on without
 * (pass), or do not (refused). */
static struct pool *begin(const struct graph_need *need, uint32_t gpu, bool mapped,
                          enum charge_answer *answer)
{
    struct pool *pool = pools_get_graphs(need->device, gpu);
    *answer = CHARGE_REFUSED;
    if (!pool || !(mapped ? pools_prepare_within : pools_prepare)(pool, need->bytes)) {
        charge_say_refused(true, gpu, need->bytes);
        return NULL;
    }
    *answer = CHARGE_TAKEN;
    charge_moving();
    charge_enter();
    return pool;
}

static void end(struct pool *pool)
{
    if (pools_settle(pool))
        pools_done(pool);
    else
        pools_accept(pool);
    charge_leave();
}

static CUresult launch(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    struct record record;
    enum charge_answer answer;
    if (!area || !atomic_load_explicit(&area->graphs_used, memory_order_relaxed) || !charge_holds() ||
        !records_find(&area->records, RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record))
        return driver(exec, stream);
    struct graph_need need = {record.bytes, (CUdevice)record.owner};
    struct pool *pool = pools_find_graphs(need.device);
    bool mapped = pool && record.references == trims_of(pool);
    pool = begin(&need, record.gpu, mapped, &answer);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = driver(exec, stream);
    if (result == CUDA_SUCCESS && record.references != trims_of(pool))
        remember(exec, &need, record.gpu, trims_of(pool));
    end(pool);
    return result;
}

/* Through the gate first: who holds a pool's turn must not wait there, others allocate meanwhile. */
#define LAUNCHES(symbol, default_stream)                                                                     \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                                       \
    {                                                                                                        \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        struct gate *gate = gate_of();                                                                       \
        if (!gate)                                                                                           \
            return launch(real(symbol), exec, stream);                                                       \
        gate_enter(gate, stream ? stream : (default_stream));                                                \
        CUresult result = launch(real(symbol), exec, stream);                                                \
        gate_leave(gate, stream ? stream : (default_stream));                                                \
        return result;                                                                                       \
    }
LAUNCHES(cuGraphLaunch, CU_STREAM_LEGACY)
LAUNCHES(cuGraphLaunch_ptsz, CU_STREAM_PER_THREAD)
LAUNCHES(cuGraphUpload, CU_STREAM_LEGACY)
LAUNCHES(cuGraphUpload_ptsz, CU_STREAM_PER_THREAD)

/* --- Instantiation --------------------------------------------------------------------------------- */

/* Where the graph's memory is charged. */
static enum charge_place place_of(CUgraph graph, struct graph_need *need, struct charge *charge)
{
    return read_need(graph, need) ? charge_place_device(charge, need->device) : CHARGE_NOWHERE;
}

#define INSTANTIATES(symbol, parameters, arguments, uploads)                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct graph_need need;                                                                              \
        struct charge charge;                                                                                \
        struct pool *pool = NULL;                                                                            \
        enum charge_answer answer;                                                                           \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        enum charge_place place = exec && graph ? place_of(graph, &need, &charge) : CHARGE_NOWHERE;          \
        if (place == CHARGE_NOWHERE)                                                                         \
            return real(symbol) arguments;                                                                   \
        if (place == CHARGE_FORBIDDEN) {                                                                     \
            charge_say_refused(false, 0, need.bytes);                                                        \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        }                                                                                                    \
        if ((uploads) && !(pool = begin(&need, charge.gpu, false, &answer)))                                 \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        CUresult result = real(symbol) arguments;                                                            \
        if (result == CUDA_SUCCESS)                                                                          \
            remember(*exec, &need, charge.gpu, pool ? trims_of(pool) : 0);                                   \
        if (pool)                                                                                            \
            end(pool);                                                                                       \
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
    if (!real_ready() || !real(cuGraphExecDestroy))
        return real_absent();
    bool known = charge_holds() &&
                 records_take(&private_get()->records, RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record);
    CUresult result = real(cuGraphExecDestroy)(exec);
    if (known && result != CUDA_SUCCESS)
        records_restore(&private_get()->records, record);
    pools_refresh();
    return result;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    if (!real_ready() || !real(cuGraphDestroy))
        return real_absent();
    CUresult result = real(cuGraphDestroy)(graph);
    pools_refresh();
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    if (!real_ready() || !real(cuDeviceGraphMemTrim))
        return real_absent();
    CUresult result = real(cuDeviceGraphMemTrim)(device);
    struct pool *pool = charge_holds() ? pools_find_graphs(device) : NULL;
    if (pool)
        atomic_fetch_add_explicit(&pool->trims, 1, memory_order_relaxed);
    pools_refresh();
    return result;
}
