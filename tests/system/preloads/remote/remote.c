/* remote.c - a libcuda.so.1 that is no driver itself: as WSL2's does, and shims that reach a GPU elsewhere, it loads the one
 * at REMOTE_DRIVER, looks every entry point up there with dlsym, and jumps to what that answered (driver.S). So what its
 * cuGetProcAddress hands out are functions that it does not export.
 *
 * REMOTE_DIES_MS=N   after its exit handler, which takes N ms, every call ends the process by SIGABRT, as calls after
 *                    a driver's own may do */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/entry_points.h"

extern void *driver_functions[CUDA_ENTRY_COUNT];
__attribute__((visibility("hidden"))) void *driver_functions[CUDA_ENTRY_COUNT];

static void die(void)
{
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        driver_functions[id] = (void *)abort;
    usleep(1000 * (useconds_t)atoi(getenv("REMOTE_DIES_MS")));
}

__attribute__((constructor)) static void look_everything_up(void)
{
    void *remote = dlopen(getenv("REMOTE_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    if (!remote) {
        fprintf(stderr, "remote: %s\n", dlerror());
        exit(1);
    }
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        driver_functions[id] = dlsym(remote, cuda_entries[id].symbol);
    if (getenv("REMOTE_DIES_MS"))
        atexit(die);
}
