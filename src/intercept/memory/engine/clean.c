#include "intercept/memory/engine/clean.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "intercept/memory/engine/digest_ptx.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"

#define BLOCKS 1024u /* several for each multiprocessor of the largest cards */
#define THREADS 256u

#define COMPARED_BYTES (UINT64_C(8) << 20) /* compared at a time */

enum clean_mode clean_mode_read(void)
{
    static atomic_bool said;
    static const char *const names[] = {
        [CLEAN_TRUST] = "trust", [CLEAN_VERIFY] = "verify", [CLEAN_COPY] = "copy"};
    const char *text = secure_getenv("GPUSLICE_UNCHANGED");
    if (!text || !*text)
        return CLEAN_TRUST;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i]) == 0)
            return (enum clean_mode)i;
    report_once(
        &said,
        "GPUSLICE_UNCHANGED is '%s'; expected 'trust', 'verify' or 'copy': all memory is copied each time it "
        "leaves the GPU",
        text);
    return CLEAN_COPY;
}

bool clean_is_same(const struct swap_tools *tools, CUdeviceptr address, const struct arena *arena,
                   uint64_t place, uint64_t bytes)
{
    unsigned char *seen =
        mmap(NULL, COMPARED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        return false;
    bool is_same = true;
    for (uint64_t at = 0; at < bytes && is_same; at += COMPARED_BYTES) {
        uint64_t part = bytes - at < COMPARED_BYTES ? bytes - at : COMPARED_BYTES;
        is_same = real(cuMemcpyDtoHAsync_v2)(seen, address + at, part, tools->digests) == CUDA_SUCCESS &&
                  real(cuStreamSynchronize)(tools->digests) == CUDA_SUCCESS &&
                  memcmp(seen, arena->base + place + at, part) == 0;
    }
    munmap(seen, COMPARED_BYTES);
    return is_same;
}

/* Find the kernel in the current context; it is loaded at the first use. */
static bool find_function(struct swap_tools *tools)
{
    CUmodule module;
    if (tools->digest)
        return true;
    if (!real(cuModuleLoadData) || !real(cuModuleGetFunction) ||
        real(cuModuleLoadData)(&module, digest_ptx) != CUDA_SUCCESS)
        return false;
    if (real(cuModuleGetFunction)(&tools->digest, module, DIGEST_KERNEL) == CUDA_SUCCESS)
        return true;
    tools->digest = NULL;
    real(cuModuleUnload)(module);
    return false;
}

static bool begin(struct digester *digester, struct swap_tools *tools)
{
    size_t bytes = digester->room * sizeof(struct digest);
    if (!find_function(tools))
        return false;
    void *seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        return false;
    if (real(cuMemAlloc_v2)(&digester->results, bytes) != CUDA_SUCCESS) {
        munmap(seen, bytes);
        return false;
    }
    digester->seen = seen;
    digester->function = tools->digest;
    digester->stream = tools->digests;
    return true;
}

void digester_begin(struct digester *digester, struct swap_tools *tools, uint32_t room)
{
    *digester = (struct digester){.room = room};
    if (!room || !begin(digester, tools))
        *digester = (struct digester){0};
}

void digester_end(struct digester *digester)
{
    if (!digester->results)
        return;
    real(cuMemFree_v2)(digester->results);
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
