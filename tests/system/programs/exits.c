/* exits - submits work, and ends while it is in flight.
 *
 *   exits KERNEL_US COUNT [THREADS [HOW]]   COUNT kernels of the default stream; THREADS more that do nothing,
 *                                           and begin before the driver does
 *
 * HOW it ends:
 *   return    from main; exit, _exit, abort: by that call
 *   inside    from main, while its THREADS launch kernels and wait for them, as fast as they can
 *   atexit    exit(), with a handler of the program's own that still launches, asks and waits
 *   dlclose   from main, after a library that it had opened has gone
 *   fork      from main, after a child that it made with work in flight has gone the same way */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_program.h"

static CUcontext context;
static CUfunction work;
static unsigned long long kernel_us;

static CUresult launch(void)
{
    return cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, NULL, STEPS_FOR_US(kernel_us), NULL);
}

static void *rest(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* Once the driver ends it answers that; what comes then is not asked for. */
static void *launch_for_ever(void *unused)
{
    (void)unused;
    if (cuCtxSetCurrent(context) == CUDA_SUCCESS)
        while (launch() == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS)
            ;
    return rest(NULL);
}

static void work_to_the_end(void)
{
    CHECK(launch());
    CHECK(cuCtxSynchronize());
    CHECK(launch());
}

static void close_library(void)
{
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        exit(1);
    dlclose(library);
}

static void fork_and_wait(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        exit(1);
}

static void make_threads(int count, void *(*function)(void *))
{
    for (; count > 0; count--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, function, NULL) != 0)
            exit(1);
    }
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    kernel_us = strtoull(words[1], NULL, 10);
    int threads = count > 3 ? atoi(words[3]) : 0;
    const char *how = count > 4 ? words[4] : "return";
    bool inside = strcmp(how, "inside") == 0;
    if (!inside)
        make_threads(threads, rest);
    CHECK(cuInit(0));
    context = use_gpu(0);
    work = find_kernel(load_module(PTX(PTX_STEPS)), STEPS_KERNEL);
    if (strcmp(how, "atexit") == 0)
        atexit(work_to_the_end);
    if (inside)
        make_threads(threads, launch_for_ever);
    for (int i = atoi(words[2]); i > 0; i--)
        CHECK(launch());
    if (strcmp(how, "atexit") == 0 || strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "dlclose") == 0)
        close_library();
    if (strcmp(how, "fork") == 0)
        fork_and_wait();
    return 0;
}
