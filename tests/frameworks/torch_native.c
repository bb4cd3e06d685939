/* torch_native - PyTorch's native caching allocator: segments of cudaMalloc, split and joined, collected above a threshold; where
 * the driver has no more, all that is cached goes back and it asks once more. */
#include "torch_heaps.h"
#include "workload.h"

static struct torch_heaps heaps;

static CUresult alloc(struct tensor *tensor)
{
    return torch_alloc(&heaps, tensor);
}

static void release(struct tensor *tensor)
{
    torch_free(&heaps, tensor);
}

int main(int argument_count, char **words)
{
    gallery_begin(argument_count, words);
    torch_heaps_begin(&heaps);
    train(&(struct allocator){alloc, release, torch_empty_cache});
    return gallery_end();
}
