#include "daemon/residency/checkpoint_run.h"

#include <dlfcn.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/paths.h"
#include "base/units.h"
#include "cuda/driver_more.h"
#include "cuda/nvml.h"
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

static int lock_calls(int pid, CUprocessState state)
{
    CUcheckpointLockArgs lock = {.timeoutMs = LOCK_MS};
    CUresult result = state == CU_PROCESS_STATE_RUNNING ? driver.lock(pid, &lock) : CUDA_SUCCESS;
    if (result == CUDA_ERROR_NOT_READY) {
        printf("calls of process %d did not end within %d s", pid, LOCK_MS / 1000);
        return 1;
    }
    return result == CUDA_SUCCESS ? 0 : say("lock", pid, result);
}

static int take_out(int pid, CUprocessState state)
{
    CUcheckpointCheckpointArgs checkpoint = {0};
    CUcheckpointUnlockArgs unlock = {0};
    int status = lock_calls(pid, state); /* if it has started since the others were locked */
    if (status != 0 || state == CU_PROCESS_STATE_CHECKPOINTED)
        return status;
    CUresult result = driver.checkpoint(pid, &checkpoint);
    if (result == CUDA_SUCCESS)
        return 0;
    driver.unlock(pid, &unlock);
    return say("checkpoint", pid, result);
}

/* How much is free on the GPU, by NVML: to ask CUDA would take a context there. False: nobody says. */
static bool find_free(void *nvml, const char *uuid, uint64_t *bytes)
{
    nvmlReturn_t (*find)(const char *, nvmlDevice_t *);
    nvmlReturn_t (*ask)(nvmlDevice_t, nvmlMemory_t *);
    void *symbols[] = {dlsym(nvml, "nvmlDeviceGetHandleByUUID"), dlsym(nvml, "nvmlDeviceGetMemoryInfo")};
    nvmlDevice_t device;
    nvmlMemory_t memory;
    if (!symbols[0] || !symbols[1])
        return false;
    memcpy(&find, &symbols[0], sizeof(find));
    memcpy(&ask, &symbols[1], sizeof(ask));
    if (find(uuid, &device) != NVML_SUCCESS || ask(device, &memory) != NVML_SUCCESS)
        return false;
    *bytes = memory.free;
    return true;
}

static void *load_nvml(bool is_simulated)
{
    struct error error;
    char path[PATH_MAX] = "libnvidia-ml.so.1";
    nvmlReturn_t (*initialise)(void);
    if (is_simulated && paths_library("simulated/libnvidia-ml.so.1", path, &error) < 0)
        return NULL;
    void *nvml = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = nvml ? dlsym(nvml, "nvmlInit_v2") : NULL;
    if (!symbol)
        return NULL;
    memcpy(&initialise, &symbol, sizeof(initialise));
    return initialise() == NVML_SUCCESS ? nvml : NULL;
}

/* Whether each GPU of the list has so much free as it says; where nobody says what is free, the driver will. */
static bool have_room(int pid, char *needs, bool is_simulated)
{
    void *nvml = needs ? load_nvml(is_simulated) : NULL;
    char *rest = needs;
    for (char *need; nvml && (need = strsep(&rest, ","));) {
        char *number = strchr(need, '='), wanted[UNITS_BYTES_TEXT], found[UNITS_BYTES_TEXT];
        uint64_t bytes = number ? strtoull(number + 1, NULL, 10) : 0, free_bytes;
        if (!number)
            continue;
        *number = '\0';
        if (!find_free(nvml, need, &free_bytes) || free_bytes >= bytes)
            continue;
        printf("the card has no room for process %d now: it needs %s, and %s is free", pid,
               units_format_bytes(bytes, wanted), units_format_bytes(free_bytes, found));
        return false;
    }
    return true;
}

static int bring_back(int pid, CUprocessState state, char *needs, bool is_simulated)
{
    CUcheckpointRestoreArgs restore = {0};
    CUcheckpointUnlockArgs unlock = {0};
    if (state == CU_PROCESS_STATE_CHECKPOINTED && !have_room(pid, needs, is_simulated))
        return 1;
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
    cleanup_free char *text = strdup(order);
    char *rest = text, *verb = strsep(&rest, ":"), *number = strsep(&rest, ":");
    int pid = number ? atoi(number) : 0;
    bool locks = pid > 0 && strcmp(verb, "lock") == 0, is_out = pid > 0 && strcmp(verb, "out") == 0;
    if (pid <= 0 || (!locks && !is_out && strcmp(verb, "in") != 0)) {
        printf("expected lock:PID, out:PID or in:PID");
        return 2;
    }
    if (find_driver(is_simulated) < 0)
        return 1;
    /* A restore needs persistence mode, or a caller that has called this (cuda.h 13.0, cuCheckpointProcessRestore). */
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
    return locks    ? lock_calls(pid, state)
           : is_out ? take_out(pid, state)
                    : bring_back(pid, state, rest, is_simulated);
}
