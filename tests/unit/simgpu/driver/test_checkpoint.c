/* Tests of cuCheckpointProcess*: one process takes another one's memory off the GPU, and brings it back. */
#include "children.h"

#include <poll.h>

#define BYTES (100 * MIB)

static pid_t held; /* whose children of later know it */

/* Takes memory; and looks at it. */
static void hold(int line)
{
    static unsigned char seen[4096];
    CUdeviceptr memory = 0;
    next(line);
    done(line, use_gpu() && cuMemAlloc_v2(&memory, BYTES) == CUDA_SUCCESS &&
                   cuMemsetD8_v2(memory, 77, BYTES) == CUDA_SUCCESS);
    for (;;) {
        next(line);
        bool is_good = cuMemcpyDtoH_v2(seen, memory + BYTES - sizeof(seen), sizeof(seen)) == CUDA_SUCCESS;
        for (unsigned i = 0; i < sizeof(seen); i++)
            is_good &= seen[i] == 77;
        done(line, is_good);
    }
}

static CUprocessState state_now(void)
{
    CUprocessState state;
    EXPECT(cuCheckpointProcessGetState(held, &state) == CUDA_SUCCESS);
    return state;
}

static void take_off(int line)
{
    CUcheckpointLockArgs lock = {.timeoutMs = 100};
    CUprocessState state;
    (void)line;
    EXPECT(cuCheckpointProcessLock(held, &lock) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuCheckpointProcessGetState(getppid(), &state) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(state_now() == CU_PROCESS_STATE_RUNNING);
    EXPECT(cuCheckpointProcessCheckpoint(held, NULL) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cuCheckpointProcessUnlock(held, NULL) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cuCheckpointProcessLock(held, &lock) == CUDA_SUCCESS);
    EXPECT(state_now() == CU_PROCESS_STATE_LOCKED);
    EXPECT(cuCheckpointProcessLock(held, &lock) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cuCheckpointProcessCheckpoint(held, NULL) == CUDA_SUCCESS);
    EXPECT(state_now() == CU_PROCESS_STATE_CHECKPOINTED);
}

/* A GPU that is full by now takes nothing back. */
static void fail_to_bring_back(int line)
{
    CUdeviceptr memory;
    size_t free_now, total;
    (void)line;
    EXPECT(use_gpu() && cuMemGetInfo_v2(&free_now, &total) == CUDA_SUCCESS);
    EXPECT(cuMemAlloc_v2(&memory, free_now) == CUDA_SUCCESS);
    EXPECT(cuCheckpointProcessRestore(held, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(state_now() == CU_PROCESS_STATE_CHECKPOINTED);
}

static void bring_back(int line)
{
    int thread = 0;
    (void)line;
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuCheckpointProcessGetRestoreThreadId(held, &thread) == CUDA_SUCCESS && thread > 0);
    EXPECT(cuCheckpointProcessRestore(held, NULL) == CUDA_SUCCESS);
    EXPECT(state_now() == CU_PROCESS_STATE_LOCKED);
    EXPECT(cuCheckpointProcessUnlock(held, NULL) == CUDA_SUCCESS);
    EXPECT(state_now() == CU_PROCESS_STATE_RUNNING);
}

static void a_process_is_taken_off_the_gpu_and_brought_back(void **state)
{
    struct child child = start(hold);
    char byte = 's';
    uint64_t whole = free_bytes();
    step(child);
    held = child.pid;
    uint64_t before = free_bytes();
    assert_true(whole - before >= BYTES);
    run(take_off);
    assert_int_equal(free_bytes(), whole);
    run(fail_to_bring_back);
    assert_int_equal(free_bytes(), whole);
    /* Its next call waits. */
    assert_int_equal(send(child.line, &byte, 1, MSG_NOSIGNAL), 1);
    assert_int_equal(poll(&(struct pollfd){.fd = child.line, .events = POLLIN}, 1, 100), 0);
    run(bring_back);
    assert_int_equal(recv(child.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    assert_int_equal(free_bytes(), before);
    killed(child);
}

static void one_that_dies_meanwhile_leaves_nothing(void **state)
{
    struct child child = start(hold);
    uint64_t whole = free_bytes();
    step(child);
    held = child.pid;
    run(take_off);
    killed(child);
    assert_int_equal(free_bytes(), whole);
    /* The next in its place begins as one that runs. */
    child = start(hold);
    step(child);
    step(child);
    killed(child);
}

/* --- Processes that take it badly --- */

static struct child start_with(const char *fault)
{
    setenv("FAKECUDA_FAULT", fault, 1);
    struct child child = start(hold);
    step(child);
    unsetenv("FAKECUDA_FAULT");
    held = child.pid;
    return child;
}

static void see_it_killed(int line)
{
    (void)line;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuCheckpointProcessLock(held, NULL) == CUDA_SUCCESS);
    EXPECT(cuCheckpointProcessCheckpoint(held, NULL) == CUDA_ERROR_UNKNOWN);
}

static void a_checkpoint_may_kill(void **state)
{
    uint64_t whole = free_bytes();
    struct child child = start_with("checkpoint-kills@2");
    int status;
    run(take_off);
    run(bring_back);
    run(see_it_killed);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(child.line);
    assert_int_equal(free_bytes(), whole);
}

static void see_it_refused(int line)
{
    (void)line;
    EXPECT(cuInit(0) == CUDA_SUCCESS &&
           cuCheckpointProcessRestore(held, NULL) == CUDA_ERROR_OPERATING_SYSTEM);
    EXPECT(cuCheckpointProcessUnlock(held, NULL) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(state_now() == CU_PROCESS_STATE_CHECKPOINTED);
}

static void a_restore_that_found_no_room_may_never_be_repeated(void **state)
{
    struct child child = start_with("restore-fails@1");
    run(take_off);
    run(fail_to_bring_back);
    run(see_it_refused);
    killed(child);
}

static pid_t peer;

static void see_it_stuck(int line)
{
    CUcheckpointLockArgs lock = {.timeoutMs = 50};
    (void)line;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuCheckpointProcessLock(peer, &lock) == CUDA_ERROR_NOT_READY);
}

static void lock_peer(int line)
{
    (void)line;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuCheckpointProcessLock(peer, NULL) == CUDA_SUCCESS);
}

static void unlock_peer(int line)
{
    (void)line;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuCheckpointProcessUnlock(peer, NULL) == CUDA_SUCCESS);
}

/* A peer that was locked before goes on; one that was not hangs, also after the restore. */
static void a_checkpoint_may_hang_a_peer(void **state)
{
    char byte = 's';
    struct child locked = start_with("peers@7"), other = start_with("peers@8");
    peer = locked.pid;
    struct child child = start_with("peers@7");
    run(lock_peer);
    run(take_off);
    run(bring_back);
    run(unlock_peer);
    step(locked);
    run(take_off);
    assert_int_equal(send(locked.line, &byte, 1, MSG_NOSIGNAL), 1);
    run(bring_back);
    assert_int_equal(poll(&(struct pollfd){.fd = locked.line, .events = POLLIN}, 1, 100), 0);
    run(see_it_stuck);
    step(other);
    step(child);
    killed(locked);
    killed(other);
    killed(child);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=512MiB", "FAKECUDA_CONTEXT_BYTES=1MiB", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_taken_off_the_gpu_and_brought_back),
        cmocka_unit_test(one_that_dies_meanwhile_leaves_nothing),
        cmocka_unit_test(a_checkpoint_may_kill),
        cmocka_unit_test(a_restore_that_found_no_room_may_never_be_repeated),
        cmocka_unit_test(a_checkpoint_may_hang_a_peer),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
