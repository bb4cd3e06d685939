/* execution.c - submitting to the timelines and waiting for them. */
#include "simgpu/time/execution.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/check.h"
#include "simgpu/device/costs.h"
#include "simgpu/device/faults.h"
#include "simgpu/device/shared.h"
#include "simgpu/time/events.h"
#include "simgpu/time/memops.h"

#define SPIN_NS UINT64_C(20000)       /* below this, sleeping takes longer than what is waited for */
#define SLEEP_LATE_NS UINT64_C(60000) /* a sleep's usual delay (timer slack), begun that much earlier */
#define SLEEP_MOST_NS UINT64_C(5000000)
#define CLOCK_FALLS_NS UINT64_C(500000000) /* without work for so long, a GPU lowers its clock */

static struct execution {
    pthread_mutex_t lock;
    _Atomic uint64_t served[TIMELINE_ENGINES]; /* at least; only grows */
    struct timeline_state *scratch;
} executions[DEVICE_GPUS] = {[0 ... DEVICE_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static struct timeline *timeline_of(unsigned gpu)
{
    return &shared_view()->gpus[gpu].timeline;
}

bool execution_init(void)
{
    for (unsigned gpu = 0; gpu < device_parameters().gpu_count; gpu++) {
        void *scratch = mmap(NULL, sizeof(struct timeline_state), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (scratch == MAP_FAILED)
            return false;
        executions[gpu].scratch = scratch;
    }
    return true;
}

void execution_lock(unsigned gpu)
{
    pthread_mutex_lock(&executions[gpu].lock);
}

void execution_unlock(unsigned gpu)
{
    pthread_mutex_unlock(&executions[gpu].lock);
}

uint64_t execution_link_ns(uint64_t bytes)
{
    double rate = constant(SIM_LINK_GBPS);
    return rate > 0 ? (uint64_t)((double)bytes / rate) : 0;
}

uint64_t execution_device_ns(uint64_t bytes)
{
    double rate = constant(SIM_DEVICE_GBPS);
    return rate > 0 ? (uint64_t)((double)bytes / rate) : 0;
}

/* Find out how far our work is. Under the lock. */
static void look_at_timeline(unsigned gpu)
{
    struct timeline_marks served;
    timeline_look(timeline_of(gpu), shared_view()->slot, monotonic_ns(), &served);
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        atomic_store_explicit(&executions[gpu].served[engine], served.at[engine], memory_order_release);
    events_settle(gpu);
}

void execution_advance(unsigned gpu)
{
    execution_lock(gpu);
    look_at_timeline(gpu);
    execution_unlock(gpu);
}

/* Whether we know already; needs no lock. */
bool execution_is_known_reached(unsigned gpu, const struct timeline_marks *marks)
{
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        if (marks->at[engine] > atomic_load_explicit(&executions[gpu].served[engine], memory_order_acquire))
            return false;
    return true;
}

bool execution_is_reached(unsigned gpu, const struct timeline_marks *marks)
{
    if (execution_is_known_reached(gpu, marks))
        return true;
    look_at_timeline(gpu);
    return execution_is_known_reached(gpu, marks);
}

uint64_t execution_done_ns(unsigned gpu, const struct timeline_marks *marks)
{
    uint64_t last_ns = 0;
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++) {
        uint64_t done_ns = timeline_done_ns(timeline_of(gpu), shared_view()->slot,
                                            (enum timeline_engine)engine, marks->at[engine]);
        if (done_ns > last_ns)
            last_ns = done_ns;
    }
    return last_ns;
}

bool execution_query(unsigned gpu, const struct timeline_marks *marks)
{
    if (execution_is_known_reached(gpu, marks))
        return true;
    execution_lock(gpu);
    bool reached = execution_is_reached(gpu, marks);
    execution_unlock(gpu);
    return reached;
}

/* Drop the work of processes that are gone: else it would be served for ever. Under the lock. */
static void reap(unsigned gpu)
{
    const struct shared_view *view = shared_view();
    uint32_t slots[TIMELINE_SLOTS];
    uint32_t count = timeline_busy_slots(timeline_of(gpu), slots, TIMELINE_SLOTS);
    for (uint32_t i = 0; i < count && i < TIMELINE_SLOTS; i++) {
        if (slots[i] >= DEVICE_SLOTS)
            continue;
        const _Atomic uint64_t *generation = &view->header->slots[slots[i]].generation;
        uint64_t seen = atomic_load(generation);
        if (!shared_slot_is_alive(slots[i]))
            timeline_drop(timeline_of(gpu), view->slot, slots[i], generation, seen, monotonic_ns());
    }
}

static void sleep_until(uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

void execution_wait(unsigned gpu, const struct timeline_marks *marks)
{
    uint64_t reap_ns = 0;
    bool has_waited = false;
    while (!execution_is_known_reached(gpu, marks)) {
        execution_lock(gpu);
        uint64_t now_ns = monotonic_ns();
        if (now_ns >= reap_ns) {
            reap(gpu);
            reap_ns = now_ns + SLEEP_MOST_NS;
        }
        bool reached = execution_is_reached(gpu, marks);
        uint64_t expected_ns = reached ? 0
                                       : timeline_expect(timeline_of(gpu), shared_view()->slot, marks, now_ns,
                                                         executions[gpu].scratch);
        execution_unlock(gpu);
        if (reached)
            break;
        has_waited = true;
        if (expected_ns == UINT64_MAX) {
            sleep_until(now_ns + SLEEP_LATE_NS * 2); /* a host function of ours has to return first */
        } else if (expected_ns > now_ns + SPIN_NS + SLEEP_LATE_NS) {
            uint64_t most_ns = now_ns + SLEEP_MOST_NS;
            sleep_until(expected_ns < most_ns ? expected_ns - SLEEP_LATE_NS : most_ns);
        } else {
            sched_yield();
        }
    }
    if (has_waited)
        cost_of_waking();
}

/* --- Streams' marks -------------------------------------------------------------------------------- */

static bool is_blocking(CUstream stream)
{
    return !stream || !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* The legacy stream waits for all that synchronise with it, and they for it (CUDA: stream synchronisation
 * behaviour). */
struct timeline_marks stream_marks(CUcontext context, CUstream stream)
{
    if (!stream)
        return context->blocking;
    struct timeline_marks marks = stream->last;
    if (is_blocking(stream))
        timeline_marks_join(&marks, &context->legacy);
    return marks;
}

bool stream_is_valid(CUcontext context, CUstream stream)
{
    const struct timeline_marks *last = stream ? &stream->last : &context->legacy;
    return (!stream || stream->context == context) &&
           timeline_marks_reached(last, is_blocking(stream) ? &context->blocking : &context->all) &&
           timeline_marks_reached(&context->made, &context->blocking) &&
           timeline_marks_reached(&context->blocking, &context->all);
}

void stream_join(CUcontext context, CUstream stream, const struct timeline_marks *marks)
{
    if (stream)
        timeline_marks_join(&stream->last, marks);
    else
        timeline_marks_join(&context->legacy, marks);
    if (is_blocking(stream))
        timeline_marks_join(&context->blocking, marks);
    if (is_blocking(stream) && !(stream && stream->thread))
        timeline_marks_join(&context->made, marks);
    timeline_marks_join(&context->all, marks);
    GS_CHECK(stream_is_valid(context, stream));
}

/* Under execution_lock(). */
static bool is_behind_gate(unsigned gpu, const struct timeline_marks *marks)
{
    for (unsigned engine = TIMELINE_GATE; engine < TIMELINE_ENGINES; engine++)
        if (marks->at[engine] > atomic_load_explicit(&executions[gpu].served[engine], memory_order_acquire))
            return true;
    return false;
}

static struct timeline_marks submit_marked(CUcontext context, CUstream stream, enum timeline_engine engine,
                                           uint64_t duration_ns)
{
    unsigned gpu = context->gpu;
    execution_lock(gpu);
    for (;;) {
        struct timeline_marks marks = stream_marks(context, stream);
        uint64_t mark;
        if (timeline_submit(timeline_of(gpu), shared_view()->slot, engine, duration_ns, &marks, monotonic_ns,
                            &mark)) {
            GS_CHECK(mark > marks.at[engine]);
            marks.at[engine] = mark;
            stream_join(context, stream, &marks);
            execution_unlock(gpu);
            return marks;
        }
        look_at_timeline(gpu);
        uint64_t first = timeline_of(gpu)->slots[shared_view()->slot].submitted[engine] - TIMELINE_RING + 1;
        struct timeline_marks room = {0};
        room.at[engine] = first;
        if (execution_is_known_reached(gpu, &room))
            continue;
        execution_unlock(gpu);
        execution_wait(gpu, &room);
        execution_lock(gpu);
    }
}

/* An engine serves a process's operations in order, so work behind a gate must not wait in its queue: it
 * would keep other streams' work waiting, which may be what opens the gate. memops.c holds it back beside the
 * gate instead. Host functions of several streams may wait for each other (driver API reference:
 * cuLaunchHostFunc). */
struct timeline_marks stream_submit_marked(CUcontext context, CUstream stream, enum timeline_engine engine,
                                           uint64_t duration_ns)
{
    if (engine == TIMELINE_COPY_OUT && !constant_whole(SIM_LINK_DUPLEX))
        engine = TIMELINE_COPY_IN; /* both ways share the link */
    if (engine < TIMELINE_HOST) {
        execution_lock(context->gpu);
        struct timeline_marks marks = stream_marks(context, stream);
        bool held = is_behind_gate(context->gpu, &marks) && !execution_is_reached(context->gpu, &marks);
        execution_unlock(context->gpu);
        if (held && memops_hold_work(context, stream, engine, duration_ns, &marks))
            return marks;
    }
    return submit_marked(context, stream, engine, duration_ns);
}

uint64_t stream_submit_gate(CUcontext context, CUstream stream, unsigned gate)
{
    enum timeline_engine engine = (enum timeline_engine)(TIMELINE_GATE + gate);
    return submit_marked(context, stream, engine, 0).at[engine];
}

bool execution_submit(unsigned gpu, enum timeline_engine engine, uint64_t duration_ns,
                      struct timeline_marks *marks)
{
    const struct timeline_marks nothing = {0};
    *marks = nothing;
    execution_lock(gpu);
    look_at_timeline(gpu);
    bool submitted = timeline_submit(timeline_of(gpu), shared_view()->slot, engine, duration_ns, &nothing,
                                     monotonic_ns, &marks->at[engine]);
    execution_unlock(gpu);
    return submitted;
}

/* What work takes at the clock that the GPU has now: half of its own after it was idle, and rising for RAMP_NS. */
static uint64_t at_clock(unsigned gpu, uint64_t duration_ns)
{
    double ramp_ns = constant(SIM_RAMP_NS);
    if (!(ramp_ns > 0) || (duration_ns & TIMELINE_BY_CLOCK))
        return duration_ns;
    struct shared_header *header = shared_view()->header;
    uint64_t now_ns = monotonic_ns(), until_ns = atomic_load(&header->busy_until_ns[gpu]);
    if (until_ns + CLOCK_FALLS_NS < now_ns)
        atomic_store(&header->busy_since_ns[gpu], now_ns);
    double risen = (double)(now_ns - atomic_load(&header->busy_since_ns[gpu])) / ramp_ns;
    uint64_t slow_ns = risen < 1 ? (uint64_t)((double)duration_ns * (2 - risen)) : duration_ns;
    if (now_ns + slow_ns > until_ns)
        atomic_store(&header->busy_until_ns[gpu], now_ns + slow_ns);
    return slow_ns;
}

void stream_submit(CUcontext context, CUstream stream, enum timeline_engine engine, uint64_t duration_ns)
{
    CUresult fault = engine == TIMELINE_COMPUTE ? fault_of_work(context->gpu) : CUDA_SUCCESS;
    if (fault != CUDA_SUCCESS)
        atomic_store(&context->sticky, (int)fault); /* the program's next call reports it */
    cost_pay(SIM_LAUNCH_NS);
    stream_take_last_kernel(context, stream);
    if (engine == TIMELINE_COMPUTE)
        duration_ns = at_clock(context->gpu, duration_ns);
    /* What takes no time is done when what is before it is: there is nothing to tell the device. */
    if (duration_ns > 0)
        stream_submit_marked(context, stream, engine, duration_ns);
}

static atomic_bool *last_kernel(CUcontext context, CUstream stream)
{
    return stream ? &stream->ends_with_kernel : &context->ends_with_kernel;
}

bool stream_take_last_kernel(CUcontext context, CUstream stream)
{
    return atomic_exchange(last_kernel(context, stream), false);
}

void stream_note_kernel(CUcontext context, CUstream stream)
{
    atomic_store(last_kernel(context, stream), true);
}

void stream_wait(CUcontext context, CUstream stream)
{
    execution_lock(context->gpu);
    struct timeline_marks marks = stream_marks(context, stream);
    execution_unlock(context->gpu);
    execution_wait(context->gpu, &marks);
}

void context_wait(CUcontext context)
{
    execution_lock(context->gpu);
    struct timeline_marks marks = context->all;
    execution_unlock(context->gpu);
    execution_wait(context->gpu, &marks);
}

bool execution_host_ready(unsigned gpu, uint64_t mark)
{
    execution_lock(gpu);
    uint64_t ready;
    bool is_ready =
        timeline_host_ready(timeline_of(gpu), shared_view()->slot, monotonic_ns(), &ready) && ready == mark;
    execution_unlock(gpu);
    return is_ready;
}

void execution_host_done(unsigned gpu)
{
    execution_lock(gpu);
    timeline_host_done(timeline_of(gpu), shared_view()->slot, monotonic_ns());
    execution_unlock(gpu);
}

bool execution_gate_ready(unsigned gpu, unsigned gate, uint64_t mark)
{
    execution_lock(gpu);
    uint64_t ready;
    bool is_ready =
        timeline_gate_ready(timeline_of(gpu), shared_view()->slot, gate, monotonic_ns(), &ready) &&
        ready == mark;
    execution_unlock(gpu);
    return is_ready;
}

void execution_gate_done(unsigned gpu, unsigned gate)
{
    execution_lock(gpu);
    timeline_gate_done(timeline_of(gpu), shared_view()->slot, gate, monotonic_ns());
    execution_unlock(gpu);
}
