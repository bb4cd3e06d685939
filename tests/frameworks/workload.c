/* workload.c - see workload.h. */
#include "workload.h"

/* Bytes of tensors as models have them: much in large ones, many small ones. The multiples are odd, so that rests are left over. */
static size_t some_size(void)
{
    switch (up_to(8)) {
    case 0:
        return (1 + up_to(64)) * 512;
    case 1:
        return (1 + up_to(512)) * 2 * KIB;
    case 2:
    case 3:
        return MIB + up_to(300) * 10 * KIB;
    case 4:
    case 5:
        return 4 * MIB + up_to(500) * 10 * KIB;
    default:
        return 10 * MIB + up_to(600) * 10 * KIB;
    }
}

void tensors_grow(struct tensors *tensors, const struct allocator *allocator, size_t until_bytes)
{
    for (unsigned failures = 0;
         tensors->bytes < until_bytes && tensors->count < TENSORS_MOST && failures < 3;) {
        struct tensor *tensor = &tensors->list[tensors->count];
        size_t rest = until_bytes - tensors->bytes, size = round_up(some_size(), 512);
        *tensor = (struct tensor){.bytes = size < rest ? size : round_up(rest, 512)};
        CUresult result = allocator->alloc(tensor);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            gallery_refused();
            failures++;
            continue;
        }
        gallery_must(result, "the allocator");
        tensor_fill(tensor);
        tensors->bytes += tensor->bytes;
        tensors->count++;
    }
}

void tensors_check(const struct tensors *tensors)
{
    for (unsigned i = 0; i < tensors->count; i++)
        tensor_check(&tensors->list[i]);
}

void tensors_drop(struct tensors *tensors, const struct allocator *allocator, unsigned step)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < tensors->count; i++) {
        struct tensor tensor = tensors->list[i];
        if (i % step == 0) {
            allocator->free(&tensor);
            tensors->bytes -= tensor.bytes;
        } else {
            tensors->list[kept++] = tensor;
        }
    }
    tensors->count = kept;
}

void train(const struct allocator *allocator)
{
    static struct tensors weights, activations;
    tensors_grow(&weights, allocator, wanted_bytes / 2);
    tensors_grow(&activations, allocator, wanted_bytes / 2);
    gallery_pause("full");
    tensors_check(&weights);
    tensors_check(&activations);
    tensors_drop(&activations, allocator, 2);
    tensors_grow(&activations, allocator, wanted_bytes / 3);
    gallery_pause("half");
    tensors_check(&weights);
    tensors_check(&activations);
    tensors_drop(&activations, allocator, 1);
    if (allocator->empty)
        allocator->empty();
    gallery_pause("empty");
    tensors_check(&weights);
    tensors_drop(&weights, allocator, 1);
    if (allocator->empty)
        allocator->empty();
}

CUresult linear_alloc(struct tensor *tensor)
{
    const size_t bytes = round_up(tensor->bytes, 2 * MIB);
    CUresult result = cuMemAlloc_v2(&tensor->at, bytes);
    if (result == CUDA_SUCCESS)
        hold(MEMORY, (ptrdiff_t)bytes);
    return result;
}

void linear_free(struct tensor *tensor)
{
    MUST(cuMemFree_v2(tensor->at));
    hold(MEMORY, -(ptrdiff_t)round_up(tensor->bytes, 2 * MIB));
}
