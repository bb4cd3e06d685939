/* latency.c - how long single calls of the driver and of NVML take, outside of any session. */
#include <stdio.h>
#include <unistd.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

enum { TIMES = 200 };

static CUevent event, timed_event;
static CUdeviceptr address;

static void call_launch(void)
{
    work_launch_steps(0, NULL);
}

static void call_record(void)
{
    must(cuEventRecord(event, NULL));
}

static void call_record_timed(void)
{
    must(cuEventRecord(timed_event, NULL));
}

static void call_query(void)
{
    cuEventQuery(event);
}

static void call_alloc(void)
{
    must(cuMemAlloc_v2(&address, 2 * MIB));
}

static void call_free(void)
{
    must(cuMemFree_v2(address));
}

static double time_of(void (*call)(void), void (*after)(void))
{
    static double times[TIMES];
    for (unsigned i = 0; i < TIMES; i++) {
        double begin_s = now_s();
        call();
        times[i] = (now_s() - begin_s) * 1e6;
        if (after)
            after();
    }
    must(cuCtxSynchronize());
    return median(times, TIMES);
}

/* How much later than the GPU a waiting thread goes on. */
static double time_of_waking(void)
{
    static double times[TIMES / 4];
    for (unsigned i = 0; i < TIMES / 4; i++) {
        float ms = work_time_steps((uint64_t)(500 * work_steps_per_us()));
        double begin_s = now_s();
        work_launch(500, NULL);
        must(cuCtxSynchronize());
        times[i] = (now_s() - begin_s) * 1e6 - (double)ms * 1e3;
    }
    return median(times, TIMES / 4);
}

void check_call_times(const struct check *check)
{
    open_context();
    work_calibrate_here();
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    must(cuEventCreate(&timed_event, CU_EVENT_DEFAULT));
    double launch_us = time_of(call_launch, NULL);
    figure("launch", launch_us, "us");
    figure("event_record", time_of(call_record, NULL), "us");
    figure("event_record_timed", time_of(call_record_timed, NULL), "us");
    figure("event_query", time_of(call_query, NULL), "us");
    figure("launch_and_wait_beyond_the_kernel", time_of_waking(), "us");
    figure("allocate_2MiB", time_of(call_alloc, call_free), "us");
    if (launch_us <= 0)
        fail("a launch takes no time");
}

/* --- NVML, beside a growing number of contexts ---------------------------------------------------- */

enum { HOLDERS = 40 };
/* a further context is opened only if more is free */
#define ROOM_BYTES (2 * GIB)
#define END_S 25 /* for the last look, and for all of them to end */

static void time_calls(unsigned contexts)
{
    static double lists[TIMES / 10], memories[TIMES / 10];
    char name[64];
    for (unsigned i = 0; i < TIMES / 10; i++) {
        double begin_s = now_s();
        nvml_list();
        double between_s = now_s();
        nvml_free_bytes();
        memories[i] = (now_s() - between_s) * 1e6;
        lists[i] = (between_s - begin_s) * 1e6;
    }
    snprintf(name, sizeof(name), "list_%u", contexts);
    figure(name, median(lists, TIMES / 10), "us");
    snprintf(name, sizeof(name), "list_%u_longest", contexts);
    figure(name, lists[TIMES / 10 - 1], "us");
    snprintf(name, sizeof(name), "memory_%u", contexts);
    figure(name, median(memories, TIMES / 10), "us");
    snprintf(name, sizeof(name), "allocate_%u", contexts);
    figure(name, time_of(call_alloc, call_free), "us");
}

void check_nvml_latency(const struct check *check)
{
    static struct part holders[HOLDERS];
    unsigned count = 0;
    open_context();
    time_calls(1);
    while (count < HOLDERS - 1 && nvml_free_bytes() > scaled(ROOM_BYTES, 64 * MIB) && has_time(END_S)) {
        part_start(&holders[count], PART_OUTSIDE, "hold", "4096");
        part_hear(&holders[count++]);
        if (count + 1 == 10 || count + 1 == HOLDERS)
            time_calls(count + 1);
    }
    figure("contexts", count + 1, "count");
    while (count > 0)
        part_end(&holders[--count]);
}
