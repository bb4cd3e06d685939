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
#include "intercept/memory/charge.h"
#include "intercept/memory/hooks/graph_need.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define UPLOAD 2 /* CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD */

static bool read_need(CUgraph graph, struct graph_need *need)
{
    CUstreamCaptureMode mode;
    if (!charge_holds())
        return false;
    pool_charge_calls_begin(&mode);
    bool any = graph_need(graph, need);
    pool_charge_calls_end(&mode);
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
                            .bytes = need->bytes,
                            .owner = (uint64_t)(unsigned)need->device,
                            .gpu = (uint8_t)gpu,
                            .kind = RECORD_EXEC,
                            .flags = is_on_several(need) ? RECORD_DEVICES : 0};
    records_put(&private_get()->records, &record, &displaced);
    atomic_store_explicit(&private_get()->graphs_used, true, memory_order_relaxed);
}

/* Before what maps graph memory: the pool whose turn is then held. NULL: refused. */
static struct pool *begin(const struct graph_need *need, uint32_t gpu, CUgraphExec exec)
{
    struct pool *pool = pool_charge_get_graphs(need->device, gpu);
    if (!pool || !pool_charge_prepare_graph(pool, need->bytes, (uint64_t)(uintptr_t)exec)) {
        charge_say_refused(true, gpu, need->bytes);
        return NULL;
    }
    charge_moving();
    charge_enter();
    return pool;
}

static void end(struct pool *pool)
{
    if (pool_charge_settle(pool))
        pool_charge_done(pool);
    else
        pool_charge_accept(pool);
    charge_leave();
}

/* `where` is what `stream` means. A launch into a capture maps nothing. */
static CUresult launch(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream,
                       CUstream where)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    struct record record;
    if (!area || !atomic_load_explicit(&area->graphs_used, memory_order_relaxed) || !charge_holds() ||
        !records_find(&area->records, RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record))
        return driver(exec, stream);
    struct graph_need need = {.bytes = record.bytes, .device = (CUdevice)record.owner};
    struct pool *pool = begin(&need, record.gpu, exec);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool mapped = pool->mapped_by == record.key;
    CUresult result = driver(exec, stream);
    if (!mapped)
        pool->mapped_by = result == CUDA_SUCCESS && !in_flight_is_capturing(where) ? record.key : 0;
    end(pool);
    if (record.flags & RECORD_DEVICES)
        pool_charge_refresh_graphs();
    return result;
}

/* Through the gate first: who holds a pool's turn must not wait there, others allocate meanwhile. */
#define LAUNCHES(symbol, default_stream)                                                                     \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                                       \
    {                                                                                                        \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        struct gate *gate = gate_of();                                                                       \
        CUstream where = stream ? stream : (default_stream);                                                 \
        if (!gate)                                                                                           \
            return launch(real(symbol), exec, stream, where);                                                \
        gate_enter(gate, where);                                                                             \
        CUresult result = launch(real(symbol), exec, stream, where);                                         \
        gate_leave(gate, where);                                                                             \
        return result;                                                                                       \
    }
LAUNCHES(cuGraphLaunch, CU_STREAM_LEGACY)
LAUNCHES(cuGraphLaunch_ptsz, CU_STREAM_PER_THREAD)
LAUNCHES(cuGraphUpload, CU_STREAM_LEGACY)
LAUNCHES(cuGraphUpload_ptsz, CU_STREAM_PER_THREAD)

/* --- Instantiation --------------------------------------------------------------------------------- */

/* Where the graph's memory is charged: where it needs most. Elsewhere it is from now on looked at. */
static enum charge_place place_of(CUgraph graph, struct graph_need *need, struct charge *charge)
{
    if (!read_need(graph, need))
        return CHARGE_NOWHERE;
    for (uint64_t others = need->devices & ~(UINT64_C(1) << need->device); others; others &= others - 1) {
        CUdevice device = __builtin_ctzll(others);
        enum charge_place place = charge_place_device(charge, device);
        if (place == CHARGE_FORBIDDEN ||
            (place == CHARGE_ON_GPU && !pool_charge_get_graphs(device, charge->gpu)))
            return CHARGE_FORBIDDEN;
    }
    return charge_place_device(charge, need->device);
}

#define INSTANTIATES(symbol, parameters, arguments, uploads)                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct graph_need need;                                                                              \
        struct charge charge;                                                                                \
        struct pool *pool = NULL;                                                                            \
        if (!real_ready() || !real(symbol))                                                                  \
            return real_absent();                                                                            \
        enum charge_place place = exec && graph ? place_of(graph, &need, &charge) : CHARGE_NOWHERE;          \
        if (place == CHARGE_NOWHERE)                                                                         \
            return real(symbol) arguments;                                                                   \
        if (place == CHARGE_FORBIDDEN) {                                                                     \
            charge_say_refused(false, 0, need.bytes);                                                        \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        }                                                                                                    \
        if ((uploads) && !(pool = begin(&need, charge.gpu, NULL)))                                           \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        CUresult result = real(symbol) arguments;                                                            \
        if (pool) {                                                                                          \
            pool->mapped_by = result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*exec : 0;                       \
            end(pool);                                                                                       \
            if (is_on_several(&need))                                                                        \
                pool_charge_refresh_graphs();                                                                \
        } else if (result == CUDA_SUCCESS) {                                                                 \
            pool_charge_forget_exec(need.device, (uint64_t)(uintptr_t)*exec);                                \
        }                                                                                                    \
        if (result == CUDA_SUCCESS)                                                                          \
            remember(*exec, &need, charge.gpu);                                                              \
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
        records_restore(&private_get()->records, &record);
    pool_charge_refresh();
    return result;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    if (!real_ready() || !real(cuGraphDestroy))
        return real_absent();
    CUresult result = real(cuGraphDestroy)(graph);
    pool_charge_refresh();
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    if (!real_ready() || !real(cuDeviceGraphMemTrim))
        return real_absent();
    return pool_charge_trim_graphs(device);
}
