/* rmm_pool - RMM's pool_memory_resource: half of the wanted memory at first, then each time as much again as there is, or half of
 * that, and so on down to what is needed. What it has it keeps to its end. */
#include "heap.h"
#include "workload.h"

#define ALIGNMENT ((size_t)256)

static struct heap heap;
static size_t pool_bytes;

static struct upstream_block {
    CUdeviceptr at;
    size_t bytes;
} upstream[64];
static unsigned upstream_count;

static size_t round_to_alignment(size_t bytes)
{
    return round_up(bytes, ALIGNMENT);
}

static bool splits(const struct heap *of, size_t bytes, size_t rest)
{
    (void)of;
    (void)bytes;
    (void)rest;
    return true;
}

static CUresult from_upstream(size_t bytes)
{
    CUdeviceptr at;
    CUresult result = cuMemAlloc_v2(&at, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (upstream_count == sizeof(upstream) / sizeof(*upstream))
        gallery_fail("more blocks than expected");
    upstream[upstream_count++] = (struct upstream_block){at, bytes};
    pool_bytes += bytes;
    hold(MEMORY, (ptrdiff_t)bytes);
    heap_add(&heap, at, bytes);
    return CUDA_SUCCESS;
}

static CUresult expand(struct heap *of, size_t bytes)
{
    (void)of;
    size_t attempt = bytes > pool_bytes ? bytes : pool_bytes;
    for (;;) {
        CUresult result = from_upstream(attempt);
        if (result != CUDA_ERROR_OUT_OF_MEMORY || attempt == bytes)
            return result;
        attempt = attempt / 2 > bytes ? attempt / 2 : bytes;
    }
}

static const struct heap_rules rules = {.round = round_to_alignment, .take = expand, .splits = splits};

static CUresult alloc(struct tensor *tensor)
{
    return heap_alloc(&heap, tensor->bytes, &tensor->at);
}

static void release(struct tensor *tensor)
{
    heap_free(&heap, tensor->at);
}

static void end_pool(void)
{
    for (unsigned i = 0; i < upstream_count; i++) {
        MUST(cuMemFree_v2(upstream[i].at));
        hold(MEMORY, -(ptrdiff_t)upstream[i].bytes);
    }
}

int main(int argument_count, char **words)
{
    gallery_begin(argument_count, words);
    heap.rules = &rules;
    if (from_upstream(round_up(wanted_bytes / 2, 2 * MIB)) != CUDA_SUCCESS)
        gallery_refused();
    train(&(struct allocator){alloc, release, NULL});
    end_pool();
    return gallery_end();
}
