/* calls.c - allocates, each time by the way asked for, and prints what the driver answers and what tracer.c
 * has counted if it is there. Built twice; calls_linked is linked with the driver.
 *
 *   calls WAY:BYTES...    WAY: linked (calls_linked only) handle default next procaddress */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/prototypes.h"

typedef __typeof__(cuMemAlloc_v2) allocate;

static void *driver;

#define FROM_DRIVER(symbol) ((__typeof__(&symbol))dlsym(driver, #symbol))

static allocate *find(const char *way)
{
#ifdef LINKED
    if (strcmp(way, "linked") == 0)
        return cuMemAlloc_v2;
#endif
    if (strcmp(way, "handle") == 0)
        return FROM_DRIVER(cuMemAlloc_v2);
    if (strcmp(way, "default") == 0)
        return (allocate *)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    if (strcmp(way, "next") == 0)
        return (allocate *)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    void *found = NULL;
    if (strcmp(way, "procaddress") == 0)
        FROM_DRIVER(cuGetProcAddress_v2)("cuMemAlloc", &found, 12000, 0, NULL);
    return (allocate *)found;
}

static void make_context(void)
{
    CUcontext context;
    CUdevice device;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || FROM_DRIVER(cuInit)(0) || FROM_DRIVER(cuDeviceGet)(&device, 0) ||
        FROM_DRIVER(cuDevicePrimaryCtxRetain)(&context, device) || FROM_DRIVER(cuCtxSetCurrent)(context)) {
        fprintf(stderr, "calls: no context: %s\n", driver ? "the driver refuses" : dlerror());
        exit(1);
    }
}

int main(int count, char **arguments)
{
    make_context();
    for (int i = 1; i < count; i++) {
        char way[32] = "";
        unsigned long long bytes = 0;
        CUdeviceptr pointer = 0;
        if (sscanf(arguments[i], "%31[^:]:%llu", way, &bytes) != 2)
            return 2;
        allocate *function = find(way);
        printf("%s\t%d\n", way, function ? (int)function(&pointer, bytes) : -1);
    }
    int (*counted)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "tracer_count");
    if (counted)
        printf("traced\t%d\n", counted("allocations"));
    return 0;
}
