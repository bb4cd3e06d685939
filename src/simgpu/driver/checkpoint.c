/* checkpoint.c - cuCheckpointProcess*: another process's memory leaves the GPUs and comes back while that process waits at its
 * next call (driver API reference since CUDA 12.8). The calls take as long as the link takes for the bytes (measure). */
#include <time.h>

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

/* Locking never waits here, so that no time-out is met. */
CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    SIM_TRY(ready());
    SIM_REQUIRE(!args || args->reserved0 == 0);
    return checkpoint_change(pid, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    (void)args;
    SIM_TRY(ready());
    SIM_TRY(checkpoint_change(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED));
    take_time(checkpoint_bytes(pid));
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    SIM_TRY(ready());
    if (args && args->gpuPairsCount > 0)
        return CUDA_ERROR_NOT_SUPPORTED; /* no restoring to other GPUs */
    uint64_t bytes = checkpoint_bytes(pid);
    SIM_TRY(checkpoint_change(pid, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED));
    take_time(bytes);
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    (void)args;
    SIM_TRY(ready());
    return checkpoint_change(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}
