#include "daemon/residency/checkpoint_run.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "daemon/process/driver_program.h"

#define LOCK_MS 10000

static struct {
    CUresult (*initialise)(unsigned);
    CUresult (*get_state)(int, CUprocessState *);
    CUresult (*lock)(int, CUcheckpointLockArgs *);
    CUresult (*checkpoint)(int, CUcheckpointCheckpointArgs *);
    CUresult (*restore)(int, CUcheckpointRestoreArgs *);
    CUresult (*unlock)(int, CUcheckpointUnlockArgs *);
} driver;

static int find_driver(bool is_simulated)
{
    struct error error;
    const struct {
        const char *name;
        void *place;
    } symbols[] = {{"cuInit", &driver.initialise},
                   {"cuCheckpointProcessGetState", &driver.get_state},
                   {"cuCheckpointProcessLock", &driver.lock},
                   {"cuCheckpointProcessCheckpoint", &driver.checkpoint},
                   {"cuCheckpointProcessRestore", &driver.restore},
                   {"cuCheckpointProcessUnlock", &driver.unlock}};
    void *library = driver_program_load(is_simulated, &error);
    if (!library) {
        printf("%s", error.message);
        return -1;
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function) {
            printf("the driver has no %s; 570 and later have it", symbols[i].name);
            return -1;
        }
        memcpy(symbols[i].place, &function, sizeof(function));
    }
    return 0;
}

static int say(const char *what, int pid, CUresult result)
{
    printf("the driver cannot %s process %d (%s answered %d)", what, pid, "cuCheckpointProcess*",
           (int)result);
    return 1;
}

/* False if the daemon that asked for this has died: then start nothing, because the next daemon will ask again. */
static bool is_wanted(void)
{
    struct pollfd reader = {.fd = STDOUT_FILENO};
    return poll(&reader, 1, 0) <= 0 || !(reader.revents & POLLERR);
}

static int take_out(int pid, CUprocessState state)
{
    CUcheckpointLockArgs lock = {.timeoutMs = LOCK_MS};
    CUcheckpointCheckpointArgs checkpoint = {0};
    CUcheckpointUnlockArgs unlock = {0};
    CUresult result = state == CU_PROCESS_STATE_RUNNING ? driver.lock(pid, &lock) : CUDA_SUCCESS;
    if (result == CUDA_ERROR_NOT_READY) {
        printf("calls of process %d did not end within %d s", pid, LOCK_MS / 1000);
        return 1;
    }
    if (result != CUDA_SUCCESS)
        return say("lock", pid, result);
    if (state == CU_PROCESS_STATE_CHECKPOINTED)
        return 0;
    result = driver.checkpoint(pid, &checkpoint);
    if (result == CUDA_SUCCESS)
        return 0;
    driver.unlock(pid, &unlock);
    return say("checkpoint", pid, result);
}

static int bring_back(int pid, CUprocessState state)
{
    CUcheckpointRestoreArgs restore = {0};
    CUcheckpointUnlockArgs unlock = {0};
    CUresult result = state == CU_PROCESS_STATE_CHECKPOINTED ? driver.restore(pid, &restore) : CUDA_SUCCESS;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        printf("the card has no room for process %d now", pid);
        return 1;
    }
    if (result != CUDA_SUCCESS)
        return say("restore", pid, result);
    if (state == CU_PROCESS_STATE_RUNNING)
        return 0;
    result = driver.unlock(pid, &unlock);
    return result == CUDA_SUCCESS ? 0 : say("unlock", pid, result);
}

int checkpoint_run(const char *order, bool is_simulated)
{
    CUprocessState state;
    const char *number = strchr(order, ':');
    int pid = number ? atoi(number + 1) : 0;
    bool is_out = strncmp(order, "out:", 4) == 0;
    if (pid <= 0 || (!is_out && strncmp(order, "in:", 3) != 0)) {
        printf("'%s' is neither out:PID nor in:PID", order);
        return 2;
    }
    if (find_driver(is_simulated) < 0)
        return 1;
    CUresult result = driver.initialise(0);
    if (result != CUDA_SUCCESS) {
        printf("cuInit answered %d", (int)result);
        return 1;
    }
    flock(STDIN_FILENO, LOCK_EX); /* a program of a dead daemon may still be at work */
    if (!is_wanted())
        return 1;
    result = driver.get_state(pid, &state);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return 0; /* the process does not use the GPU */
    if (result != CUDA_SUCCESS)
        return say("tell the state of", pid, result);
    if (state == CU_PROCESS_STATE_FAILED) {
        printf("a checkpoint of process %d has failed for good; end it", pid);
        return 1;
    }
    return is_out ? take_out(pid, state) : bring_back(pid, state);
}
