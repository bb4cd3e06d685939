#include "intercept/memory/engine/swap/move/digester.h"

#include "intercept/memory/engine/swap/extents/extents.h"
#include "intercept/memory/engine/swap/move/digest_ptx.h"
#include "intercept/resolve/real.h"

#define PARTS 4096u                  /* of a launch: 256 MiB */
#define CU_MEMHOSTALLOC_DEVICEMAP 2u /* cuda.h 13.0 */

void pace_add(struct pace *pace, uint64_t bytes, CUevent begun, CUevent done)
{
    float ms;
    if (!bytes || !real(cuEventElapsedTime) || real(cuEventElapsedTime)(&ms, begun, done) != CUDA_SUCCESS)
        return;
    pace->bytes += bytes;
    pace->ns += (double)ms * 1e6;
}

/* Memory that goes with the context. */
static bool make_lists(struct digester *digester)
{
    void *lists = NULL;
    if (digester->parts)
        return true;
    if (!real(cuMemHostAlloc) ||
        real(cuMemHostAlloc)(&lists, PARTS * (sizeof(struct digest_part) + sizeof(struct digest)),
                             CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
        return false;
    digester->parts = lists;
    digester->sums = (struct digest *)(void *)(digester->parts + PARTS);
    return true;
}

/* Compute so many parts, and wait. Page-locked memory has the same address on the GPU wherever memory can be mapped at
 * all (cuda.h 13.0, unified addressing). */
static bool launch(struct swap_tools *tools, uint32_t parts)
{
    struct digester *digester = &tools->digester;
    CUdeviceptr from = (CUdeviceptr)(uintptr_t)digester->parts, to = (CUdeviceptr)(uintptr_t)digester->sums;
    void *arguments[] = {&from, &to};
    bool is_timed = real(cuEventRecord)(tools->digests_begun, tools->digests) == CUDA_SUCCESS;
    if (real(cuLaunchKernel)(digester->function, parts, 1, 1, DIGEST_THREADS, 1, 1, 0, tools->digests,
                             arguments, NULL) != CUDA_SUCCESS)
        return false;
    is_timed = is_timed && real(cuEventRecord)(tools->digests_done, tools->digests) == CUDA_SUCCESS;
    if (real(cuStreamSynchronize)(tools->digests) != CUDA_SUCCESS)
        return false;
    if (is_timed)
        pace_add(&digester->pace, digester->bytes, tools->digests_begun, tools->digests_done);
    return true;
}

/* A driver may load a kernel's code at its first launch, so that is part of loading it. */
static bool try_out(struct swap_tools *tools)
{
    tools->digester.parts[0] = (struct digest_part){0};
    digester_start(tools);
    return launch(tools, 1);
}

bool digester_load(struct swap_tools *tools)
{
    struct digester *digester = &tools->digester;
    if (digester->module)
        return true;
    if (!real(cuModuleLoadData) || !real(cuModuleGetFunction) || !real(cuModuleUnload) ||
        !make_lists(digester) || real(cuModuleLoadData)(&digester->module, digest_ptx) != CUDA_SUCCESS) {
        digester->module = NULL;
        return false;
    }
    if (real(cuModuleGetFunction)(&digester->function, digester->module, DIGEST_KERNEL) == CUDA_SUCCESS &&
        try_out(tools))
        return true;
    digester_unload(tools);
    return false;
}

bool digester_unload(struct swap_tools *tools)
{
    CUmodule module = tools->digester.module;
    tools->digester.module = NULL;
    return module && real(cuModuleUnload)(module) == CUDA_SUCCESS;
}

void digester_start(struct swap_tools *tools)
{
    tools->digester.count = 0;
    tools->digester.bytes = 0;
}

/* Launch what waits, and add the parts' sums up. */
static bool flush(struct swap_tools *tools)
{
    struct digester *digester = &tools->digester;
    if (!digester->count)
        return true;
    if (!launch(tools, digester->count))
        return false;
    for (uint32_t i = 0; i < digester->count; i++) {
        struct digest *digest = (struct digest *)(uintptr_t)digester->parts[i].owner;
        digest->words[0] += digester->sums[i].words[0];
        digest->words[1] += digester->sums[i].words[1];
    }
    digester_start(tools);
    return true;
}

bool digester_add(struct swap_tools *tools, CUdeviceptr address, uint64_t bytes, struct digest *digest)
{
    struct digester *digester = &tools->digester;
    *digest = (struct digest){0};
    for (uint64_t i = 0; i < digest_part_count(bytes); i++) {
        if (digester->count == PARTS && !flush(tools))
            return false;
        struct digest_part part = digest_part(address, bytes, i);
        part.owner = (uintptr_t)digest;
        digester->bytes += part.pairs * 16;
        digester->parts[digester->count++] = part;
    }
    return true;
}

bool digester_finish(struct swap_tools *tools)
{
    return flush(tools);
}
