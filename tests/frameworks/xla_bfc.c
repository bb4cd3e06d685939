/* xla_bfc - XLA's BFC allocator as JAX has it: three quarters of what is free on the card in one allocation at the start, or nine
 * tenths of that, and so on, where the driver refuses; chunks are split where the rest is large, or as large as the chunk. */
#include "heap.h"
#include "workload.h"

#define UNIT ((size_t)256)
#define WASTE_MOST (128 * MIB)
#define LEAST MIB

static struct heap heap;

static size_t round_to_unit(size_t bytes)
{
    return round_up(bytes, UNIT);
}

static bool splits(const struct heap *of, size_t bytes, size_t rest)
{
    (void)of;
    return rest >= bytes || rest >= WASTE_MOST;
}

static const struct heap_rules rules = {.round = round_to_unit, .splits = splits};

static CUresult alloc(struct tensor *tensor)
{
    return heap_alloc(&heap, tensor->bytes, &tensor->at);
}

static void release(struct tensor *tensor)
{
    heap_free(&heap, tensor->at);
}

static CUdeviceptr preallocate(size_t *bytes)
{
    size_t available, total;
    CUdeviceptr at;
    MUST(cuMemGetInfo_v2(&available, &total));
    for (*bytes = available / 4 * 3 / (2 * MIB) * (2 * MIB); *bytes > LEAST;
         *bytes = *bytes / 10 * 9 / (2 * MIB) * (2 * MIB)) {
        CUresult result = cuMemAlloc_v2(&at, *bytes);
        if (result == CUDA_SUCCESS)
            return at;
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            gallery_must(result, "cuMemAlloc");
        gallery_refused();
    }
    gallery_fail("nothing can be preallocated");
}

int main(int argument_count, char **words)
{
    size_t bytes;
    gallery_begin(argument_count, words);
    CUdeviceptr at = preallocate(&bytes);
    hold(MEMORY, (ptrdiff_t)bytes);
    heap.rules = &rules;
    heap_add(&heap, at, bytes);
    train(&(struct allocator){alloc, release, NULL});
    MUST(cuMemFree_v2(at));
    hold(MEMORY, -(ptrdiff_t)bytes);
    return gallery_end();
}
