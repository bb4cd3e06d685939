/* pinned - page-locked memory of the host beside memory of the card, as PyTorch's caching host allocator and DeepSpeed make it, with
 * copies under way in both directions.
 *
 * HOW: "torch": blocks of a power of two by cuMemHostAlloc, used again once an event behind their last copy is reached.
 *      "register": PyTorch's pinned_use_cuda_host_register: memory of the program's own is touched and then registered.
 *      "deepspeed": one aligned buffer for all parameters that are offloaded, registered as a whole, parts of which are copied. */
#include "workload.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS_MOST 64
#define PAGE ((size_t)4096)

static struct pinned_block {
    void *at;
    size_t bytes;
    bool is_used;
    CUevent last_copy;
} blocks[BLOCKS_MOST];
static unsigned block_count;
static CUstream stream;

static size_t power_of_two(size_t bytes)
{
    size_t power = PAGE;
    while (power < bytes)
        power *= 2;
    return power;
}

static void register_memory(struct pinned_block *block)
{
    if (posix_memalign(&block->at, PAGE, block->bytes) != 0)
        gallery_fail("no memory of the host");
    memset(block->at, 0, block->bytes);
    MUST(cuMemHostRegister_v2(block->at, block->bytes, 0));
}

static struct pinned_block *new_block(size_t bytes)
{
    if (block_count == BLOCKS_MOST)
        gallery_fail("more than %d pinned blocks", BLOCKS_MOST);
    struct pinned_block *block = &blocks[block_count++];
    block->bytes = bytes;
    if (strcmp(how, "torch") == 0)
        MUST(cuMemHostAlloc(&block->at, bytes, 0));
    else
        register_memory(block);
    MUST(cuEventCreate(&block->last_copy, CU_EVENT_DISABLE_TIMING));
    hold(PINNED, (ptrdiff_t)bytes);
    return block;
}

static struct pinned_block *get_block(size_t bytes)
{
    bytes = power_of_two(bytes);
    for (unsigned i = 0; i < block_count; i++) {
        struct pinned_block *block = &blocks[i];
        if (!block->is_used && block->bytes == bytes && cuEventQuery(block->last_copy) == CUDA_SUCCESS)
            return block;
    }
    return new_block(bytes);
}

static void end_blocks(void)
{
    for (unsigned i = 0; i < block_count; i++) {
        MUST(cuEventDestroy_v2(blocks[i].last_copy));
        if (strcmp(how, "torch") == 0) {
            MUST(cuMemFreeHost(blocks[i].at));
        } else {
            MUST(cuMemHostUnregister(blocks[i].at));
            free(blocks[i].at);
        }
        hold(PINNED, -(ptrdiff_t)blocks[i].bytes);
    }
    block_count = 0;
}

/* Batches come through pinned blocks on a stream of their own. */
static void load_batches(struct tensors *tensors)
{
    for (unsigned i = 0; i < tensors->count; i++) {
        struct tensor *tensor = &tensors->list[i];
        struct pinned_block *block = get_block(tensor->bytes);
        tensor_expect(tensor, tensor->seed + 1000);
        tensor_content(tensor, block->at);
        block->is_used = true;
        MUST(cuMemcpyHtoDAsync_v2(tensor->at, block->at, tensor->bytes, stream));
        MUST(cuEventRecord(block->last_copy, stream));
        block->is_used = false;
        MUST(cuStreamSynchronize(stream));
    }
}

/* Optimizer states live on the host, and each step takes a part to the card and back. */
static void step_offloaded(const struct tensors *tensors, struct pinned_block *states, bool to_host)
{
    size_t offset = 0;
    for (unsigned i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = &tensors->list[i];
        char *place = (char *)states->at + offset;
        if (to_host)
            MUST(cuMemcpyDtoHAsync_v2(place, tensor->at, tensor->bytes, stream));
        else
            MUST(cuMemcpyHtoDAsync_v2(tensor->at, place, tensor->bytes, stream));
        offset += tensor->bytes;
    }
    MUST(cuStreamSynchronize(stream));
}

static CUresult alloc(struct tensor *tensor)
{
    CUresult result = cuMemAlloc_v2(&tensor->at, round_up(tensor->bytes, 2 * MIB));
    if (result == CUDA_SUCCESS)
        hold(MEMORY, (ptrdiff_t)round_up(tensor->bytes, 2 * MIB));
    return result;
}

static void release(struct tensor *tensor)
{
    MUST(cuMemFree_v2(tensor->at));
    hold(MEMORY, -(ptrdiff_t)round_up(tensor->bytes, 2 * MIB));
}

static const struct allocator allocator = {alloc, release, NULL};

static void work_offloaded(struct tensors *tensors)
{
    struct pinned_block *states = new_block(round_up(tensors->bytes, PAGE));
    step_offloaded(tensors, states, true);
    gallery_pause("full");
    tensors_check(tensors);
    for (unsigned i = 0; i < tensors->count; i++)
        MUST(cuMemsetD8_v2(tensors->list[i].at, 0, tensors->list[i].bytes));
    gallery_pause("offloaded");
    step_offloaded(tensors, states, false);
}

static void work_loaded(struct tensors *tensors)
{
    load_batches(tensors);
    gallery_pause("full");
    tensors_check(tensors);
    load_batches(tensors);
    gallery_pause("loaded");
}

int main(int argument_count, char **words)
{
    static struct tensors tensors;
    gallery_begin(argument_count, words);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    tensors_grow(&tensors, &allocator, wanted_bytes);
    if (strcmp(how, "deepspeed") == 0)
        work_offloaded(&tensors);
    else
        work_loaded(&tensors);
    tensors_check(&tensors);
    tensors_drop(&tensors, &allocator, 1);
    end_blocks();
    MUST(cuStreamDestroy_v2(stream));
    return gallery_end();
}
