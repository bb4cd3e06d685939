/* load - a program of a given character: how long its kernels are, how it submits them, and what it does between.
 *
 *   load [kernel=US[-US]] [burst=N] [last=US] [seldom=N] [graph=N] [gap=US] [spin] [period=US] [ahead=MS] [threads=N]
 *        [gpus=N] [copy=KIB] [back] [joined]
 *
 *   kernel   how long a kernel takes; of a range, each one's length is drawn by chance, small ones most often
 *            (evenly by their logarithm)
 *   burst    kernels between two waits for the GPU (1)
 *   last     how long the last kernel of a burst takes, if not as long as the others
 *   seldom   in one burst of so many, kernels take forty times as long
 *   graph    each of these is a graph of so many kernels
 *   gap      what the program does on the CPU after each burst, or each quarter of a backlog; it sleeps, or with `spin` keeps
 *            a CPU busy
 *   period   a burst begins each so often, and not after a gap
 *   ahead    a backlog: so much work is kept before the GPU, and nothing is waited for but the oldest of it
 *   threads  each with a stream of its own, all doing the same (1)
 *   gpus     that the threads use, one after another (1)
 *   copy     KiB that are copied to the GPU before each burst
 *   joined   half of the burst is on a second stream, for which the first one waits; the program waits for the first one only
 *   back     all is on the default stream, and what waits for a burst is a copy of its result
 *
 * Prints "ready"; for each line on standard input that is a number of ms, works for that long and prints. Words behind the
 * number change its character from then on: kernel, burst, gap, period and ahead.
 *
 *   BURSTS KERNEL_NS P50_NS P99_NS MOST_NS
 *
 * bursts that ended, the time of their kernels, and how long bursts took from when they were due to their end. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#include "cuda/driver_more.h"
#include "driver_program.h"

#define THREADS_MOST 16
#define LATENCIES 200000
#define BATCHES 4
#define GPUS_MOST 8
#define GRAPH_MOST 1024
#define SELDOM_TIMES 40

static CUcontext contexts[GPUS_MOST];
static CUfunction kernels[GPUS_MOST];
static struct {
    long from_us, to_us, burst, last_us, seldom, graph, gap_us, period_us, ahead_ms, threads, gpus, copy_kib;
    int spins, copies_back, is_joined;
} with = {.from_us = 100, .to_us = 100, .burst = 1, .threads = 1, .gpus = 1};

static struct worker {
    pthread_t thread;
    long gpu;
    CUstream stream, second;
    CUgraphExec graph;
    long graph_ns;
    CUevent reached[BATCHES];
    CUdeviceptr copied;
    unsigned long long random;
    long bursts, kernel_ns, latency_count;
    long latencies[LATENCIES];
} workers[THREADS_MOST];
static pthread_barrier_t begun, ended;
static atomic_long end_ns;
static char host[1 << 20];

static double chance(struct worker *worker)
{
    worker->random = worker->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (double)(worker->random >> 11) / 9007199254740992.0;
}

static long kernel_us(struct worker *worker)
{
    if (with.from_us == with.to_us)
        return with.from_us;
    return lround((double)with.from_us * pow((double)with.to_us / (double)with.from_us, chance(worker)));
}

static void sleep_until(long ns)
{
    struct timespec time = {ns / 1000000000L, ns % 1000000000L};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        ;
}

static void do_something_else(void)
{
    long end = now_ns() + with.gap_us * 1000;
    if (!with.gap_us)
        return;
    if (!with.spins)
        sleep_until(end);
    while (now_ns() < end)
        ;
}

static void make_graph(struct worker *worker)
{
    CUgraph graph;
    CUgraphNode before = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    for (long i = 0; i < with.graph; i++) {
        long us = kernel_us(worker);
        worker->graph_ns += us * 1000;
        before = add_kernel(graph, before, kernels[worker->gpu], STEPS_FOR_US(us));
    }
    CHECK(cuGraphInstantiateWithFlags(&worker->graph, graph, 0));
}

static long put_burst(struct worker *worker, long count)
{
    long sum_ns = 0;
    if (with.copy_kib)
        CHECK(cuMemcpyHtoDAsync_v2(worker->copied, host, (size_t)with.copy_kib << 10, worker->stream));
    for (long i = 0; i < count; i++) {
        if (worker->graph) {
            CHECK(cuGraphLaunch(worker->graph, worker->stream));
            sum_ns += worker->graph_ns;
            continue;
        }
        long us = with.last_us && i == count - 1 ? with.last_us : kernel_us(worker);
        if (with.seldom && worker->bursts % with.seldom == with.seldom - 1)
            us *= SELDOM_TIMES;
        CHECK(cuLaunchKernel(kernels[worker->gpu], 1, 1, 1, 1, 1, 1, 0, worker->stream, STEPS_FOR_US(us),
                             NULL));
        sum_ns += us * 1000;
    }
    return sum_ns;
}

static long put_joined_burst(struct worker *worker)
{
    CUstream first = worker->stream;
    CHECK(cuEventRecord(worker->reached[0], first));
    CHECK(cuStreamWaitEvent(worker->second, worker->reached[0], 0));
    worker->stream = worker->second;
    long sum_ns = put_burst(worker, with.burst / 2);
    CHECK(cuEventRecord(worker->reached[1], worker->second));
    worker->stream = first;
    sum_ns += put_burst(worker, with.burst - with.burst / 2);
    CHECK(cuStreamWaitEvent(first, worker->reached[1], 0));
    return sum_ns;
}

static void note(struct worker *worker, long kernel_ns, long latency_ns)
{
    worker->bursts++;
    worker->kernel_ns += kernel_ns;
    if (worker->latency_count < LATENCIES)
        worker->latencies[worker->latency_count++] = latency_ns;
}

static void work_through_backlog(struct worker *worker, long end)
{
    long mean_us =
        with.from_us == with.to_us
            ? with.from_us
            : lround((double)(with.to_us - with.from_us) / log((double)with.to_us / (double)with.from_us));
    long count = with.ahead_ms * 1000 / BATCHES / mean_us;
    long put_ns[BATCHES], sum_ns[BATCHES];
    count = count < 1 ? 1 : count;
    for (long batch = 0; now_ns() < end; batch++) {
        long at = batch % BATCHES;
        if (batch >= BATCHES) {
            CHECK(cuEventSynchronize(worker->reached[at]));
            note(worker, sum_ns[at], now_ns() - put_ns[at]);
        }
        put_ns[at] = now_ns();
        sum_ns[at] = put_burst(worker, count);
        CHECK(cuEventRecord(worker->reached[at], worker->stream));
        do_something_else();
    }
    CHECK(cuStreamSynchronize(worker->stream));
}

static void work_in_bursts(struct worker *worker, long end)
{
    long due = now_ns();
    while (now_ns() < end) {
        long from = with.period_us ? due : now_ns();
        long sum_ns = with.is_joined ? put_joined_burst(worker) : put_burst(worker, with.burst);
        if (with.copies_back)
            CHECK(cuMemcpyDtoH_v2(host, worker->copied, 4));
        else
            CHECK(cuStreamSynchronize(worker->stream));
        long now = now_ns();
        note(worker, sum_ns, now - from);
        do_something_else();
        if (!with.period_us)
            continue;
        for (due += with.period_us * 1000; due < now;)
            due += with.period_us * 1000; /* what was missed is left out */
        sleep_until(due);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    CHECK(cuCtxSetCurrent(contexts[worker->gpu]));
    prctl(PR_SET_TIMERSLACK, 1000UL);
    for (;;) {
        pthread_barrier_wait(&begun);
        worker->bursts = worker->kernel_ns = worker->latency_count = 0;
        if (with.ahead_ms)
            work_through_backlog(worker, atomic_load(&end_ns));
        else
            work_in_bursts(worker, atomic_load(&end_ns));
        pthread_barrier_wait(&ended);
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    long left = *(const long *)a, right = *(const long *)b;
    return left < right ? -1 : left > right;
}

static void tell(void)
{
    static long all[THREADS_MOST * LATENCIES];
    long count = 0, bursts = 0, kernel_ns = 0;
    for (long i = 0; i < with.threads; i++) {
        bursts += workers[i].bursts;
        kernel_ns += workers[i].kernel_ns;
        memcpy(all + count, workers[i].latencies, (size_t)workers[i].latency_count * sizeof(long));
        count += workers[i].latency_count;
    }
    qsort(all, (size_t)count, sizeof(long), compare);
    printf("%ld %ld %ld %ld %ld\n", bursts, kernel_ns, count ? all[count / 2] : 0,
           count ? all[count * 99 / 100] : 0, count ? all[count - 1] : 0);
    fflush(stdout);
}

static int take_word(const char *word)
{
    static const struct {
        const char *name;
        long *value;
    } numbers[] = {{"kernel=", &with.from_us},   {"burst=", &with.burst},    {"graph=", &with.graph},
                   {"last=", &with.last_us},     {"gpus=", &with.gpus},      {"gap=", &with.gap_us},
                   {"period=", &with.period_us}, {"ahead=", &with.ahead_ms}, {"threads=", &with.threads},
                   {"copy=", &with.copy_kib},    {"seldom=", &with.seldom}};
    if (strcmp(word, "spin") == 0)
        return with.spins = 1;
    if (strcmp(word, "back") == 0)
        return with.copies_back = 1;
    if (strcmp(word, "joined") == 0)
        return with.is_joined = 1;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t length = strlen(numbers[i].name);
        char *end;
        if (strncmp(word, numbers[i].name, length) != 0)
            continue;
        *numbers[i].value = strtol(word + length, &end, 10);
        if (i == 0)
            with.to_us = *end == '-' ? strtol(end + 1, &end, 10) : with.from_us;
        return *end == '\0' && *numbers[i].value >= 0;
    }
    return 0;
}

int main(int count, char **words)
{
    char line[256];
    for (int i = 1; i < count; i++)
        if (!take_word(words[i]))
            return 2;
    if (with.from_us < 1 || with.to_us < with.from_us || with.burst < 1 || with.threads < 1 ||
        with.threads > THREADS_MOST || with.gpus < 1 || with.gpus > GPUS_MOST || with.graph > GRAPH_MOST ||
        (size_t)with.copy_kib << 10 > sizeof(host))
        return 2;
    CHECK(cuInit(0));
    for (long i = with.gpus - 1; i >= 0; i--) {
        contexts[i] = use_gpu((int)i);
        kernels[i] = find_kernel(load_module(PTX(PTX_STEPS)), STEPS_KERNEL);
    }
    pthread_barrier_init(&begun, NULL, (unsigned)with.threads + 1);
    pthread_barrier_init(&ended, NULL, (unsigned)with.threads + 1);
    for (long i = 0; i < with.threads; i++) {
        workers[i].random = (unsigned long long)i * 77777 + 1;
        workers[i].gpu = i % with.gpus;
        CHECK(cuCtxSetCurrent(contexts[workers[i].gpu]));
        if (with.copies_back)
            workers[i].stream = CU_STREAM_LEGACY;
        else
            CHECK(cuStreamCreate(&workers[i].stream, CU_STREAM_NON_BLOCKING));
        if (with.is_joined)
            CHECK(cuStreamCreate(&workers[i].second, CU_STREAM_NON_BLOCKING));
        for (unsigned b = 0; b < BATCHES; b++)
            CHECK(cuEventCreate(&workers[i].reached[b], CU_EVENT_DISABLE_TIMING));
        if (with.copy_kib || with.copies_back)
            CHECK(cuMemAlloc_v2(&workers[i].copied, with.copy_kib ? (size_t)with.copy_kib << 10 : 4));
        if (with.graph)
            make_graph(&workers[i]);
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        char *rest = line;
        strtol(line, &rest, 10);
        for (char *word = strtok(rest, " \n"); word; word = strtok(NULL, " \n"))
            if (!take_word(word))
                return 2;
        atomic_store(&end_ns, (long)now_ns() + strtol(line, NULL, 10) * 1000000L);
        pthread_barrier_wait(&begun);
        pthread_barrier_wait(&ended);
        tell();
    }
    return 0;
}
