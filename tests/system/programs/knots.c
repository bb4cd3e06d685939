/* knots - work on the GPU that waits for other work, or for threads, of the same program: what a gate must
 * not tie up.
 *
 *   knots late ROUNDS            a stream waits for a value that another thread has another stream write
 * later knots mutex ROUNDS           a host function waits for a mutex that a thread holds while it launches
 *   knots queue ROUNDS           more launches than the driver takes, behind a value that another thread
 * releases knots capture MODE ROUNDS    captures (0 global, 1 thread-local, 2 relaxed) beside launches of
 * another thread knots rank 0|1 ROUNDS        two of them, each waiting for the other's flag; 0 prints a
 * handle, 1 reads it
 *
 * Prints "ready", waits for a line on standard input, and prints "done" and, of captures, how many nodes and
 * edges each graph had. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/driver_more.h"
#include "cuda/prototypes.h"

#define KERNEL_US 200ULL
#define QUEUED 1500 /* launches; a card's queue takes 1,024 */
#define CAPTURED 20

static void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "knots: %s answered %d\n", call, (int)result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static CUcontext context;
static CUfunction spin;
static CUdeviceptr flags;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void pause_us(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void launch(CUstream stream)
{
    unsigned long long us = KERNEL_US;
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&us}, NULL));
}

static CUstream make_stream(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void prepare(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry "
                              "gs_spin_us(.param .u64 us)\n{\n ret;\n}\n";
    CUdevice device;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&spin, module, "gs_spin_us"));
}

static void wait_for_go(void)
{
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        exit(1);
}

/* --- A value that comes late ----------------------------------------------------------------------- */

struct release {
    CUstream stream;
    CUdeviceptr flag;
    unsigned value;
};

static void *release_late(void *data)
{
    const struct release *release = data;
    CHECK(cuCtxSetCurrent(context));
    pause_us(20000);
    CHECK(cuStreamWriteValue32(release->stream, release->flag, release->value, 0));
    return NULL;
}

static void run_waiting(long rounds, int launches)
{
    CUstream waiting = make_stream(), writing = make_stream();
    CHECK(cuMemAlloc_v2(&flags, 4096));
    CHECK(cuMemsetD32_v2(flags, 0, 1024));
    wait_for_go();
    for (unsigned round = 1; round <= (unsigned long)rounds; round++) {
        pthread_t thread;
        struct release release = {writing, flags, round};
        CHECK(cuStreamWaitValue32(waiting, flags, round, CU_STREAM_WAIT_VALUE_GEQ));
        pthread_create(&thread, NULL, release_late, &release);
        for (int i = 0; i < launches; i++)
            launch(waiting);
        pthread_join(thread, NULL);
        CHECK(cuStreamSynchronize(waiting));
    }
}

/* --- A host function and a mutex ------------------------------------------------------------------- */

static void take_mutex(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void run_mutex(long rounds)
{
    CUstream hosting = make_stream(), other = make_stream();
    wait_for_go();
    for (long round = 0; round < rounds; round++) {
        pthread_mutex_lock(&mutex);
        CHECK(cuLaunchHostFunc(hosting, take_mutex, NULL));
        for (int i = 0; i < 100; i++)
            launch(other);
        pthread_mutex_unlock(&mutex);
        CHECK(cuStreamSynchronize(hosting));
    }
    CHECK(cuCtxSynchronize());
}

/* --- Captures -------------------------------------------------------------------------------------- */

static volatile bool over;

static void *launch_beside(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    CUstream stream = make_stream();
    while (!over) {
        for (int i = 0; i < 10; i++)
            launch(stream);
        pause_us(3000); /* to wait for them is forbidden beside a global capture */
    }
    return NULL;
}

static void run_captures(CUstreamCaptureMode mode, long rounds)
{
    CUstream stream = make_stream();
    pthread_t thread;
    wait_for_go();
    pthread_create(&thread, NULL, launch_beside, NULL);
    for (long round = 0; round < rounds; round++) {
        CUgraph graph;
        CUgraphExec exec;
        size_t nodes = 0, edges = 0;
        CHECK(cuStreamBeginCapture_v2(stream, mode));
        for (int i = 0; i < CAPTURED; i++) {
            launch(stream);
            if (i % 5 == 0)
                pause_us(300); /* so that gates close in every part of it */
        }
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphGetNodes(graph, NULL, &nodes));
        CHECK(cuGraphGetEdges(graph, NULL, NULL, &edges));
        printf("%zu %zu\n", nodes, edges);
        CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
    }
    over = true;
    pthread_join(thread, NULL);
}

/* --- Two ranks ------------------------------------------------------------------------------------- */

static void exchange_handle(unsigned rank)
{
    CUipcMemHandle handle;
    unsigned char *bytes = (unsigned char *)&handle;
    if (rank == 0) {
        CHECK(cuMemAlloc_v2(&flags, 4096));
        CHECK(cuMemsetD32_v2(flags, 0, 1024));
        CHECK(cuIpcGetMemHandle(&handle, flags));
        for (size_t i = 0; i < sizeof(handle); i++)
            printf("%02x", bytes[i]);
        putchar('\n');
        fflush(stdout);
        return;
    }
    for (size_t i = 0; i < sizeof(handle); i++)
        if (scanf("%2hhx", &bytes[i]) != 1)
            exit(1);
    while (getchar() != '\n')
        ;
    CHECK(cuIpcOpenMemHandle_v2(&flags, handle, 1u /* lazy peer access */));
}

static void run_rank(unsigned rank, long rounds)
{
    CUstream stream = make_stream();
    exchange_handle(rank);
    wait_for_go();
    for (unsigned round = 1; round <= (unsigned long)rounds; round++) {
        launch(stream);
        CHECK(cuStreamWriteValue32(stream, flags + 4 * rank, round, 0));
        CHECK(cuStreamWaitValue32(stream, flags + 4 * (1 - rank), round, CU_STREAM_WAIT_VALUE_GEQ));
        if (round % 4 == 0)
            CHECK(cuStreamSynchronize(stream));
    }
    CHECK(cuStreamSynchronize(stream));
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    const char *what = words[1];
    long first = strtol(words[2], NULL, 10), second = count > 3 ? strtol(words[3], NULL, 10) : 0;
    prepare();
    if (strcmp(what, "late") == 0)
        run_waiting(first, 1);
    else if (strcmp(what, "queue") == 0)
        run_waiting(first, QUEUED);
    else if (strcmp(what, "mutex") == 0)
        run_mutex(first);
    else if (strcmp(what, "capture") == 0)
        run_captures((CUstreamCaptureMode)first, second);
    else if (strcmp(what, "rank") == 0)
        run_rank((unsigned)first, second);
    else
        return 2;
    puts("done");
    return 0;
}
