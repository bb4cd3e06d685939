/* vllm_sleep - vLLM's sleep mode: each allocation is one of cuMemCreate at addresses of its own, with FABRIC where that can be had,
 * else by descriptor; asleep, the addresses stay and the memory is gone.
 *
 * HOW: "1": weights are copied to pinned memory of the host before, and the cache is thrown away. "2": both are thrown away, and the
 * weights are loaded anew. */
#include "vmm.h"
#include "workload.h"

#include <string.h>

static const struct wishes wishes = {
    .fallback = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .fabric = true, .rdma = true};

/* What belongs to the tensor of the same number. */
static struct weight_memory {
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    void *copy;
} memory[TENSORS_MOST];

static struct tensors weights, cache;

static CUresult create_and_map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp properties = vmm_properties(&wishes);
    CUresult result = vmm_create(handle, bytes, &wishes, &properties);
    if (result != CUDA_SUCCESS)
        return result;
    vmm_map(at, bytes, *handle);
    hold(MEMORY, (ptrdiff_t)bytes);
    return CUDA_SUCCESS;
}

static void unmap_and_release(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
    MUST(cuMemUnmap(at, bytes));
    MUST(cuMemRelease(handle));
    hold(MEMORY, -(ptrdiff_t)bytes);
}

/* Both lists grow at their ends only, so a tensor's place follows from its address. */
static struct weight_memory *memory_of(CUdeviceptr at)
{
    for (unsigned i = 0; i < weights.count; i++)
        if (weights.list[i].at == at)
            return &memory[i];
    for (unsigned i = 0; i < cache.count; i++)
        if (cache.list[i].at == at)
            return &memory[TENSORS_MOST / 2 + i];
    gallery_fail("memory that nobody has");
}

static CUresult alloc_at(struct tensor *tensor, struct weight_memory *of)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    of->bytes = round_up(tensor->bytes, vmm_granularity(&properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    MUST(cuMemAddressReserve(&tensor->at, of->bytes, 0, 0, 0));
    CUresult result = create_and_map(tensor->at, of->bytes, &of->handle);
    if (result != CUDA_SUCCESS)
        MUST(cuMemAddressFree(tensor->at, of->bytes));
    return result;
}

static CUresult alloc_weight(struct tensor *tensor)
{
    return alloc_at(tensor, &memory[weights.count]);
}

static CUresult alloc_cache(struct tensor *tensor)
{
    return alloc_at(tensor, &memory[TENSORS_MOST / 2 + cache.count]);
}

static void release(struct tensor *tensor)
{
    struct weight_memory *of = memory_of(tensor->at);
    unmap_and_release(tensor->at, of->bytes, of->handle);
    MUST(cuMemAddressFree(tensor->at, of->bytes));
}

static const struct allocator weight_allocator = {alloc_weight, release, NULL};
static const struct allocator cache_allocator = {alloc_cache, release, NULL};

static void back_up(const struct tensor *tensor, struct weight_memory *of)
{
    MUST(cuMemHostAlloc(&of->copy, of->bytes, 0));
    hold(PINNED, (ptrdiff_t)of->bytes);
    MUST(cuMemcpyDtoH_v2(of->copy, tensor->at, of->bytes));
}

static void bring_back(const struct tensor *tensor, struct weight_memory *of)
{
    MUST(cuMemcpyHtoD_v2(tensor->at, of->copy, of->bytes));
    MUST(cuMemFreeHost(of->copy));
    hold(PINNED, -(ptrdiff_t)of->bytes);
}

static void sleep_all(bool keeps_weights)
{
    for (unsigned i = 0; i < weights.count; i++) {
        if (keeps_weights)
            back_up(&weights.list[i], &memory[i]);
        unmap_and_release(weights.list[i].at, memory[i].bytes, memory[i].handle);
    }
    for (unsigned i = 0; i < cache.count; i++) {
        struct weight_memory *of = memory_of(cache.list[i].at);
        unmap_and_release(cache.list[i].at, of->bytes, of->handle);
    }
}

/* There was room for it before, so there is again. */
static void wake_up(struct tensors *tensors, bool kept)
{
    for (unsigned i = 0; i < tensors->count; i++) {
        struct tensor *tensor = &tensors->list[i];
        struct weight_memory *of = memory_of(tensor->at);
        gallery_must(create_and_map(tensor->at, of->bytes, &of->handle), "waking up");
        if (kept)
            bring_back(tensor, of);
        else
            tensor_fill(tensor);
    }
}

int main(int argument_count, char **words)
{
    gallery_begin(argument_count, words);
    const bool keeps_weights = strcmp(how, "1") == 0;
    tensors_grow(&weights, &weight_allocator, wanted_bytes / 2);
    tensors_grow(&cache, &cache_allocator, wanted_bytes / 2);
    gallery_pause("full");
    tensors_check(&weights);
    tensors_check(&cache);
    sleep_all(keeps_weights);
    gallery_pause("asleep");
    wake_up(&weights, keeps_weights);
    gallery_pause("weights");
    wake_up(&cache, false);
    gallery_pause("awake");
    tensors_check(&weights);
    tensors_check(&cache);
    tensors_drop(&cache, &cache_allocator, 1);
    tensors_drop(&weights, &weight_allocator, 1);
    return gallery_end();
}
