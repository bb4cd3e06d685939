/* memops.c - stream memory operations.
 *
 * What a stream waits for may come from anywhere: another stream, a host's store, another process. The
 * stream's later work waits behind an operation of a gate (timeline.h); one thread of the process looks at
 * the values that streams wait for, sleeping between looks, and opens the gates. A card would also look while
 * the process is stopped; we cannot, as the values are in this process's memory.
 *
 * Only when later work runs is held back. Its data moves when it is submitted (sim.h): a copy behind a wait
 * has copied what was there before. */
#include "simgpu/time/memops.h"

#include <stdlib.h>
#include <time.h>

#include "base/process.h"
#include "simgpu/graph/capture.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

#define BATCH_MOST 256u /* driver API reference: cuStreamBatchMemOp */
#define LOOK_FIRST_NS 20000
#define LOOK_LAST_NS 1000000

struct memop {
    struct memop *next;
    enum { MEMOP_VALUE, MEMOP_WORK, MEMOP_WORK_BEGUN } kind;
    CUstreamBatchMemOpParams what; /* MEMOP_VALUE */
    enum timeline_engine engine;   /* the others: what is submitted when it is its turn */
    uint64_t duration_ns;
    struct timeline_marks begun;
    CUstream stream;
    unsigned gpu;
    uint64_t mark;
};

struct gate {
    struct memop *first, **end;
};

/* What is held back, by GPU and gate, each in the order of its marks. */
static struct {
    pthread_mutex_t submitting; /* keeps the order; held also while a full queue has no room */
    pthread_mutex_t lock;       /* of what follows */
    pthread_cond_t filled;
    bool running;
    unsigned count;
    struct gate gates[DEVICE_GPUS][TIMELINE_GATES];
} held = {.submitting = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .filled = PTHREAD_COND_INITIALIZER};

/* --- One operation --------------------------------------------------------------------------------- */

static bool is_wait(const CUstreamBatchMemOpParams *what)
{
    return what->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
           what->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_wide(const CUstreamBatchMemOpParams *what)
{
    return what->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
           what->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static uint64_t value_read(const CUstreamBatchMemOpParams *what)
{
    uintptr_t address = (uintptr_t)what->waitValue.address;
    return is_wide(what) ? __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE)
                         : __atomic_load_n((const uint32_t *)address, __ATOMIC_ACQUIRE);
}

/* GEQ is cyclic: what is up to half the range behind is less (driver API reference). */
static bool is_satisfied(const CUstreamBatchMemOpParams *what)
{
    uint64_t found = value_read(what);
    uint64_t wanted = is_wide(what) ? what->waitValue.value64 : what->waitValue.value;
    switch (what->waitValue.flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return is_wide(what) ? ~(found | wanted) != 0 : (uint32_t) ~(found | wanted) != 0;
    default:
        return is_wide(what) ? (int64_t)(found - wanted) >= 0 : (int32_t)(uint32_t)(found - wanted) >= 0;
    }
}

static void value_raise(uint64_t *value, uint64_t least)
{
    uint64_t found = __atomic_load_n(value, __ATOMIC_RELAXED);
    while (found < least &&
           !__atomic_compare_exchange_n(value, &found, least, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

/* False for a wait that is not satisfied. */
static bool memop_run(const CUstreamBatchMemOpParams *what)
{
    if (is_wait(what))
        return is_satisfied(what);
    uintptr_t address = (uintptr_t)what->writeValue.address;
    if (what->operation == MEMOP_RAISE_64) {
        value_raise((uint64_t *)address, what->writeValue.value64);
        return true;
    }
    if (is_wide(what))
        __atomic_store_n((uint64_t *)address, what->writeValue.value64, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)address, what->writeValue.value, __ATOMIC_RELEASE);
    return true;
}

static CUresult memop_check(const CUstreamBatchMemOpParams *what)
{
    switch (what->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        SIM_REQUIRE((what->waitValue.flags & ~(CU_STREAM_WAIT_VALUE_FLUSH | 3u)) == 0);
        if (what->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH)
            return CUDA_ERROR_NOT_SUPPORTED; /* CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0 */
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        SIM_REQUIRE((what->writeValue.flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) == 0);
        break;
    case CU_STREAM_MEM_OP_BARRIER:
        return what->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS
                                                                              : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Address and flags lie alike in both. */
    uint64_t bytes = is_wide(what) ? 8 : 4;
    SIM_REQUIRE(what->waitValue.address && what->waitValue.address % bytes == 0);
    SIM_REQUIRE(memory_is_accessible(what->waitValue.address, bytes));
    return CUDA_SUCCESS;
}

CUresult memops_check(const CUstreamBatchMemOpParams *operations, unsigned count)
{
    SIM_REQUIRE(operations && count > 0 && count <= BATCH_MOST);
    for (unsigned i = 0; i < count; i++)
        SIM_TRY(memop_check(&operations[i]));
    return CUDA_SUCCESS;
}

/* --- What is held back ----------------------------------------------------------------------------- */

/* Whether the operation, whose turn it is, is done now. */
static bool operation_serve(struct memop *operation)
{
    if (operation->kind == MEMOP_VALUE)
        return memop_run(&operation->what);
    if (operation->kind == MEMOP_WORK &&
        execution_submit(operation->gpu, operation->engine, operation->duration_ns, &operation->begun))
        operation->kind = MEMOP_WORK_BEGUN;
    return operation->kind == MEMOP_WORK_BEGUN && execution_query(operation->gpu, &operation->begun);
}

/* Open the gate's first operations as far as they can be; whether any was. */
static bool gate_serve(unsigned gpu, unsigned number)
{
    struct gate *gate = &held.gates[gpu][number];
    bool served = false;
    while (gate->first && execution_gate_ready(gpu, number, gate->first->mark) &&
           operation_serve(gate->first)) {
        struct memop *operation = gate->first;
        execution_gate_done(gpu, number);
        gate->first = operation->next;
        if (!gate->first)
            gate->end = &gate->first;
        free(operation);
        held.count--;
        served = true;
    }
    return served;
}

static void *held_serve(void *argument)
{
    long pause_ns = LOOK_FIRST_NS;
    process_ask_for_short_slices(); /* this thread stands for the card, which busy CPUs do not keep waiting */
    pthread_mutex_lock(&held.lock);
    for (;;) {
        if (held.count == 0)
            pthread_cond_wait(&held.filled, &held.lock);
        bool served = false;
        for (unsigned gpu = 0; gpu < DEVICE_GPUS; gpu++)
            for (unsigned number = 0; number < TIMELINE_GATES; number++)
                served |= gate_serve(gpu, number);
        pause_ns = served ? LOOK_FIRST_NS : pause_ns * 2 < LOOK_LAST_NS ? pause_ns * 2 : LOOK_LAST_NS;
        pthread_mutex_unlock(&held.lock);
        if (!served)
            nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        pthread_mutex_lock(&held.lock);
    }
    return NULL;
}

/* Under held.lock. */
static bool held_start(void)
{
    pthread_t thread;
    if (held.running)
        return true;
    held.running = pthread_create(&thread, NULL, held_serve, NULL) == 0;
    if (held.running)
        pthread_detach(thread);
    return held.running;
}

/* The gate where the stream has operations already, which keep their order there; else an empty one; else one
 * shared with another stream, as a card's streams share its queues when they are many. Under held.lock. */
static unsigned gate_choose(unsigned gpu, CUstream stream)
{
    unsigned empty = TIMELINE_GATES;
    for (unsigned number = 0; number < TIMELINE_GATES; number++) {
        const struct memop *operation = held.gates[gpu][number].first;
        if (!operation)
            empty = number;
        for (; operation; operation = operation->next)
            if (operation->stream == stream)
                return number;
    }
    return empty < TIMELINE_GATES ? empty : (unsigned)(stream ? stream->id % TIMELINE_GATES : 0);
}

static bool memop_hold(CUcontext context, CUstream stream, const struct memop *like,
                       struct timeline_marks *marks)
{
    struct memop *operation = malloc(sizeof(*operation));
    if (!operation)
        return false;
    *operation = *like;
    operation->stream = stream;
    operation->gpu = context->gpu;
    pthread_mutex_lock(&held.submitting);
    pthread_mutex_lock(&held.lock);
    bool running = held_start();
    unsigned number = gate_choose(context->gpu, stream);
    pthread_mutex_unlock(&held.lock);
    if (!running) {
        pthread_mutex_unlock(&held.submitting);
        free(operation);
        return false;
    }
    operation->mark = stream_submit_gate(context, stream, number);
    *marks = (struct timeline_marks){0};
    marks->at[TIMELINE_GATE + number] = operation->mark;
    pthread_mutex_lock(&held.lock);
    struct gate *gate = &held.gates[context->gpu][number];
    if (!gate->first)
        gate->end = &gate->first;
    *gate->end = operation;
    gate->end = &operation->next;
    held.count++;
    pthread_cond_signal(&held.filled);
    pthread_mutex_unlock(&held.lock);
    pthread_mutex_unlock(&held.submitting);
    return true;
}

bool memops_hold_work(CUcontext context, CUstream stream, enum timeline_engine engine, uint64_t duration_ns,
                      struct timeline_marks *marks)
{
    const struct memop like = {.kind = MEMOP_WORK, .engine = engine, .duration_ns = duration_ns};
    return memop_hold(context, stream, &like, marks);
}

CUresult memops_submit(CUcontext context, CUstream stream, const CUstreamBatchMemOpParams *operations,
                       unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (operations[i].operation == CU_STREAM_MEM_OP_BARRIER)
            continue; /* data that moves when it is submitted is in order */
        execution_lock(context->gpu);
        struct timeline_marks before = stream_marks(context, stream);
        bool is_idle = execution_is_reached(context->gpu, &before);
        execution_unlock(context->gpu);
        if (is_idle && memop_run(&operations[i]))
            continue;
        const struct memop like = {.kind = MEMOP_VALUE, .what = operations[i]};
        struct timeline_marks marks;
        if (!memop_hold(context, stream, &like, &marks))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* --- Entry points: the _v2 forms are the same, with the waits that need no attribute of old cards -- */

/* In a stream that is being captured, operations become a node. */
static bool submit_capture(CUstream handle, bool per_thread, const CUstreamBatchMemOpParams *operations,
                           unsigned count, CUresult *result)
{
    CUcontext context;
    CUstream stream;
    if (stream_find(handle, per_thread, &context, &stream) != CUDA_SUCCESS)
        return false;
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        .memOp = {.ctx = context,
                  .count = count,
                  .paramArray = (CUstreamBatchMemOpParams *)(uintptr_t)operations},
    };
    return capture_node(handle, per_thread, &params, result);
}

static CUresult submit(CUstream handle, bool per_thread, const CUstreamBatchMemOpParams *operations,
                       unsigned count, unsigned flags)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == 0);
    SIM_TRY(memops_check(operations, count));
    CUresult result;
    if (capture_is_possible() && submit_capture(handle, per_thread, operations, count, &result))
        return result;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    return memops_submit(context, stream, operations, count);
}

static CUresult submit_wait(CUstream stream, bool per_thread, CUstreamBatchMemOpType type,
                            CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    CUstreamBatchMemOpParams what = {.waitValue = {.operation = type, .address = address, .flags = flags}};
    if (type == CU_STREAM_MEM_OP_WAIT_VALUE_64)
        what.waitValue.value64 = value;
    else
        what.waitValue.value = (cuuint32_t)value;
    return submit(stream, per_thread, &what, 1, 0);
}

static CUresult submit_write(CUstream stream, bool per_thread, CUstreamBatchMemOpType type,
                             CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    CUstreamBatchMemOpParams what = {.writeValue = {.operation = type, .address = address, .flags = flags}};
    if (type == CU_STREAM_MEM_OP_WRITE_VALUE_64)
        what.writeValue.value64 = value;
    else
        what.writeValue.value = (cuuint32_t)value;
    return submit(stream, per_thread, &what, 1, 0);
}

/* An operation with and without _v2. */
#define FORMS(name, value_type, what, type)                                                                  \
    SIM_FORMS(name, _ptsz, (CUstream stream, CUdeviceptr address, value_type value, unsigned int flags),     \
              what(stream, per_thread, type, address, value, flags))                                         \
    SIM_FORMS(name##_v2, _ptsz,                                                                              \
              (CUstream stream, CUdeviceptr address, value_type value, unsigned int flags),                  \
              what(stream, per_thread, type, address, value, flags))
FORMS(cuStreamWaitValue32, cuuint32_t, submit_wait, CU_STREAM_MEM_OP_WAIT_VALUE_32)
FORMS(cuStreamWaitValue64, cuuint64_t, submit_wait, CU_STREAM_MEM_OP_WAIT_VALUE_64)
FORMS(cuStreamWriteValue32, cuuint32_t, submit_write, CU_STREAM_MEM_OP_WRITE_VALUE_32)
FORMS(cuStreamWriteValue64, cuuint64_t, submit_write, CU_STREAM_MEM_OP_WRITE_VALUE_64)
#undef FORMS

SIM_FORMS(cuStreamBatchMemOp, _ptsz,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags),
          submit(stream, per_thread, operations, count, flags))

SIM_FORMS(cuStreamBatchMemOp_v2, _ptsz,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags),
          submit(stream, per_thread, operations, count, flags))
