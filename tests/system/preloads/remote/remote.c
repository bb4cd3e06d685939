/* remote.c - a libcuda.so.1 that is no driver itself: as WSL2's does, and shims that reach a GPU elsewhere, it loads the one
 * at REMOTE_DRIVER, looks every entry point up there with dlsym, and jumps to what that answered (driver.S). So what its
 * cuGetProcAddress hands out are functions that it does not export.
 *
 * REMOTE_DIES_MS=N   after its exit handler, which takes N ms, every call ends the process by SIGABRT, as calls after
 *                    a driver's own may do
 * REMOTE_LOADS_MS=N  the first launch of each kernel takes N ms more, as where code is loaded lazily
 * REMOTE_COUNTS=FILE at its exit, it writes there how often events with and without timing were recorded, and how often
 *                    streams and events were asked about: four numbers */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/entry_points.h"
#include "cuda/prototypes.h"

extern void *driver_functions[CUDA_ENTRY_COUNT];
__attribute__((visibility("hidden"))) void *driver_functions[CUDA_ENTRY_COUNT];

static void die(void)
{
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        driver_functions[id] = (void *)abort;
    usleep(1000 * (useconds_t)atoi(getenv("REMOTE_DIES_MS")));
}

/* --- Lazy loading ----------------------------------------------------------------------------------- */

static typeof(cuLaunchKernel) *launch_kernel;

static CUresult load_and_launch(CUfunction kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                CUstream stream, void **parameters, void **extra)
{
    static CUfunction loaded[64];
    unsigned at = 0;
    while (at < 63 && loaded[at] && loaded[at] != kernel)
        at++;
    if (!loaded[at])
        usleep(1000 * (useconds_t)atoi(getenv("REMOTE_LOADS_MS")));
    loaded[at] = kernel;
    return launch_kernel(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                         parameters, extra);
}

/* --- Counting --------------------------------------------------------------------------------------- */

#define EVENTS 4096u

static atomic_uint timed, untimed, stream_questions, event_questions, untimed_count;
static _Atomic(CUevent) untimed_events[EVENTS];
static typeof(cuEventCreate) *create_event;
static typeof(cuEventRecord) *record_event;
static typeof(cuStreamQuery) *query_stream;
static typeof(cuEventQuery) *query_event;

static CUresult count_created(CUevent *event, unsigned flags)
{
    CUresult result = create_event(event, flags);
    if (result == CUDA_SUCCESS && (flags & CU_EVENT_DISABLE_TIMING))
        untimed_events[untimed_count++ % EVENTS] = *event;
    return result;
}

static CUresult count_recorded(CUevent event, CUstream stream)
{
    unsigned i = 0;
    while (i < untimed_count && i < EVENTS && untimed_events[i] != event)
        i++;
    if (i < untimed_count && i < EVENTS)
        untimed++;
    else
        timed++;
    return record_event(event, stream);
}

static CUresult count_stream_questions(CUstream stream)
{
    stream_questions++;
    return query_stream(stream);
}

static CUresult count_event_questions(CUevent event)
{
    event_questions++;
    return query_event(event);
}

static void write_counts(void)
{
    FILE *file = fopen(getenv("REMOTE_COUNTS"), "w");
    if (!file)
        return;
    fprintf(file, "%u %u %u %u\n", timed, untimed, stream_questions, event_questions);
    fclose(file);
}

static void *call_instead(int id, void *own)
{
    void *function = driver_functions[id];
    driver_functions[id] = own;
    return function;
}

static void count_calls(void)
{
    create_event = (typeof(create_event))call_instead(CUDA_ID_cuEventCreate, (void *)count_created);
    record_event = (typeof(record_event))call_instead(CUDA_ID_cuEventRecord, (void *)count_recorded);
    query_stream = (typeof(query_stream))call_instead(CUDA_ID_cuStreamQuery, (void *)count_stream_questions);
    query_event = (typeof(query_event))call_instead(CUDA_ID_cuEventQuery, (void *)count_event_questions);
    atexit(write_counts);
}

__attribute__((constructor)) static void look_everything_up(void)
{
    void *remote = dlopen(getenv("REMOTE_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    if (!remote) {
        fprintf(stderr, "remote: %s\n", dlerror());
        exit(1);
    }
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        driver_functions[id] = dlsym(remote, cuda_entries[id].symbol);
    if (getenv("REMOTE_DIES_MS"))
        atexit(die);
    if (getenv("REMOTE_LOADS_MS"))
        launch_kernel = (typeof(launch_kernel))call_instead(CUDA_ID_cuLaunchKernel, (void *)load_and_launch);
    if (getenv("REMOTE_COUNTS"))
        count_calls();
}
