#include "intercept/memory/engine/clean.h"

#include <sys/mman.h>

#include "intercept/memory/engine/digest_ptx.h"
#include "intercept/memory/engine/state.h"
#include "intercept/resolve/real.h"

#define BLOCKS 1024u /* several for each multiprocessor of the largest cards */
#define THREADS 256u

/* The kernel in the current context, loaded at the first use. */
static bool find_function(CUcontext context, CUfunction *function)
{
    struct swap_digester *known = swap_state()->digesters;
    CUmodule module;
    unsigned free_place = SWAP_DIGESTERS;
    for (unsigned i = 0; i < SWAP_DIGESTERS; i++) {
        if (known[i].context == context) {
            *function = known[i].function;
            return true;
        }
        if (!known[i].context && free_place == SWAP_DIGESTERS)
            free_place = i;
    }
    if (free_place == SWAP_DIGESTERS || !real(cuModuleLoadData) || !real(cuModuleGetFunction) ||
        real(cuModuleLoadData)(&module, digest_ptx) != CUDA_SUCCESS)
        return false;
    if (real(cuModuleGetFunction)(function, module, DIGEST_KERNEL) != CUDA_SUCCESS) {
        real(cuModuleUnload)(module);
        return false;
    }
    known[free_place].context = context;
    known[free_place].function = *function;
    return true;
}

void digester_forget_context(CUcontext context)
{
    struct swap_digester *known = swap_state()->digesters;
    for (unsigned i = 0; i < SWAP_DIGESTERS; i++)
        if (known[i].context == context)
            known[i].context = NULL;
}

static bool begin(struct digester *digester)
{
    CUcontext context;
    size_t bytes = digester->room * sizeof(struct digest);
    if (real(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !find_function(context, &digester->function) ||
        real(cuStreamCreate)(&digester->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    void *seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (seen != MAP_FAILED && real(cuMemAlloc_v2)(&digester->results, bytes) == CUDA_SUCCESS) {
        digester->seen = seen;
        return true;
    }
    if (seen != MAP_FAILED)
        munmap(seen, bytes);
    real(cuStreamDestroy_v2)(digester->stream);
    return false;
}

void digester_begin(struct digester *digester, uint32_t room)
{
    *digester = (struct digester){.room = room};
    if (!room || !begin(digester))
        *digester = (struct digester){0};
}

void digester_end(struct digester *digester)
{
    if (!digester->results)
        return;
    real(cuMemFree_v2)(digester->results);
    real(cuStreamDestroy_v2)(digester->stream);
    munmap(digester->seen, digester->room * sizeof(struct digest));
    *digester = (struct digester){0};
}

bool digester_start(struct digester *digester)
{
    digester->count = 0;
    return digester->results &&
           real(cuMemsetD8Async)(digester->results, 0, digester->room * sizeof(struct digest),
                                 digester->stream) == CUDA_SUCCESS;
}

bool digester_add(struct digester *digester, CUdeviceptr address, uint64_t bytes, uint32_t *number)
{
    if (digester->count == digester->room)
        return false;
    uint64_t count = bytes / sizeof(uint64_t);
    CUdeviceptr out = digester->results + digester->count * sizeof(struct digest);
    void *arguments[] = {&address, &count, &out};
    if (real(cuLaunchKernel)(digester->function, BLOCKS, 1, 1, THREADS, 1, 1, 0, digester->stream, arguments,
                             NULL) != CUDA_SUCCESS)
        return false;
    *number = digester->count++;
    return true;
}

bool digester_finish(struct digester *digester)
{
    return !digester->count || (real(cuMemcpyDtoHAsync_v2)(digester->seen, digester->results,
                                                           digester->count * sizeof(struct digest),
                                                           digester->stream) == CUDA_SUCCESS &&
                                real(cuStreamSynchronize)(digester->stream) == CUDA_SUCCESS);
}
