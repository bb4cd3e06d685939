/* Tests of what processes share of a simulated GPU, with real processes. This one never touches the GPU
 * itself before it forks: children attach for themselves. */
#include "simulated.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <pthread.h>

#define TOTAL (256 * MIB)
#define DEADLINE_S 20.0

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void sleep_us(long microseconds)
{
    nanosleep(&(struct timespec){.tv_sec = microseconds / 1000000, .tv_nsec = microseconds % 1000000 * 1000},
              NULL);
}

/* Run `body` in a process of its own. */
static pid_t start(int (*body)(void *argument), void *argument)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(body(argument));
    assert_true(child > 0);
    return child;
}

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Its exit status; fails if it does not end in time. */
static int finish(pid_t child)
{
    double end = now_s() + DEADLINE_S;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (now_s() > end) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            fail_msg("process %d hangs", (int)child);
        }
        sleep_us(500);
    }
    return exit_status(status);
}

static void kill_and_reap(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static bool use_gpu(void)
{
    CUcontext context;
    return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

static CUfunction load(const char *name)
{
    CUmodule module;
    CUfunction function = NULL;
    if (cuModuleLoadData(&module, SIMULATED_PTX) != CUDA_SUCCESS ||
        cuModuleGetFunction(&function, module, name) != CUDA_SUCCESS)
        return NULL;
    return function;
}

static bool spin(CUfunction function, unsigned long long microseconds, CUstream stream)
{
    void *arguments[] = {&microseconds};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL) == CUDA_SUCCESS;
}

/* Shared with children: flags and counters. */
struct board {
    atomic_int ready, stop;
    atomic_ulong rounds, refused;
    _Atomic uint64_t nanoseconds[2];
};
static struct board *board;

static int board_make(void **state)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    simulated_remove();
    return board == MAP_FAILED;
}

static int board_unmake(void **state)
{
    simulated_remove();
    return munmap(board, sizeof(*board));
}

static void wait_ready(int count)
{
    double end = now_s() + DEADLINE_S;
    while (atomic_load(&board->ready) < count) {
        if (now_s() > end)
            fail_msg("%d of %d processes are ready", atomic_load(&board->ready), count);
        sleep_us(200);
    }
}

/* --- Memory ---------------------------------------------------------------------------------------- */

static int hold_forever(void *bytes)
{
    CUdeviceptr pointer;
    if (!use_gpu() || cuMemAlloc_v2(&pointer, (size_t)(uintptr_t)bytes) != CUDA_SUCCESS)
        return 1;
    atomic_fetch_add(&board->ready, 1);
    for (;;)
        pause();
}

/* 0 when the GPU has just as much free as it should. */
static int expect_free(void *bytes)
{
    size_t free_bytes, total;
    if (!use_gpu() || cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
        return 1;
    if (free_bytes == (size_t)(uintptr_t)bytes)
        return 0;
    fprintf(stderr, "%zu bytes are free, not %zu\n", free_bytes, (size_t)(uintptr_t)bytes);
    return 2;
}

static int take_all(void *bytes)
{
    CUdeviceptr pointer;
    return use_gpu() && cuMemAlloc_v2(&pointer, (size_t)(uintptr_t)bytes) == CUDA_SUCCESS ? 0 : 1;
}

#define BYTES(value) ((void *)(uintptr_t)(value))

static void a_killed_process_leaves_no_bytes_and_a_stopped_one_keeps_its(void **state)
{
    pid_t killed = start(hold_forever, BYTES(100 * MIB)), stopped = start(hold_forever, BYTES(50 * MIB + 7));
    wait_ready(2);
    kill(stopped, SIGSTOP);
    assert_int_equal(finish(start(expect_free, BYTES(TOTAL - 150 * MIB - 7))), 0);
    kill_and_reap(killed);
    /* Not by asking first: an allocation that needs the dead one's bytes finds them itself. */
    assert_int_equal(finish(start(take_all, BYTES(TOTAL - 50 * MIB - 7))), 0);
    assert_int_equal(finish(start(take_all, BYTES(TOTAL - 50 * MIB - 6))), 1);
    assert_int_equal(finish(start(expect_free, BYTES(TOTAL - 50 * MIB - 7))), 0);
    kill_and_reap(stopped);
    assert_int_equal(finish(start(expect_free, BYTES(TOTAL))), 0);
}

static int hold_then_exec(void *nothing)
{
    CUdeviceptr pointer;
    if (!use_gpu() || cuMemAlloc_v2(&pointer, 90 * MIB) != CUDA_SUCCESS)
        return 1;
    atomic_fetch_add(&board->ready, 1);
    while (!atomic_load(&board->stop))
        sleep_us(200);
    execlp("sleep", "sleep", "100", NULL);
    return 1;
}

static int keep_gpu(void *nothing)
{
    if (!use_gpu())
        return 1;
    atomic_fetch_add(&board->ready, 1);
    for (;;)
        pause();
}

static void a_process_that_becomes_another_program_leaves_no_bytes(void **state)
{
    pid_t keeper = start(keep_gpu, NULL), child = start(hold_then_exec, NULL);
    wait_ready(2);
    assert_int_equal(finish(start(expect_free, BYTES(TOTAL - 90 * MIB))), 0);
    atomic_store(&board->stop, 1);
    double end = now_s() + DEADLINE_S;
    while (finish(start(expect_free, BYTES(TOTAL))) != 0)
        if (now_s() > end)
            fail_msg("its bytes are not back");
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0); /* the pid lives on */
    kill_and_reap(child);
    kill_and_reap(keeper);
}

/* --- Parameters ------------------------------------------------------------------------------------ */

static int expect_total(void *bytes)
{
    size_t total;
    return cuInit(0) == CUDA_SUCCESS && cuDeviceTotalMem_v2(&total, 0) == CUDA_SUCCESS &&
                   total == (size_t)(uintptr_t)bytes
               ? 0
               : 1;
}

static int ask_for_another_size(void *bytes)
{
    setenv("FAKECUDA_TOTAL_MEM", "123456789", 1);
    return expect_total(bytes);
}

static void the_first_process_decides_how_big_the_gpu_is_until_the_last_is_gone(void **state)
{
    pid_t keeper = start(keep_gpu, NULL);
    wait_ready(1);
    assert_int_equal(finish(start(ask_for_another_size, BYTES(TOTAL))), 0);
    kill_and_reap(keeper);
    assert_int_equal(finish(start(ask_for_another_size, BYTES(123456789))), 0);
    assert_int_equal(finish(start(expect_total, BYTES(TOTAL))), 0);
}

static int expect_visible(void *list_and_count)
{
    char *list = list_and_count;
    int count = 0, expected = list[0] - '0';
    setenv("FAKECUDA_GPUS", "3", 1);
    setenv("CUDA_VISIBLE_DEVICES", list + 2, 1);
    CUresult result = cuInit(0);
    if (expected == 0)
        return result == CUDA_ERROR_NO_DEVICE ? 0 : 1;
    if (result != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count != expected)
        return 2;
    char bus[16];
    return cuDeviceGetPCIBusId(bus, sizeof(bus), 0) == CUDA_SUCCESS && bus[6] == list[1] ? 0 : 3;
}

static int visible_by_uuid(void *prefix_length)
{
    CUuuid uuid;
    char list[64] = "13GPU-";
    setenv("FAKECUDA_GPUS", "3", 1);
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetUuid_v2(&uuid, 2) != CUDA_SUCCESS)
        return 4;
    for (int i = 0; i < (int)(intptr_t)prefix_length; i++)
        sprintf(list + 6 + i * 2, "%02X", (unsigned char)uuid.bytes[i]);
    pid_t child = fork();
    if (child == 0) {
        /* A fresh program: the child of an initialised one may not use the GPU. */
        execl("/proc/self/exe", "test", "--visible", list, NULL);
        _exit(5);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* "count, first bus digit, list" */
static void visible_devices_are_chosen_by_index_and_uuid(void **state)
{
    assert_int_equal(finish(start(expect_visible, "120,1,2")), 2); /* three, not one: the test can fail */
    assert_int_equal(finish(start(expect_visible, "310,1,2")), 0);
    assert_int_equal(finish(start(expect_visible, "232,0")), 0);
    assert_int_equal(finish(start(expect_visible, "121,7,0")), 0);
    assert_int_equal(finish(start(expect_visible, "121,-1,0")), 0);
    assert_int_equal(finish(start(expect_visible, "121,1")), 0);
    assert_int_equal(finish(start(expect_visible, "00")), 0);
    assert_int_equal(finish(start(expect_visible, "00GPU-zz")), 0);
    assert_int_equal(finish(start(visible_by_uuid, (void *)4)), 0);
}

/* --- Time ------------------------------------------------------------------------------------------ */

static int spin_measured(void *index)
{
    if (!use_gpu())
        return 1;
    CUfunction function = load("gs_spin_us");
    CUevent begin, end;
    CUstream stream;
    float milliseconds;
    if (!function || cuEventCreate(&begin, 0) || cuEventCreate(&end, 0) ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        return 2;
    atomic_fetch_add(&board->ready, 1);
    while (!atomic_load(&board->stop))
        sched_yield();
    /* What is measured begins behind other work, so that the host's own time is not in it. */
    if (!spin(function, 200000, stream) || cuEventRecord(begin, stream))
        return 3;
    for (unsigned i = 0; i < 200; i++)
        if (!spin(function, 1000, stream))
            return 4;
    if (cuEventRecord(end, stream) || cuStreamSynchronize(stream) ||
        cuEventElapsedTime(&milliseconds, begin, end))
        return 5;
    atomic_store(&board->nanoseconds[(uintptr_t)index], (uint64_t)((double)milliseconds * 1e6));
    return 0;
}

static void two_processes_get_half_of_the_gpu_s_time_each(void **state)
{
    pid_t first = start(spin_measured, (void *)0), second = start(spin_measured, (void *)1);
    wait_ready(2);
    atomic_store(&board->stop, 1);
    assert_int_equal(finish(first), 0);
    assert_int_equal(finish(second), 0);
    /* 200 ms of work each behind 200 ms: while both have some, it takes one 400 ms, but for a slice at the
     * end. Who came late by some ms has as much at the end for itself. */
    for (unsigned i = 0; i < 2; i++)
        assert_in_range(board->nanoseconds[i], 320000000, 402000000);
}

static int submit_then_wait(void *nothing)
{
    if (!use_gpu())
        return 1;
    CUfunction function = load("gs_spin_us");
    for (unsigned i = 0; i < 100; i++)
        if (!function || !spin(function, 1000000, NULL))
            return 2;
    atomic_fetch_add(&board->ready, 1);
    for (;;)
        pause();
}

static int spin_once(void *nothing)
{
    if (!use_gpu())
        return 1;
    CUfunction function = load("gs_spin_us");
    double begin = now_s();
    if (!function || !spin(function, 20000, NULL) || cuCtxSynchronize() != CUDA_SUCCESS)
        return 2;
    board->nanoseconds[0] = (uint64_t)((now_s() - begin) * 1e9);
    return 0;
}

/* 100 s of work stand before the GPU. */
static void a_stopped_process_shares_and_a_killed_one_s_work_vanishes(void **state)
{
    pid_t child = start(submit_then_wait, NULL);
    wait_ready(1);
    kill(child, SIGSTOP);
    assert_int_equal(finish(start(spin_once, NULL)), 0);
    assert_true(board->nanoseconds[0] >= 38000000); /* every second slice is the stopped one's */
    kill_and_reap(child);
    assert_int_equal(finish(start(spin_once, NULL)), 0);
}

/* --- Stopping and killing at any moment ------------------------------------------------------------ */

enum { WORKERS = 6, THREADS = 4 };

static void *work(void *seed_pointer)
{
    unsigned seed = (unsigned)(uintptr_t)seed_pointer;
    CUcontext context;
    CUstream stream;
    CUmodule module;
    CUfunction function;
    CUdeviceptr held[8] = {0};
    char host[4096] = {0};
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        _exit(10);
    CUresult loaded = cuModuleLoadData(&module, SIMULATED_PTX);
    while (loaded == CUDA_ERROR_OUT_OF_MEMORY) /* the others have all but a few bytes of the card */
        loaded = cuModuleLoadData(&module, SIMULATED_PTX);
    if (loaded || cuModuleGetFunction(&function, module, "gs_spin_us"))
        _exit(11);
    for (;;) {
        unsigned slot = (unsigned)rand_r(&seed) % 8;
        if (held[slot] && cuMemFree_v2(held[slot]) != CUDA_SUCCESS)
            _exit(12);
        held[slot] = 0;
        size_t bytes = (size_t)rand_r(&seed) % (slot ? 3000000 : 30000000) + 4096;
        CUresult result = cuMemAlloc_v2(&held[slot], bytes);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            held[slot] = 0;
            atomic_fetch_add(&board->refused, 1);
        } else if (result != CUDA_SUCCESS) {
            _exit(13);
        }
        if (held[slot] && cuMemcpyHtoDAsync_v2(held[slot], host, sizeof(host), stream) != CUDA_SUCCESS)
            _exit(14);
        if (!spin(function, (unsigned long long)rand_r(&seed) % 200, stream))
            _exit(15);
        if (slot == 3 && cuStreamSynchronize(stream) != CUDA_SUCCESS)
            _exit(16);
        atomic_fetch_add(&board->rounds, 1);
    }
}

static int work_forever(void *seed)
{
    /* What a thread does before its context: attach and initialise, where a signal may hit too. */
    if (cuInit(0) != CUDA_SUCCESS)
        return 9;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)((uintptr_t)seed * THREADS + i));
    }
    for (;;)
        pause();
}

/* Never stopped: its own work is always done in time, and no more is ever used than there is. */
static int watch(void *nothing)
{
    if (!use_gpu())
        return 1;
    CUfunction function = load("gs_spin_us");
    CUdeviceptr pointer;
    atomic_fetch_add(&board->ready, 1);
    while (!atomic_load(&board->stop)) {
        size_t free_bytes, total;
        double begin = now_s();
        if (!spin(function, 50, NULL) || cuCtxSynchronize() != CUDA_SUCCESS)
            return 2;
        CUresult result = cuMemAlloc_v2(&pointer, 1 * MIB);
        if (result == CUDA_SUCCESS)
            result = cuMemFree_v2(pointer);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
            return 3;
        if (cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS || free_bytes > total)
            return 4;
        if (now_s() - begin > DEADLINE_S / 2)
            return 5;
    }
    /* All others are dead. */
    size_t free_bytes, total;
    if (cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS ||
        free_bytes != total - 16) /* 16: the module's */
        return 6;
    if (cuMemAlloc_v2(&pointer, total - 16) != CUDA_SUCCESS)
        return 7;
    return 0;
}

/* Enough was killed, looked at and refused to say something. */
static bool has_enough(unsigned kills)
{
    return kills > 50 && atomic_load(&board->rounds) > 400 && atomic_load(&board->refused) > 10;
}

static void stopping_and_killing_at_random_holds_nobody_up_and_loses_no_byte(void **state)
{
    pid_t watcher = start(watch, NULL), workers[WORKERS];
    bool stopped[WORKERS] = {false};
    wait_ready(1);
    unsigned seed = 42, kills = 0;
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = start(work_forever, (void *)(uintptr_t)(i + 1));
    for (double end = now_s() + 60; !has_enough(kills) && now_s() < end;) {
        sleep_us(rand_r(&seed) % 8000);
        unsigned i = (unsigned)rand_r(&seed) % WORKERS;
        int status;
        if (!stopped[i] && waitpid(workers[i], &status, WNOHANG) != 0)
            fail_msg("a worker ended with %d", exit_status(status));
        switch (rand_r(&seed) % 4) {
        case 0:
            kill_and_reap(workers[i]);
            workers[i] = start(work_forever, (void *)(uintptr_t)(++kills + 100));
            stopped[i] = false;
            break;
        case 1:
            kill(workers[i], SIGSTOP);
            stopped[i] = true;
            break;
        default:
            kill(workers[i], SIGCONT);
            stopped[i] = false;
        }
    }
    for (unsigned i = 0; i < WORKERS; i++)
        kill_and_reap(workers[i]);
    atomic_store(&board->stop, 1);
    assert_int_equal(finish(watcher), 0);
    assert_true(has_enough(kills));
}

static int attach_only(void *nothing)
{
    return cuInit(0) == CUDA_SUCCESS ? 0 : 1;
}

static int attach_and_stay(void *nothing)
{
    if (cuInit(0) != CUDA_SUCCESS)
        return 1;
    for (;;)
        pause();
}

/* The first process initialises the GPU; stopped there, it must not keep the others out. */
static void a_process_stopped_while_it_initialises_keeps_nobody_out(void **state)
{
    unsigned seed = 7;
    for (unsigned round = 0; round < 60; round++) {
        simulated_remove();
        pid_t first = start(attach_and_stay, NULL);
        sleep_us(rand_r(&seed) % 2500);
        kill(first, SIGSTOP);
        pid_t others[3];
        for (unsigned i = 0; i < 3; i++)
            others[i] = start(attach_only, NULL);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(finish(others[i]), 0);
        kill(first, SIGCONT);
        kill_and_reap(first);
    }
}

/* Deterministic, where the other may miss the moment: a lock on the whole file is what an initialising
 * process has. */
static int hold_all_locks(void *nothing)
{
    int fd = open(simulated_path(), O_RDWR | O_CREAT, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0)
        return 1;
    atomic_fetch_add(&board->ready, 1);
    for (;;)
        pause();
}

static void an_initialisation_that_never_ends_is_left_behind(void **state)
{
    pid_t holder = start(hold_all_locks, NULL);
    wait_ready(1);
    struct stat before, after;
    assert_int_equal(stat(simulated_path(), &before), 0);
    pid_t first = start(attach_only, NULL), second = start(attach_only, NULL);
    assert_int_equal(finish(first), 0);
    assert_int_equal(finish(second), 0);
    assert_int_equal(stat(simulated_path(), &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    kill_and_reap(holder);
}

#define SHARING_TEST(name) cmocka_unit_test_setup_teardown(name, board_make, board_unmake)

int main(int argument_count, char **arguments)
{
    if (argument_count == 3 && strcmp(arguments[1], "--visible") == 0)
        return expect_visible(arguments[2]);
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=256MiB", "FAKECUDA_CONTEXT_BYTES=0", NULL});
    const struct CMUnitTest tests[] = {
        SHARING_TEST(a_killed_process_leaves_no_bytes_and_a_stopped_one_keeps_its),
        SHARING_TEST(a_process_that_becomes_another_program_leaves_no_bytes),
        SHARING_TEST(the_first_process_decides_how_big_the_gpu_is_until_the_last_is_gone),
        SHARING_TEST(visible_devices_are_chosen_by_index_and_uuid),
        SHARING_TEST(two_processes_get_half_of_the_gpu_s_time_each),
        SHARING_TEST(a_stopped_process_shares_and_a_killed_one_s_work_vanishes),
        SHARING_TEST(stopping_and_killing_at_random_holds_nobody_up_and_loses_no_byte),
        SHARING_TEST(a_process_stopped_while_it_initialises_keeps_nobody_out),
        SHARING_TEST(an_initialisation_that_never_ends_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
