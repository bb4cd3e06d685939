/* checkpoint.c - cuCheckpointProcess*: another process's memory leaves the GPUs and comes back while that process waits at its
 * next call (driver API reference since CUDA 12.8). The calls take as long as the link takes for the bytes (measure). */
#include <time.h>

#include "base/clock.h"
#include "simgpu/device/checkpoints.h"
#include "simgpu/driver/sim.h"
#include "simgpu/time/execution.h"

/* A caller that is locked itself would wait for itself in sim_ready(). */
static CUresult ready(void)
{
    return atomic_load_explicit(&simulator.initialised, memory_order_acquire) ? CUDA_SUCCESS
                                                                              : CUDA_ERROR_NOT_INITIALIZED;
}

/* Sleep as long as the link takes for the bytes. */
static void take_time(uint64_t bytes)
{
    uint64_t ns = execution_link_ns(bytes);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)},
              NULL);
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    SIM_TRY(ready());
    SIM_REQUIRE(state);
    return checkpoint_state(pid, state);
}

/* We keep no thread for restoring: the process's first thread stands for it. */
CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    CUprocessState state;
    SIM_TRY(ready());
    SIM_REQUIRE(tid);
    SIM_TRY(checkpoint_state(pid, &state));
    *tid = pid;
    return CUDA_SUCCESS;
}

/* Locking waits for calls that a process hangs in alone. */
CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    SIM_TRY(ready());
    SIM_REQUIRE(!args || args->reserved0 == 0);
    uint64_t begin_ns = monotonic_ns(), most_ns = args ? args->timeoutMs * UINT64_C(1000000) : 0;
    while (checkpoint_is_stuck(pid)) {
        if (most_ns > 0 && monotonic_ns() - begin_ns >= most_ns)
            return CUDA_ERROR_NOT_READY;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return checkpoint_change(pid, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    (void)args;
    SIM_TRY(ready());
    SIM_TRY(checkpoint_change(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED));
    take_time(checkpoint_bytes(pid));
    return checkpoint_faulty(pid);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    SIM_TRY(ready());
    if (args && args->gpuPairsCount > 0)
        return CUDA_ERROR_NOT_SUPPORTED; /* no restoring to other GPUs */
    if (checkpoint_has_failed(pid))
        return CUDA_ERROR_OPERATING_SYSTEM;
    uint64_t bytes = checkpoint_bytes(pid);
    CUresult result = checkpoint_change(pid, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        checkpoint_note_no_room(pid);
    if (result == CUDA_SUCCESS)
        take_time(bytes);
    return result;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    (void)args;
    SIM_TRY(ready());
    return checkpoint_change(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}
