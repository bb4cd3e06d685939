/* waits.c - which calls wait for running work, and whether the driver knows of all work that runs. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/micro/micro.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

/* --- Unmapping under a running kernel ---------------------------------------------------------------- */

static struct micro_memory used_memory;
static uint64_t busy_steps;

/* How many steps take MICRO_BUSY_MS. Nothing rests on how exact that is. */
static void measure_steps(void)
{
    busy_steps = 1 << 12;
    while (work_time_steps(busy_steps) < MICRO_BUSY_MS / 8.0f && busy_steps < (UINT64_C(1) << 40))
        busy_steps *= 2;
    busy_steps *= 8;
}

/* A kernel that uses the memory, when it has counted its steps. */
static void start_user(CUstream stream)
{
    void *parameters[] = {&busy_steps, &used_memory.address};
    must(cuLaunchKernel(load_kernel("gs_steps_u32"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* unmap user|other: unmaps memory while a kernel runs that uses it, or another one. Answers whether that waited,
 * and what the kernel came to. It breaks its context where the driver does not wait. */
void part_unmap(const char *argument)
{
    bool is_user = strcmp(argument, "user") == 0;
    CUstream stream;
    open_context();
    measure_steps();
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    micro_map(&used_memory, MICRO_PIECE_BYTES);
    if (is_user)
        start_user(stream);
    else
        micro_start_busy(stream);
    struct micro_race race = micro_race_begin(stream);
    must(cuMemUnmap(used_memory.address, used_memory.bytes));
    const char *waits = micro_race_end(&race);
    part_tell("%s %s", waits ? waits : "unclear", result_name(cuStreamSynchronize(stream)));
    part_listen();
}

static void ask_unmap(const char *argument, const char *name, const char *kernel_name)
{
    struct part part;
    char waits[16], kernel[64];
    part_start(&part, PART_OUTSIDE, "unmap", argument);
    if (sscanf(part_hear(&part), "%15s %63s", waits, kernel) != 2)
        fail_and_end("its part '%s' said '%s'", part.name, part.line);
    if (strcmp(waits, "unclear") == 0)
        could_not_try(name, "the kernel had ended before");
    else
        figure_text(name, "%s", waits);
    if (kernel_name)
        figure_text(kernel_name, "%s", kernel);
    part_kill(&part); /* whose context may be broken */
}

void check_unmap_running(const struct check *check)
{
    (void)check;
    ask_unmap("user", "waits", "the_kernel_ends_with");
    ask_unmap("other", "waits_for_kernels_that_do_not_use_it", NULL);
}

/* --- Freeing under a running kernel ------------------------------------------------------------------- */

static void ask_free(const char *name, size_t bytes, CUstream stream)
{
    const char *waits = NULL;
    for (unsigned i = 0; i < 3 && !waits; i++) {
        CUdeviceptr address;
        must(cuMemAlloc_v2(&address, bytes));
        micro_start_busy(stream);
        struct micro_race race = micro_race_begin(stream);
        must(cuMemFree_v2(address));
        waits = micro_race_end(&race);
        must(cuStreamSynchronize(stream));
    }
    if (waits)
        figure_text(name, "%s", waits);
    else
        could_not_try(name, "the kernel of %u ms had always ended before", MICRO_BUSY_MS);
}

void check_free_waits(const struct check *check)
{
    CUstream stream;
    (void)check;
    open_context();
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ask_free("of_1_byte", 1, stream);
    ask_free("of_64MiB", 64 * MIB, stream);
}

/* --- What a query of the legacy stream tells ---------------------------------------------------------- */

static CUcontext context_of_all;

static void *start_in_own_stream(void *nothing)
{
    must(cuCtxSetCurrent(context_of_all));
    micro_start_busy(CU_STREAM_PER_THREAD);
    return nothing;
}

static void start_in_another_thread(CUstream nothing)
{
    pthread_t thread;
    (void)nothing;
    if (pthread_create(&thread, NULL, start_in_own_stream, NULL) != 0 || pthread_join(thread, NULL) != 0)
        not_run("no second thread");
}

/* Whether the legacy stream's query sees the work that `start` puts into a stream. */
static void ask_query(const char *name, void (*start)(CUstream), CUstream stream)
{
    double begin_s = now_s();
    start(stream);
    bool sees = micro_is_busy(CU_STREAM_LEGACY);
    if (!sees && now_s() - begin_s > MICRO_BUSY_MS * 1e-3)
        could_not_try(name, "the kernel of %u ms may have ended before", MICRO_BUSY_MS);
    else
        figure_text(name, "%s", yes_or_no(sees));
    must(cuCtxSynchronize());
}

void check_legacy_query(const struct check *check)
{
    CUstream blocking, apart;
    (void)check;
    open_context();
    must(cuCtxGetCurrent(&context_of_all));
    must(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    must(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    ask_query("sees_a_blocking_stream", micro_start_busy, blocking);
    ask_query("sees_a_nonblocking_stream", micro_start_busy, apart);
    ask_query("sees_another_threads_stream", start_in_another_thread, NULL);
}

/* --- A free in the order of the legacy stream --------------------------------------------------------- */

void check_async_free(const struct check *check)
{
    CUstream blocking, apart;
    CUdeviceptr first, second;
    int has;
    (void)check;
    open_context();
    must(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    if (!has)
        not_run("the driver has no pools for this GPU");
    must(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    must(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    must(cuMemAllocAsync(&first, MICRO_PIECE_BYTES, blocking));
    must(cuStreamSynchronize(blocking));
    micro_start_busy(blocking);
    must(cuMemFreeAsync(first, CU_STREAM_LEGACY));
    bool ran_on = micro_is_busy(blocking), waits_in_order = micro_is_busy(CU_STREAM_LEGACY);
    must(cuMemAllocAsync(&second, MICRO_PIECE_BYTES, apart));
    bool is_early = second == first && micro_is_busy(blocking) && !micro_is_busy(apart);
    figure_text("returns_at_once", "%s", yes_or_no(ran_on));
    if (ran_on) {
        figure_text("comes_behind_the_blocking_streams", "%s", yes_or_no(waits_in_order));
        figure_text("the_memory_is_given_out_before_its_time", "%s", yes_or_no(is_early));
    }
    must(cuMemFreeAsync(second, apart));
    must(cuCtxSynchronize());
}

/* --- Launches that overlap with the one before -------------------------------------------------------- */

#define PDL_MS 20
#define PDL_PTX(before, after)                                                                               \
    ".version 7.8\n.target sm_90\n.address_size 64\n"                                                        \
    ".visible .entry gs_spin_us(.param .u64 microseconds)\n{\n"                                              \
    ".reg .pred %p;\n.reg .u64 %begin, %now, %length;\n" before                                              \
    "ld.param.u64 %length, [microseconds];\nmul.lo.u64 %length, %length, 1000;\n"                            \
    "mov.u64 %begin, %globaltimer;\n"                                                                        \
    "again:\nmov.u64 %now, %globaltimer;\nsub.u64 %now, %now, %begin;\n"                                     \
    "setp.lt.u64 %p, %now, %length;\n@%p bra again;\n" after "ret;\n}\n"

/* The first of a pair lets the next launch begin at once; the second waits for the first at its own end. */
static const char first_ptx[] = PDL_PTX("griddepcontrol.launch_dependents;\n", "");
static const char second_ptx[] = PDL_PTX("", "griddepcontrol.wait;\n");

static CUfunction load_spin(const char *ptx)
{
    CUmodule module;
    CUfunction function;
    must(cuModuleLoadData(&module, ptx));
    must(cuModuleGetFunction(&function, module, "gs_spin_us"));
    return function;
}

static void launch_pdl(CUfunction function, CUstream stream, bool may_overlap)
{
    uint64_t microseconds = PDL_MS * 1000;
    void *parameters[] = {&microseconds};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, may_overlap};
    must(cuLaunchKernelEx(&config, function, parameters, NULL));
}

/* Milliseconds of a pair of kernels: in one stream, with an event in between or none, or in two streams. */
static double time_pair(CUfunction first, CUfunction second, CUstream one, CUstream other, CUevent mark)
{
    double least_ms = 1e9;
    for (unsigned i = 0; i < 5; i++) {
        double begin_s = now_s();
        launch_pdl(first, one, false);
        if (mark)
            must(cuEventRecord(mark, one));
        launch_pdl(second, other, one == other);
        must(cuCtxSynchronize());
        double ms = (now_s() - begin_s) * 1e3;
        least_ms = ms < least_ms ? ms : least_ms;
    }
    return least_ms;
}

void check_pdl(const struct check *check)
{
    CUstream one, other;
    CUevent mark;
    int major;
    (void)check;
    open_context();
    must(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    if (major < 9)
        not_run("the GPU is of compute capability %d.x; launches overlap from 9.0 on", major);
    if (!driver_has(CUDA_ID_cuLaunchKernelEx))
        not_run("the driver has no cuLaunchKernelEx");
    must(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    must(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
    CUfunction first = load_spin(first_ptx), second = load_spin(second_ptx);
    time_pair(first, second, one, other, NULL); /* loads their code */
    double apart_ms = time_pair(first, first, one, other, NULL);
    figure("two_streams", apart_ms, "ms");
    if (apart_ms > 1.5 * PDL_MS)
        not_run("kernels of two streams do not run side by side here: two of %d ms take %.1f ms", PDL_MS,
                apart_ms);
    double plain_ms = time_pair(first, second, one, one, NULL),
           marked_ms = time_pair(first, second, one, one, mark);
    figure("without_a_mark", plain_ms, "ms");
    figure("with_a_mark", marked_ms, "ms");
    figure_text("overlap", "%s", yes_or_no(plain_ms < 1.5 * PDL_MS));
    figure_text("overlap_with_a_mark", "%s", yes_or_no(marked_ms < 1.5 * PDL_MS));
}
