/* target_app.c - allocates GPU memory until it has enough or is refused, then frees it all.
 *
 *   ALLOC_BYTES  bytes of each allocation (default 64 MiB)
 *   ITERATIONS   how many (default 10)
 *   HOLD         `stdin`: hold the memory until a line or the end of standard input comes;
 *                `signal`: until SIGUSR1 comes
 *
 * Prints ALLOC_OK iteration N, ALLOC_FAIL at iteration N code=C, FREE_OK iteration N, each line as it
 * happens, and ends with status 0 also when it was refused: a full GPU is not this program's fault. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "check.h"

static unsigned long long environment_number(const char *name, unsigned long long fallback)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return fallback;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || !number || strchr(text, '-')) {
        fprintf(stderr, "target_app: %s is '%s', expected a number above 0 without a unit\n", name, text);
        exit(2);
    }
    return number;
}

static void hold(const char *what)
{
    if (strcmp(what, "stdin") == 0) {
        int c;
        do
            c = getchar();
        while (c != EOF && c != '\n');
    } else {
        sigset_t set;
        int number;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigwait(&set, &number);
    }
}

int main(void)
{
    unsigned long long bytes = environment_number("ALLOC_BYTES", 64ull << 20);
    unsigned long long iterations = environment_number("ITERATIONS", 10);
    const char *wait_for = getenv("HOLD");
    if (wait_for && strcmp(wait_for, "stdin") != 0 && strcmp(wait_for, "signal") != 0) {
        fprintf(stderr, "target_app: HOLD is '%s', expected 'stdin' or 'signal'\n", wait_for);
        return 2;
    }
    CUdeviceptr *pointers = calloc(iterations, sizeof(*pointers));
    if (!pointers) {
        fprintf(stderr, "target_app: no memory for %llu pointers; set fewer ITERATIONS\n", iterations);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (wait_for) { /* blocked from the start, so that an early SIGUSR1 stays pending */
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }

    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));

    /* A context takes memory too. A program of the runtime API makes its context with the first allocation, so this
     * one counts a refused context as a refused allocation. */
    CUresult result = cuDevicePrimaryCtxRetain(&context, device);
    int has_context = result == CUDA_SUCCESS;
    if (has_context)
        CHECK(cuCtxSetCurrent(context));

    unsigned long long held = 0;
    while (result == CUDA_SUCCESS && held < iterations) {
        result = cuMemAlloc_v2(&pointers[held], bytes);
        if (result == CUDA_SUCCESS)
            printf("ALLOC_OK iteration %llu\n", held++);
    }
    if (result != CUDA_SUCCESS)
        printf("ALLOC_FAIL at iteration %llu code=%d\n", held, (int)result);

    if (wait_for)
        hold(wait_for);

    for (unsigned long long i = 0; i < held; i++) {
        CHECK(cuMemFree_v2(pointers[i]));
        printf("FREE_OK iteration %llu\n", i);
    }
    if (has_context)
        CHECK(cuDevicePrimaryCtxRelease_v2(device));
    free(pointers);
    return 0;
}
