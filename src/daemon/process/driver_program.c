#include "daemon/process/driver_program.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"

/* The daemon's environment, without what would put the program into a session or make it fail. NULL without memory. */
static char **environment_without_us(void)
{
    extern char **environ;
    static const char *const left_out[] = {
        "LD_PRELOAD=",    "GPUSLICE_SESSION=",    "GPUSLICE_MEMORY_LIMIT=", "GPUSLICE_COMPUTE_LIMIT=",
        "NOTIFY_SOCKET=", "CUDA_VISIBLE_DEVICES="};
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **environment = calloc(count + 1, sizeof(*environment));
    for (size_t i = 0; environment && i < count; i++) {
        bool is_left_out = false;
        for (size_t j = 0; j < sizeof(left_out) / sizeof(left_out[0]); j++)
            is_left_out |= strncmp(environ[i], left_out[j], strlen(left_out[j])) == 0;
        if (!is_left_out)
            environment[kept++] = environ[i];
    }
    return environment;
}

int driver_program_start(char *const words[], int input, int output, pid_t *program)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    if (input >= 0)
        posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char **environment = environment_without_us();
    int result = environment
                     ? posix_spawn(program, "/proc/self/exe", &actions, &attributes, words, environment)
                     : ENOMEM;
    free(environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

void *driver_program_load(bool is_simulated, struct error *error)
{
    char path[PATH_MAX] = "libcuda.so.1";
    if (is_simulated && paths_library("simulated/libcuda.so.1", path, error) < 0)
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        error_set(error, ENOENT, NULL, "%s", dlerror());
    return library;
}
