/* rude - threads that end in the middle of whatever they do.
 *
 *   rude ROUNDS SEED
 *
 * Each round, threads make random calls of the driver until they are cancelled, at a random moment, or end by themselves;
 * meanwhile the program forks children by fork() and vfork(), which end at once. The first call of all is made by such a
 * thread: attaching is interrupted too. Then the main thread takes memory until there is none, and prints how many bytes that
 * were; it ends at the end of input. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "driver_program.h"

#define THREADS 6
#define PIECE ((size_t)256 << 10)

static CUcontext context;

static unsigned pick(unsigned *state, unsigned below)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 16 & 0x7fff ? (*state >> 16) % below : 0;
}

/* Whatever it is answered: the quota may be full. */
static void call_something(unsigned *state, CUstream *stream)
{
    CUdeviceptr address = 0;
    size_t free_bytes, total_bytes;
    switch (pick(state, 6)) {
    case 0:
        if (cuMemAlloc_v2(&address, PIECE) == CUDA_SUCCESS)
            cuMemFree_v2(address);
        break;
    case 1:
        cuMemGetInfo_v2(&free_bytes, &total_bytes);
        break;
    case 2:
        if (cuMemAllocAsync(&address, PIECE, *stream) == CUDA_SUCCESS)
            cuMemFreeAsync(address, *stream);
        break;
    case 3:
        cuStreamSynchronize(*stream);
        break;
    case 4:
        if (cuMemAlloc_v2(&address, PIECE) == CUDA_SUCCESS)
            cuMemsetD8Async(address, 1, PIECE, *stream);
        pthread_testcancel();
        cuMemFree_v2(address);
        break;
    default:
        cuCtxSetCurrent(context);
    }
}

static void *be_rude(void *seed)
{
    unsigned state = (unsigned)(size_t)seed;
    CUcontext own;
    CUstream stream = NULL;
    CUdevice device;
    CHECK(cuDeviceGet(&device, 0));
    if (cuDevicePrimaryCtxRetain(&own, device) != CUDA_SUCCESS)
        return NULL;
    context = own;
    cuCtxSetCurrent(own);
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (unsigned calls = pick(&state, 2000); calls; calls--) {
        call_something(&state, &stream);
        pthread_testcancel();
    }
    if (pick(&state, 2))
        pthread_exit(NULL);
    return NULL;
}

static void fork_something(unsigned *state)
{
    pid_t child = pick(state, 2) ? fork() : vfork();
    if (child == 0)
        _exit(0);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void go_round(unsigned *state)
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, be_rude, (void *)(size_t)(*state + i)) != 0)
            exit(1);
    for (unsigned i = 0; i < THREADS; i++) {
        struct timespec moment = {.tv_nsec = pick(state, 3000) * 1000L};
        nanosleep(&moment, NULL);
        pthread_cancel(threads[i]);
        if (pick(state, 4) == 0)
            fork_something(state);
        pthread_join(threads[i], NULL);
    }
}

int main(int count, char **words)
{
    unsigned state = count > 2 ? (unsigned)atoi(words[2]) : 1;
    unsigned long long bytes = 0;
    CUdeviceptr address;
    CHECK(cuInit(0));
    for (int rounds = count > 1 ? atoi(words[1]) : 1; rounds; rounds--)
        go_round(&state);
    use_gpu(0);
    while (cuMemAlloc_v2(&address, PIECE) == CUDA_SUCCESS)
        bytes += PIECE;
    printf("%llu\n", bytes);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
