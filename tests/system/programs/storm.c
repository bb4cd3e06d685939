/* storm - THREADS threads allocate and free device memory at random until SIGTERM, check what they hold, free it all.
 *
 *   storm THREADS SEED
 *
 * Exits 0 if every call answered CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY and the memory held what was written. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/prototypes.h"

#define KEPT 16
#define LARGEST_BYTES (4u << 20)

static atomic_int failed;
static atomic_bool ending;
static CUcontext context;

static void on_term(int number)
{
    (void)number;
    atomic_store(&ending, true);
}

static bool check(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        return result == CUDA_SUCCESS;
    fprintf(stderr, "storm: %s answered %d\n", call, (int)result);
    atomic_store(&failed, 1);
    return false;
}
#define CHECK(call) check(call, #call)

struct kept {
    CUdeviceptr address;
    uint32_t mark;
};

static void allocate(struct kept *place, unsigned *seed)
{
    size_t bytes = sizeof(uint32_t) + (size_t)rand_r(seed) % LARGEST_BYTES;
    if (!CHECK(cuMemAlloc_v2(&place->address, bytes))) {
        place->address = 0;
        return;
    }
    place->mark = (uint32_t)rand_r(seed);
    CHECK(cuMemcpyHtoD_v2(place->address, &place->mark, sizeof(place->mark)));
}

static void release(struct kept *place)
{
    uint32_t mark = ~place->mark;
    CHECK(cuMemcpyDtoH_v2(&mark, place->address, sizeof(mark)));
    if (mark != place->mark) {
        fprintf(stderr, "storm: memory holds %08x, expected %08x\n", mark, place->mark);
        atomic_store(&failed, 1);
    }
    CHECK(cuMemFree_v2(place->address));
    place->address = 0;
}

static void *run(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    struct kept kept[KEPT] = {0};
    CHECK(cuCtxSetCurrent(context));
    while (!atomic_load(&ending) && !atomic_load(&failed)) {
        struct kept *place = &kept[(unsigned)rand_r(&seed) % KEPT];
        if (place->address)
            release(place);
        else
            allocate(place, &seed);
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i].address)
            release(&kept[i]);
    return NULL;
}

int main(int count, char **arguments)
{
    int threads = count == 3 ? atoi(arguments[1]) : 0;
    if (threads < 1 || threads > 64) {
        fprintf(stderr, "usage: storm THREADS SEED\n");
        return 2;
    }
    signal(SIGTERM, on_term);
    CUdevice device;
    if (!CHECK(cuInit(0)) || !CHECK(cuDeviceGet(&device, 0)) ||
        !CHECK(cuDevicePrimaryCtxRetain(&context, device)))
        return 1;
    pthread_t ids[64];
    unsigned seeds[64];
    for (int i = 0; i < threads; i++) {
        seeds[i] = (unsigned)atol(arguments[2]) + (unsigned)i;
        pthread_create(&ids[i], NULL, run, &seeds[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return atomic_load(&failed);
}
