/* streams.c - how the driver behaves where the scheduling of sessions depends on it: work of other threads during a
 * capture, waits that are released late, event times of processes that share a card. Most results are figures
 * without a claim: we want to know what a driver does. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

static void launch_fill(CUfunction fill, CUdeviceptr at, uint32_t value, uint64_t count, CUstream stream)
{
    void *parameters[] = {&at, &value, &count};
    must(cuLaunchKernel(fill, 64, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
}

/* --- The driver and a kernel ----------------------------------------------------------------------- */

void check_kernels(const struct check *check)
{
    const uint64_t count = 1 << 20;
    CUdeviceptr memory, sum;
    uint32_t total = 0;
    open_context();
    must(cuMemAlloc_v2(&memory, count * 4));
    must(cuMemAlloc_v2(&sum, 4));
    must(cuMemsetD32_v2(sum, 0, 1));
    launch_fill(load_kernel("gs_fill_u32"), memory, 3, count, NULL);
    void *sum_parameters[] = {&memory, (void *)&count, &sum};
    must(cuLaunchKernel(load_kernel("gs_checksum_u32"), 64, 1, 1, 128, 1, 1, 0, NULL, sum_parameters, NULL));
    must(cuMemcpyDtoH_v2(&total, sum, 4));
    if (total != 3 * count)
        fail("the sum over %llu threes is %u", (unsigned long long)count, total);

    figure("calibrated_by_kernels_of", (double)work_calibrate_here(), "ms");
    float once_ms = work_time_steps((uint64_t)(5000 * work_steps_per_us())),
          twice_ms = work_time_steps((uint64_t)(10000 * work_steps_per_us()));
    figure("steps_a_microsecond", work_steps_per_us(), "count");
    figure("work_of_5_ms_by_events", (double)once_ms, "ms");
    figure("work_of_10_ms_by_events", (double)twice_ms, "ms");
    if (twice_ms < 1.5f * once_ms)
        fail("twice the work took %.3f ms by events, once the work %.3f", (double)twice_ms, (double)once_ms);
}

/* --- Another thread during a capture --------------------------------------------------------------- */

struct other {
    CUcontext context;
    CUstream stream; /* of the other thread, not captured */
    CUevent event;   /* recorded on that stream before */
    CUdeviceptr memory;
    CUfunction fill;
    CUresult (*act)(struct other *other);
    CUresult result;
};

static CUresult other_alloc(struct other *other)
{
    CUdeviceptr address;
    CUresult result = cuMemAlloc_v2(&address, MIB);
    if (result == CUDA_SUCCESS)
        cuMemFree_v2(address);
    return result;
}

static CUresult other_launch(struct other *other)
{
    uint32_t value = 1;
    uint64_t count = 1;
    void *parameters[] = {&other->memory, &value, &count};
    return cuLaunchKernel(other->fill, 1, 1, 1, 1, 1, 1, 0, other->stream, parameters, NULL);
}

static CUresult other_launch_legacy(struct other *other)
{
    uint32_t value = 1;
    uint64_t count = 1;
    void *parameters[] = {&other->memory, &value, &count};
    return cuLaunchKernel(other->fill, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, parameters, NULL);
}

static CUresult other_record(struct other *other)
{
    return cuEventRecord(other->event, other->stream);
}

static CUresult other_event_query(struct other *other)
{
    return cuEventQuery(other->event);
}

static CUresult other_event_wait(struct other *other)
{
    return cuEventSynchronize(other->event);
}

static CUresult other_stream_wait(struct other *other)
{
    return cuStreamSynchronize(other->stream);
}

static CUresult other_context_wait(struct other *other)
{
    return cuCtxSynchronize();
}

static CUresult other_copy(struct other *other)
{
    uint32_t value;
    return cuMemcpyDtoH_v2(&value, other->memory, 4);
}

static CUresult other_mem_info(struct other *other)
{
    size_t free_now, total;
    return cuMemGetInfo_v2(&free_now, &total);
}

static CUresult other_relaxed_record(struct other *other)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = cuThreadExchangeStreamCaptureMode(&mode);
    if (result == CUDA_SUCCESS)
        result = cuEventRecord(other->event, other->stream);
    if (result == CUDA_SUCCESS)
        result = cuEventSynchronize(other->event);
    cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static const struct {
    const char *name;
    CUresult (*act)(struct other *other);
} acts[] = {
    {"cuMemAlloc", other_alloc},
    {"cuMemGetInfo", other_mem_info},
    {"launch_on_own_stream", other_launch},
    {"launch_on_legacy_stream", other_launch_legacy},
    {"cuEventRecord", other_record},
    {"cuEventQuery", other_event_query},
    {"cuEventSynchronize", other_event_wait},
    {"cuStreamSynchronize", other_stream_wait},
    {"cuCtxSynchronize", other_context_wait},
    {"cuMemcpyDtoH", other_copy},
    {"record_and_wait_in_relaxed_mode", other_relaxed_record},
};

static void *act_aside(void *argument)
{
    struct other *other = argument;
    other->result = cuCtxSetCurrent(other->context);
    if (other->result == CUDA_SUCCESS)
        other->result = other->act(other);
    return NULL;
}

static void one_capture(struct other *other, CUstream stream, unsigned mode, unsigned act)
{
    static const char *const modes[] = {"global", "thread_local", "relaxed"};
    CUgraph graph = NULL;
    pthread_t thread;
    char name[80];
    other->act = acts[act].act;
    must(cuCtxSynchronize());
    must(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode));
    launch_fill(other->fill, other->memory, 2, 1, stream);
    if (pthread_create(&thread, NULL, act_aside, other) != 0)
        not_run("no second thread");
    pthread_join(thread, NULL);
    CUresult ended = cuStreamEndCapture(stream, &graph);
    snprintf(name, sizeof(name), "%s_during_%s", acts[act].name, modes[mode]);
    figure_text(name, "%s; the capture's end %s", result_name(other->result), result_name(ended));
    if (graph)
        must(cuGraphDestroy(graph));
}

void check_capture(const struct check *check)
{
    struct other other = {0};
    CUstream stream;
    open_context();
    must(cuCtxGetCurrent(&other.context));
    must(cuMemAlloc_v2(&other.memory, 4096));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&other.stream, CU_STREAM_NON_BLOCKING));
    must(cuEventCreate(&other.event, CU_EVENT_DISABLE_TIMING));
    other.fill = load_kernel("gs_fill_u32");
    must(cuEventRecord(other.event, other.stream));
    for (unsigned mode = 0; mode < 3; mode++)
        for (unsigned act = 0; act < sizeof(acts) / sizeof(acts[0]); act++)
            one_capture(&other, stream, mode, act);
}

/* --- A wait in a stream that is released late ------------------------------------------------------ */

void check_wait_value(const struct check *check)
{
    CUstream held, free_stream;
    CUevent behind, aside;
    CUdeviceptr memory, flag_address;
    void *flag;
    int has;
    open_context();
    CUfunction fill = load_kernel("gs_fill_u32");
    must(cuMemHostAlloc(&flag, 4096, 2 /* CU_MEMHOSTALLOC_DEVICEMAP */));
    memset(flag, 0, 4096);
    must(cuMemHostGetDevicePointer_v2(&flag_address, flag, 0));
    must(cuMemAlloc_v2(&memory, 4096));
    must(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    must(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    must(cuEventCreate(&aside, CU_EVENT_DISABLE_TIMING));
    must(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 0));
    figure("wait_nor_supported", has, "bool");
    CUresult result = cuStreamWaitValue32_v2(held, flag_address, 1, 0 /* CU_STREAM_WAIT_VALUE_GEQ */);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        not_run("the driver does not support cuStreamWaitValue32 here");
    must_succeed("cuStreamWaitValue32", result);
    launch_fill(fill, memory, 1, 1, held);
    must(cuEventRecord(behind, held));

    launch_fill(fill, memory + 64, 1, 1, free_stream);
    must(cuEventRecord(aside, free_stream));
    double start = now_s();
    while ((result = cuEventQuery(aside)) == CUDA_ERROR_NOT_READY && now_s() < start + 0.5)
        sleep_s(0.0005);
    figure_text("another_stream_goes_on", "%s", result == CUDA_SUCCESS ? "yes" : "no");
    sleep_s(0.05);
    if (cuEventQuery(behind) != CUDA_ERROR_NOT_READY)
        fail("work behind a wait that nobody has released is done");
    start = now_s();
    __atomic_store_n((uint32_t *)flag, 1, __ATOMIC_SEQ_CST);
    must(cuEventSynchronize(behind));
    figure("until_the_work_behind_is_done", (now_s() - start) * 1e6, "us");
    must(cuCtxSynchronize());
}

/* --- Event times of two processes ------------------------------------------------------------------ */

enum { KERNELS = 20, KERNEL_US = 2000 };

/* events: for each line, KERNELS kernels of KERNEL_US each; answers milliseconds by events. */
void part_events(const char *argument)
{
    CUevent begin, end;
    float taken_ms;
    open_context();
    must(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    must(cuEventCreate(&end, CU_EVENT_DEFAULT));
    part_tell("0");
    for (;;) {
        part_listen();
        must(cuEventRecord(begin, NULL));
        for (unsigned i = 0; i < KERNELS; i++)
            work_launch(KERNEL_US, NULL);
        must(cuEventRecord(end, NULL));
        must(cuEventSynchronize(end));
        must(cuEventElapsedTime(&taken_ms, begin, end));
        part_tell("%.6f", (double)taken_ms);
    }
}

void check_event_times(const struct check *check)
{
    struct part one, other;
    work_calibrate();
    part_start(&one, PART_OUTSIDE, "events", "");
    part_start(&other, PART_OUTSIDE, "events", "");
    part_hear(&one);
    part_hear(&other);
    part_say(&one, "go");
    double alone = part_hear_number(&one);
    part_say(&one, "go");
    part_say(&other, "go");
    double first = part_hear_number(&one), second = part_hear_number(&other);
    part_end(&one);
    part_end(&other);
    figure("kernels", KERNELS, "count");
    figure("a_kernel", KERNEL_US, "us");
    figure("alone", alone, "ms");
    figure("first_beside_second", first, "ms");
    figure("second_beside_first", second, "ms");
    if (alone < KERNELS * KERNEL_US * 0.5e-3) /* clocks rise, but not that far */
        fail("%d kernels of %d us took %.3f ms by events", KERNELS, KERNEL_US, alone);
}
