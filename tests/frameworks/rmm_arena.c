/* rmm_arena - RMM's arena_memory_resource: one region of the card, half of what is free, from which each stream's arena takes
 * superblocks of a MiB or more. Where an arena finds nothing, all arenas give their empty superblocks back, and it asks once more. */
#include "heap.h"
#include "workload.h"

#define ALIGNMENT ((size_t)256)
#define SUPERBLOCK MIB
#define ARENAS 2

static struct heap region;
static struct heap arenas[ARENAS];
static CUstream streams[ARENAS];

static size_t round_to_alignment(size_t bytes)
{
    return round_up(bytes, ALIGNMENT);
}

static bool splits_region(const struct heap *heap, size_t bytes, size_t rest)
{
    (void)heap;
    (void)bytes;
    return rest >= SUPERBLOCK;
}

static bool splits_arena(const struct heap *heap, size_t bytes, size_t rest)
{
    (void)heap;
    (void)bytes;
    (void)rest;
    return true;
}

static size_t superblock_bytes(size_t bytes)
{
    return bytes < SUPERBLOCK ? SUPERBLOCK : bytes;
}

static void give_superblock(struct heap *arena, CUdeviceptr at, size_t bytes)
{
    (void)arena;
    (void)bytes;
    heap_free(&region, at);
}

static void give_back_all(void)
{
    for (unsigned i = 0; i < ARENAS; i++) {
        MUST(cuStreamSynchronize(streams[i]));
        heap_give_back(&arenas[i], UINT64_MAX);
    }
}

static CUresult take_superblock(struct heap *arena, size_t bytes)
{
    CUdeviceptr at;
    bytes = superblock_bytes(bytes);
    CUresult result = heap_alloc(&region, bytes, &at);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        give_back_all();
        result = heap_alloc(&region, bytes, &at);
    }
    if (result == CUDA_SUCCESS)
        heap_add(arena, at, bytes);
    return result;
}

static const struct heap_rules region_rules = {.round = round_to_alignment, .splits = splits_region};
static const struct heap_rules arena_rules = {
    .round = round_to_alignment, .take = take_superblock, .splits = splits_arena, .give = give_superblock};

/* Large tensors are one stream's, small ones the other's. */
static struct heap *arena_of(const struct tensor *tensor)
{
    return &arenas[tensor->bytes < 4 * MIB];
}

static CUresult alloc(struct tensor *tensor)
{
    return heap_alloc(arena_of(tensor), tensor->bytes, &tensor->at);
}

static void release(struct tensor *tensor)
{
    heap_free(arena_of(tensor), tensor->at);
}

int main(int argument_count, char **words)
{
    size_t available, total;
    CUdeviceptr at;
    gallery_begin(argument_count, words);
    MUST(cuMemGetInfo_v2(&available, &total));
    const size_t bytes = available / 2 / (2 * MIB) * (2 * MIB);
    region.rules = &region_rules;
    MUST(cuMemAlloc_v2(&at, bytes));
    hold(MEMORY, (ptrdiff_t)bytes);
    heap_add(&region, at, bytes);
    for (unsigned i = 0; i < ARENAS; i++) {
        arenas[i].rules = &arena_rules;
        MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    train(&(struct allocator){alloc, release, give_back_all});
    MUST(cuMemFree_v2(at));
    hold(MEMORY, -(ptrdiff_t)bytes);
    for (unsigned i = 0; i < ARENAS; i++)
        MUST(cuStreamDestroy_v2(streams[i]));
    return gallery_end();
}
