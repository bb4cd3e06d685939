#include "gpucheck/work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpucheck/check.h"
#include "gpucheck/checks.h"
#include "gpucheck/part.h"

#define STEPS_PER_US "GPU_CHECK_STEPS_PER_US" /* how the parts learn it */
/* of a measured kernel: far longer than the error of events */
#define LENGTH_MS 4.0f
#define WARM_S 0.1
enum { TRIES = 5 };
/* A clock that still rises makes a calibration wrong for what comes after it. So the clock has settled when two in a
 * row, with work of STEADY_S in between, say the same. */
#define STEADY_S 0.25
#define STEADY_RATIO 0.02
#define STEADY_MOST_S 10.0

static double steps_per_us;

void work_launch_steps(uint64_t steps, CUstream stream)
{
    static CUfunction kernel;
    uint64_t nowhere = 0;
    void *parameters[] = {&steps, &nowhere};
    if (!kernel)
        kernel = load_kernel("gs_steps_u32");
    must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

float work_time_steps(uint64_t steps)
{
    CUevent begin, end;
    float ms;
    must(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    must(cuEventCreate(&end, CU_EVENT_DEFAULT));
    must(cuEventRecord(begin, NULL));
    work_launch_steps(steps, NULL);
    must(cuEventRecord(end, NULL));
    must(cuEventSynchronize(end));
    must(cuEventElapsedTime(&ms, begin, end)); /* the newer form came with CUDA 12.8 */
    must(cuEventDestroy_v2(begin));
    must(cuEventDestroy_v2(end));
    return ms;
}

static float quickest(uint64_t steps)
{
    float least = work_time_steps(steps);
    for (unsigned i = 1; i < TRIES; i++) {
        float ms = work_time_steps(steps);
        least = ms < least ? ms : least;
    }
    return least;
}

/* Keep the GPU busy for so long. */
static void keep_busy(double seconds, uint64_t steps)
{
    for (double end_s = now_s() + seconds; now_s() < end_s;)
        work_time_steps(steps);
}

/* Measure how many steps take a microsecond, now. Returns the length of the longer kernels, in milliseconds. */
static float measure(uint64_t steps)
{
    while (work_time_steps(steps) < LENGTH_MS && steps < (UINT64_C(1) << 40))
        steps *= 2;
    /* The difference of two lengths, as both contain what happens before and after a kernel. */
    float whole_ms = quickest(2 * steps), more_ms = whole_ms - quickest(steps);
    if (!(more_ms > 0))
        fail_and_end("a kernel of %llu steps takes no longer than one of half as many", 2ULL * steps);
    steps_per_us = (double)steps / ((double)more_ms * 1e3);
    return whole_ms;
}

float work_calibrate_here(void)
{
    const uint64_t few = 1 << 12;
    double begin_s = now_s(), before;
    float whole_ms;
    /* The first launch loads the kernel's code. */
    keep_busy(WARM_S, few);
    measure(few);
    do {
        before = steps_per_us;
        keep_busy(STEADY_S, few);
        whole_ms = measure(few);
    } while (fabs(steps_per_us / before - 1) > STEADY_RATIO && now_s() - begin_s < STEADY_MOST_S);
    if (fabs(steps_per_us / before - 1) > STEADY_RATIO)
        not_run(
            "the GPU's clock does not settle: within %.0f s, two measurements of a kernel in a row always "
            "differed by more than %.0f %%",
            STEADY_MOST_S, STEADY_RATIO * 100);
    char text[40];
    snprintf(text, sizeof(text), "%.9g", steps_per_us);
    setenv(STEPS_PER_US, text, 1);
    return whole_ms;
}

/* calibrate: answers the steps in a microsecond. */
void part_calibrate(const char *argument)
{
    open_context();
    work_calibrate_here();
    part_tell("%.9g", steps_per_us);
    part_listen();
}

void work_calibrate(void)
{
    struct part part;
    char text[40];
    part_start(&part, PART_OUTSIDE, "calibrate", "");
    steps_per_us = part_hear_number(&part);
    part_end(&part);
    snprintf(text, sizeof(text), "%.9g", steps_per_us);
    setenv(STEPS_PER_US, text, 1);
}

double work_steps_per_us(void)
{
    const char *told = getenv(STEPS_PER_US);
    if (steps_per_us <= 0 && told)
        steps_per_us = strtod(told, NULL);
    if (!(steps_per_us > 0))
        fail_and_end("nobody has measured how long a step takes");
    return steps_per_us;
}

void work_launch(uint64_t microseconds, CUstream stream)
{
    work_launch_steps((uint64_t)((double)microseconds * work_steps_per_us()), stream);
}
