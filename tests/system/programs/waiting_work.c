/* waiting_work - work on the GPU that waits for other work, or for threads, of the same program: what a gate must
 * not tie up.
 *
 * waiting_work late ROUNDS           a stream waits for a value that another thread has another stream write later
 * waiting_work mutex ROUNDS          a host function waits for a mutex that a thread holds while it launches
 * waiting_work queue ROUNDS          more launches than the driver takes, behind a value that another thread
 *                             releases
 * waiting_work relay ROUNDS          a stream waits for a value behind launches of a graph, each of which a host
 *                             function in the graph before it has another thread make
 * waiting_work relaunch ROUNDS       a graph launches itself again from the device
 * waiting_work capture MODE ROUNDS   captures (0 global, 1 thread-local, 2 relaxed) beside launches of another
 *                             thread
 * waiting_work rank 0|1 ROUNDS GPUS  two of them, each waiting for the other's flags, on one or two GPUs, which rank
 *                             1 takes in the opposite order; 0 prints handles, 1 reads them
 *
 * Prints "ready", waits for a line on standard input, and prints "done" and, of captures, how many nodes and
 * edges each graph had. Ranks go as many rounds for each line and say "again". */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/driver_more.h"
#include "driver_program.h"

#define KERNEL_US 200ULL
#define QUEUED 1500 /* launches; a card's queue takes 1,024 */
#define CAPTURED 20

static CUcontext context;
static CUmodule module;
static CUfunction work;
static CUdeviceptr flags;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void pause_us(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void launch(CUstream stream)
{
    CHECK(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, STEPS_FOR_US(KERNEL_US), NULL));
}

static CUstream make_stream(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void prepare(int gpu)
{
    CHECK(cuInit(0));
    context = use_gpu(gpu);
    module = load_module(PTX(PTX_STEPS ".visible .entry gs_relaunch_u32(.param .u64 left)\n{\n ret;\n}\n"));
    work = find_kernel(module, STEPS_KERNEL);
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

/* --- Graphs that are launched again ---------------------------------------------------------------- */

#define RELAYED 10
#define RELAUNCHED 999u /* times 200 us: longer than a drain is waited for */

static CUgraphExec relayed;
static sem_t relay;

static void pass_on(void *unused)
{
    (void)unused;
    sem_post(&relay);
}

/* The GPU waits for the last of these launches, each of which waits for the one before. */
static void *relay_launches(void *stream)
{
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < RELAYED; i++) {
        sem_wait(&relay);
        CHECK(cuGraphLaunch(relayed, stream));
    }
    sem_wait(&relay);
    return NULL;
}

static void run_relay(long rounds)
{
    CUstream waiting = make_stream(), passing = make_stream();
    CUDA_HOST_NODE_PARAMS host = {pass_on, NULL};
    CUgraph graph;
    CUgraphNode node;
    CHECK(cuMemAlloc_v2(&flags, 4096));
    CHECK(cuMemsetD32_v2(flags, 0, 1024));
    CHECK(cuGraphCreate(&graph, 0));
    node = add_kernel(graph, NULL, work, STEPS_FOR_US(KERNEL_US));
    CHECK(cuGraphAddHostNode(&node, graph, &node, 1, &host));
    CHECK(cuGraphInstantiateWithFlags(&relayed, graph, 0));
    sem_init(&relay, 0, 0);
    wait_for_go();
    for (unsigned round = 1; round <= (unsigned long)rounds; round++) {
        pthread_t thread;
        CHECK(cuStreamWaitValue32(waiting, flags, round, CU_STREAM_WAIT_VALUE_GEQ));
        launch(waiting);
        sem_post(&relay);
        pthread_create(&thread, NULL, relay_launches, passing);
        pthread_join(thread, NULL);
        CHECK(cuStreamWriteValue32(passing, flags, round, 0));
        CHECK(cuStreamSynchronize(waiting));
    }
}

static void run_relaunch(long rounds)
{
    CUstream stream = make_stream();
    CUgraph graph;
    CUgraphExec exec;
    CUfunction relaunch = find_kernel(module, "gs_relaunch_u32");
    CHECK(cuMemAlloc_v2(&flags, 4096));
    CHECK(cuGraphCreate(&graph, 0));
    add_kernel(graph, add_kernel(graph, NULL, work, STEPS_FOR_US(KERNEL_US)), relaunch, (void *[]){&flags});
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 4 /* CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH */));
    wait_for_go();
    for (long round = 0; round < rounds; round++) {
        unsigned left = 1;
        CHECK(cuMemsetD32Async(flags, RELAUNCHED, 1, stream));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyDtoH_v2(&left, flags, sizeof(left)));
        if (left) {
            fprintf(stderr, "waiting_work: the graph was to run %u times more\n", left);
            exit(1);
        }
    }
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

#define RANK_GPUS 2

/* What a rank has on a GPU. */
static struct part {
    CUcontext context;
    CUfunction work;
    CUstream stream;
    CUdeviceptr flags; /* rank 0's first, then rank 1's */
} parts[RANK_GPUS];

/* Work there from the first on, so that leases are held while the next GPU is taken. */
static void take_gpu(int gpu)
{
    struct part *part = &parts[gpu];
    prepare(gpu);
    part->context = context;
    part->work = work;
    part->stream = make_stream();
    launch(part->stream);
    CHECK(cuStreamSynchronize(part->stream));
}

static void exchange_handle(unsigned rank, struct part *part)
{
    CUipcMemHandle handle;
    unsigned char *bytes = (unsigned char *)&handle;
    CHECK(cuCtxSetCurrent(part->context));
    if (rank == 0) {
        CHECK(cuMemAlloc_v2(&part->flags, 4096));
        CHECK(cuMemsetD32_v2(part->flags, 0, 1024));
        CHECK(cuIpcGetMemHandle(&handle, part->flags));
        for (size_t i = 0; i < sizeof(handle); i++)
            printf("%02x", bytes[i]);
        return;
    }
    for (size_t i = 0; i < sizeof(handle); i++)
        if (scanf("%2hhx", &bytes[i]) != 1)
            exit(1);
    CHECK(cuIpcOpenMemHandle_v2(&part->flags, handle, 1u /* lazy peer access */));
}

static void exchange_handles(unsigned rank, int gpus)
{
    for (int gpu = 0; gpu < gpus; gpu++)
        exchange_handle(rank, &parts[gpu]);
    if (rank == 0)
        putchar('\n');
    while (rank == 1 && getchar() != '\n')
        ;
    fflush(stdout);
}

static void run_rank(unsigned rank, long rounds, int gpus)
{
    char line[16];
    unsigned round = 0;
    for (int i = 0; i < gpus; i++)
        take_gpu(rank == 0 ? i : gpus - 1 - i);
    exchange_handles(rank, gpus);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        for (long i = 1; i <= rounds; i++) {
            round++;
            for (int j = 0; j < gpus; j++) {
                const struct part *part = &parts[rank == 0 ? j : gpus - 1 - j];
                CHECK(cuCtxSetCurrent(part->context));
                work = part->work;
                launch(part->stream);
                CHECK(cuStreamWriteValue32(part->stream, part->flags + 4 * rank, round, 0));
                CHECK(cuStreamWaitValue32(part->stream, part->flags + 4 * (1 - rank), round,
                                          CU_STREAM_WAIT_VALUE_GEQ));
            }
            for (int j = 0; j < gpus && (i % 4 == 0 || i == rounds); j++)
                CHECK(cuStreamSynchronize(parts[j].stream));
        }
        puts("again");
        fflush(stdout);
    }
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    const char *what = words[1];
    long first = strtol(words[2], NULL, 10), second = count > 3 ? strtol(words[3], NULL, 10) : 0;
    long third = count > 4 ? strtol(words[4], NULL, 10) : 1;
    if (third < 1 || third > RANK_GPUS)
        return 2;
    if (strcmp(what, "rank") == 0) {
        run_rank((unsigned)first, second, (int)third);
        puts("done");
        return 0;
    }
    prepare(0);
    if (strcmp(what, "late") == 0)
        run_waiting(first, 1);
    else if (strcmp(what, "queue") == 0)
        run_waiting(first, QUEUED);
    else if (strcmp(what, "mutex") == 0)
        run_mutex(first);
    else if (strcmp(what, "capture") == 0)
        run_captures((CUstreamCaptureMode)first, second);
    else if (strcmp(what, "relay") == 0)
        run_relay(first);
    else if (strcmp(what, "relaunch") == 0)
        run_relaunch(first);
    else
        return 2;
    puts("done");
    return 0;
}
