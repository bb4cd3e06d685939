/* heap.c - blocks in a sorted array: programs of the gallery have some hundreds. */
#include "heap.h"

#include <string.h>

static void insert_block(struct heap *heap, unsigned place, struct block block)
{
    if (heap->count == BLOCKS_MOST)
        gallery_fail("more than %d blocks", BLOCKS_MOST);
    memmove(&heap->blocks[place + 1], &heap->blocks[place], (heap->count - place) * sizeof(block));
    heap->blocks[place] = block;
    heap->count++;
}

static void remove_block(struct heap *heap, unsigned place)
{
    heap->count--;
    memmove(&heap->blocks[place], &heap->blocks[place + 1], (heap->count - place) * sizeof(struct block));
}

/* Whether the block and the one behind it are free neighbours. */
static bool can_join(const struct heap *heap, unsigned place)
{
    if (place + 1 >= heap->count)
        return false;
    const struct block *one = &heap->blocks[place], *two = &heap->blocks[place + 1];
    return !one->is_used && !two->is_used && one->at + one->bytes == two->at &&
           (one->segment == two->segment || heap->rules->joins_segments);
}

static void join(struct heap *heap, unsigned place)
{
    if (can_join(heap, place)) {
        heap->blocks[place].bytes += heap->blocks[place + 1].bytes;
        remove_block(heap, place + 1);
    }
    if (place > 0 && can_join(heap, place - 1)) {
        heap->blocks[place - 1].bytes += heap->blocks[place].bytes;
        heap->blocks[place - 1].freed_at = heap->blocks[place].freed_at;
        remove_block(heap, place);
    }
}

/* Cuts the block in two; the second is as the first. */
static void cut(struct heap *heap, unsigned place, size_t bytes)
{
    struct block rest = heap->blocks[place];
    rest.at += bytes;
    rest.bytes -= bytes;
    heap->blocks[place].bytes = bytes;
    insert_block(heap, place + 1, rest);
}

static unsigned place_of(const struct heap *heap, CUdeviceptr at)
{
    for (unsigned i = 0; i < heap->count; i++)
        if (heap->blocks[i].at <= at && at < heap->blocks[i].at + heap->blocks[i].bytes)
            return i;
    gallery_fail("no block has %llx", (unsigned long long)at);
}

void heap_add(struct heap *heap, CUdeviceptr at, size_t bytes)
{
    unsigned place = heap->count;
    if (heap->rules->joins_segments)
        for (place = 0; place < heap->count && heap->blocks[place].at < at;)
            place++;
    insert_block(
        heap, place,
        (struct block){.at = at, .bytes = bytes, .segment = heap->segments++, .freed_at = heap->clock});
    join(heap, place);
}

void heap_remove(struct heap *heap, CUdeviceptr at, size_t bytes)
{
    unsigned place = place_of(heap, at);
    if (heap->blocks[place].at < at) {
        cut(heap, place, at - heap->blocks[place].at);
        place++;
    }
    if (heap->blocks[place].bytes > bytes)
        cut(heap, place, bytes);
    remove_block(heap, place);
}

size_t heap_free_before(const struct heap *heap, CUdeviceptr at)
{
    for (unsigned i = 0; i < heap->count; i++)
        if (heap->blocks[i].at + heap->blocks[i].bytes == at)
            return heap->blocks[i].is_used ? 0 : heap->blocks[i].bytes;
    return 0;
}

/* The smallest free block that is large enough, the lowest of these; heap->count if there is none. */
static unsigned best_block(const struct heap *heap, size_t bytes)
{
    unsigned best = heap->count;
    for (unsigned i = 0; i < heap->count; i++) {
        const struct block *block = &heap->blocks[i];
        if (!block->is_used && block->bytes >= bytes &&
            (best == heap->count || block->bytes < heap->blocks[best].bytes))
            best = i;
    }
    return best;
}

CUresult heap_alloc(struct heap *heap, size_t bytes, CUdeviceptr *at)
{
    bytes = heap->rules->round(bytes);
    heap->clock++;
    unsigned place = best_block(heap, bytes);
    if (place == heap->count) {
        CUresult result = heap->rules->take ? heap->rules->take(heap, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result != CUDA_SUCCESS)
            return result;
        place = best_block(heap, bytes);
    }
    size_t rest = heap->blocks[place].bytes - bytes;
    if (rest > 0 && heap->rules->splits(heap, bytes, rest))
        cut(heap, place, bytes);
    heap->blocks[place].is_used = true;
    *at = heap->blocks[place].at;
    return CUDA_SUCCESS;
}

void heap_free(struct heap *heap, CUdeviceptr at)
{
    unsigned place = place_of(heap, at);
    heap->blocks[place].is_used = false;
    heap->blocks[place].freed_at = heap->clock;
    join(heap, place);
}

bool heap_segment_is_free(const struct heap *heap, unsigned place)
{
    const struct block *block = &heap->blocks[place];
    return !block->is_used && (place == 0 || block[-1].segment != block->segment) &&
           (place + 1 == heap->count || block[1].segment != block->segment);
}

size_t heap_give_back(struct heap *heap, uint64_t freed_before)
{
    size_t given = 0;
    for (unsigned i = heap->count; i-- > 0;) {
        const struct block block = heap->blocks[i];
        if (!heap_segment_is_free(heap, i) || block.freed_at >= freed_before)
            continue;
        remove_block(heap, i);
        heap->rules->give(heap, block.at, block.bytes);
        given += block.bytes;
    }
    return given;
}
