/* tool.c - a profiler's library, which the driver loads where CUDA_INJECTION64_PATH names it: it asks for the driver's tables (and
 * gets none here, so no callbacks), resolves what it needs by cuGetProcAddress, and has a thread with a buffer of its own on the
 * card, which it reads and writes while the program works. If a byte of it is ever wrong, the process ends with 3. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda/prototypes.h"

#define EXPORT __attribute__((visibility("default")))
#define BUFFER_BYTES ((size_t)2 << 20)
#define PERIOD_NS 20000000
#define VERSION 12000

EXPORT int InitializeInjection(void);

/* The table of the runtime's callbacks, which CUPTI asks for. */
static const CUuuid callback_table = {{'\xa0', '\x94', '\x79', '\x8c', '\x2e', '\x74', '\x2e', '\x74', '\x93',
                                       '\xf2', '\x08', '\x00', '\x20', '\x0c', '\x0a', '\x66'}};

static struct {
    CUresult (*primary_state)(CUdevice, unsigned *, int *);
    CUresult (*primary_retain)(CUcontext *, CUdevice);
    CUresult (*primary_release)(CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*release)(CUdeviceptr);
    CUresult (*to_device)(CUdeviceptr, const void *, size_t);
    CUresult (*to_host)(void *, CUdeviceptr, size_t);
} driver;

static const struct {
    const char *name;
    void *place;
} functions[] = {
    {"cuDevicePrimaryCtxGetState", &driver.primary_state},
    {"cuDevicePrimaryCtxRetain", &driver.primary_retain},
    {"cuDevicePrimaryCtxRelease", &driver.primary_release},
    {"cuCtxSetCurrent", &driver.set_current},
    {"cuMemAlloc", &driver.alloc},
    {"cuMemFree", &driver.release},
    {"cuMemcpyHtoD", &driver.to_device},
    {"cuMemcpyDtoH", &driver.to_host},
};

static atomic_bool is_over;
static pthread_t thread;
static int rounds; /* the thread's, until it has ended */

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "tool: %s answered %d\n", what, (int)result);
    _exit(3);
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PERIOD_NS}, NULL);
}

/* The program makes the context; a tool's callback would tell. */
static bool wait_for_context(void)
{
    unsigned flags;
    int is_active = 0;
    while (!atomic_load(&is_over)) {
        if (driver.primary_state(0, &flags, &is_active) == CUDA_SUCCESS && is_active)
            return true;
        rest();
    }
    return false;
}

static void use_buffer(CUdeviceptr buffer)
{
    static unsigned char written[BUFFER_BYTES], read[BUFFER_BYTES];
    for (; !atomic_load(&is_over); rounds++) {
        memset(written, rounds + 1, BUFFER_BYTES);
        must(driver.to_device(buffer, written, BUFFER_BYTES), "cuMemcpyHtoD");
        rest();
        must(driver.to_host(read, buffer, BUFFER_BYTES), "cuMemcpyDtoH");
        if (memcmp(written, read, BUFFER_BYTES) != 0) {
            fprintf(stderr, "tool: its buffer does not hold what it wrote\n");
            _exit(3);
        }
    }
}

static void *look_on(void *unused)
{
    CUcontext context;
    CUdeviceptr buffer;
    if (!wait_for_context())
        return unused;
    must(driver.primary_retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(driver.set_current(context), "cuCtxSetCurrent");
    must(driver.alloc(&buffer, BUFFER_BYTES), "cuMemAlloc");
    use_buffer(buffer);
    must(driver.release(buffer), "cuMemFree");
    driver.primary_release(0);
    return unused;
}

static void end(void)
{
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    fprintf(stderr, "tool: %d rounds\n", rounds);
}

static bool resolve(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        library ? (CUresult(*)(const char *, void **, int, cuuint64_t,
                               CUdriverProcAddressQueryResult *))dlsym(library, "cuGetProcAddress_v2")
                : NULL;
    if (!get)
        return false;
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if (get(functions[i].name, functions[i].place, VERSION, 0, NULL) != CUDA_SUCCESS)
            return false;
    return true;
}

int InitializeInjection(void)
{
    const void *table;
    if (cuGetExportTable(&table, &callback_table) == CUDA_SUCCESS)
        return 0; /* then CUPTI itself would be the test */
    if (!resolve() || pthread_create(&thread, NULL, look_on, NULL) != 0) {
        fprintf(stderr, "tool: it cannot begin\n");
        _exit(3);
    }
    atexit(end);
    return 1;
}
