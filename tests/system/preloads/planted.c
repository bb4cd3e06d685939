/* planted.c - takes the interceptor's place and leads to it, but for one planted fault, so that a test sees
 * that gpu-check finds it. The tree's libgpuslice.so is moved to real/, and this stands where it stood.
 * PLANTED says which fault, in the lookup of one entry point by name:
 *
 *   unhooked:NAME   the program gets the driver's own function: a hook that was left out
 *   half:NAME       the hook is told half of the bytes that are asked for (cuMemAlloc_v2 alone)
 *   slow:NAME       each call takes 50 us more (cuMemAlloc_v2 alone)
 *   extra:NAME      one more piece of work in each capture (cuStreamBeginCapture_v2 alone)
 *   pinned:NAME     what it gives is set to SYNC_MEMOPS, so that it stays on the card (cuMemAlloc_v2 alone)
 *   crash:NAME      each call ends the process
 *   hang:NAME       no call ever returns
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/prototypes.h"

typedef void *(*lookup)(void *, const char *);

__attribute__((visibility("default"))) void *dlsym(void *restrict handle, const char *restrict name);

static CUresult (*hook)(CUdeviceptr *, size_t);

static CUresult half(CUdeviceptr *address, size_t bytes)
{
    return hook(address, bytes / 2);
}

static CUresult slow(CUdeviceptr *address, size_t bytes)
{
    uint64_t end_ns = monotonic_ns() + 50000;
    while (monotonic_ns() < end_ns)
        ;
    return hook(address, bytes);
}

static CUresult (*set_attribute)(const void *, CUpointer_attribute, CUdeviceptr);

static CUresult pinned(CUdeviceptr *address, size_t bytes)
{
    const unsigned yes = 1;
    CUresult result = hook(address, bytes);
    return result == CUDA_SUCCESS ? set_attribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, *address) : result;
}

static CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
static CUresult (*launch_host_function)(CUstream, CUhostFn, void *);

static void do_nothing(void *unused)
{
    (void)unused;
}

static CUresult extra(CUstream stream, CUstreamCaptureMode mode)
{
    CUresult result = begin_capture(stream, mode);
    return result != CUDA_SUCCESS ? result : launch_host_function(stream, do_nothing, NULL);
}

__attribute__((noreturn)) static void crash(void)
{
    abort();
}

__attribute__((noreturn)) static void hang(void)
{
    for (;;)
        pause();
}

/* libc's own, by its version; then the interceptor's, which is the second of its name. */
static void find(lookup *of_libc, lookup *of_interceptor)
{
    void *found = dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
    if (!found)
        found = dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.17"); /* aarch64's first */
    memcpy(of_libc, &found, sizeof(found));
    found = (*of_libc)(dlopen("libgpuslice.so", RTLD_NOW | RTLD_NOLOAD), "dlsym");
    memcpy(of_interceptor, &found, sizeof(found));
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    static lookup of_libc, of_interceptor;
    if (!of_interceptor)
        find(&of_libc, &of_interceptor);
    const char *planted = getenv("PLANTED"), *colon = planted ? strchr(planted, ':') : NULL;
    void *function = of_interceptor(handle, name);
    if (!colon || strcmp(colon + 1, name) != 0)
        return function;
    memcpy(&hook, &function, sizeof(function));
    switch (*planted) {
    case 'u':
        return of_libc(handle, name);
    case 'h':
        return planted[2] == 'l' ? (void *)half : (void *)hang;
    case 's':
        return (void *)slow;
    case 'p':
        function = of_interceptor(handle, "cuPointerSetAttribute");
        memcpy(&set_attribute, &function, sizeof(function));
        return (void *)pinned;
    case 'e':
        memcpy(&begin_capture, &function, sizeof(function));
        function = of_interceptor(handle, "cuLaunchHostFunc");
        memcpy(&launch_host_function, &function, sizeof(function));
        return (void *)extra;
    default:
        return (void *)crash;
    }
}
