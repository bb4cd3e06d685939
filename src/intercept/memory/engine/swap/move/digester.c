#include "intercept/memory/engine/swap/move/digester.h"

#include "intercept/memory/engine/swap/extents/extents.h"
#include "intercept/memory/engine/swap/move/digest_cubins.h"
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

/* Compute `parts` parts, and wait. Page-locked memory has the same address on the GPU wherever memory can be mapped at
 * all (cuda.h 13.0, unified addressing). */
static CUresult launch(struct swap_tools *tools, uint32_t parts)
{
    struct digester *digester = &tools->digester;
    CUdeviceptr from = (CUdeviceptr)(uintptr_t)digester->parts, to = (CUdeviceptr)(uintptr_t)digester->sums;
    void *arguments[] = {&from, &to};
    bool is_timed = real(cuEventRecord)(tools->digests_begun, tools->digests) == CUDA_SUCCESS;
    CUresult result = real(cuLaunchKernel)(digester->function, parts, 1, 1, DIGEST_THREADS, 1, 1, 0,
                                           tools->digests, arguments, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    is_timed = is_timed && real(cuEventRecord)(tools->digests_done, tools->digests) == CUDA_SUCCESS;
    result = real(cuStreamSynchronize)(tools->digests);
    if (result == CUDA_SUCCESS && is_timed)
        pace_add(&digester->pace, digester->bytes, tools->digests_begun, tools->digests_done);
    return result;
}

/* A driver may load a kernel's code, or find that it does not run here, at its first launch only. */
static CUresult try_out(struct swap_tools *tools)
{
    tools->digester.parts[0] = (struct digest_part){0};
    digester_start(tools);
    return launch(tools, 1);
}

static CUresult load(struct swap_tools *tools, const void *image)
{
    struct digester *digester = &tools->digester;
    CUresult result = real(cuModuleLoadData)(&digester->module, image);
    if (result != CUDA_SUCCESS) {
        digester->module = NULL;
        return result;
    }
    result = real(cuModuleGetFunction)(&digester->function, digester->module, DIGEST_KERNEL);
    if (result == CUDA_SUCCESS)
        result = try_out(tools);
    if (result != CUDA_SUCCESS)
        digester_unload(tools);
    return result;
}

static unsigned capability_of(CUdevice device)
{
    int major, minor;
    return real(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ==
                       CUDA_SUCCESS &&
                   real(cuDeviceGetAttribute)(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) ==
                       CUDA_SUCCESS
               ? (unsigned)(major * 10 + minor)
               : 0;
}

/* Where no cubin fits, or the driver does not take the one that should, it compiles the PTX. */
bool digester_load(struct swap_tools *tools)
{
    if (tools->digester.module)
        return true;
    if (!real(cuModuleLoadData) || !real(cuModuleGetFunction) || !real(cuModuleUnload) ||
        !make_lists(&tools->digester))
        return false;
    const struct digest_cubin *cubin = digest_cubin_for(digest_cubins, capability_of(tools->device));
    CUresult result = cubin ? load(tools, cubin->image) : CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        result = load(tools, digest_ptx);
    return result == CUDA_SUCCESS;
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
    if (launch(tools, digester->count) != CUDA_SUCCESS)
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
