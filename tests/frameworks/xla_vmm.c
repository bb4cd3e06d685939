/* xla_vmm - XLA's VMM allocator: each buffer is physical memory of its own that network cards may reach, rounded to what the driver
 * recommends, at addresses that are aligned to that. */
#include "vmm.h"
#include "workload.h"

static const struct wishes wishes = {.fallback = CU_MEM_HANDLE_TYPE_NONE, .rdma = true};

static struct buffer {
    CUdeviceptr at;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
} buffers[2 * TENSORS_MOST];
static unsigned count;

static CUresult alloc(struct tensor *tensor)
{
    CUmemAllocationProp properties = vmm_properties(&wishes);
    const size_t unit = vmm_granularity(&properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    struct buffer *buffer = &buffers[count];
    buffer->bytes = round_up(tensor->bytes, unit);
    CUresult result = cuMemCreate(&buffer->handle, buffer->bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    MUST(cuMemAddressReserve(&buffer->at, buffer->bytes, unit, 0, 0));
    vmm_map(buffer->at, buffer->bytes, buffer->handle);
    hold(MEMORY, (ptrdiff_t)buffer->bytes);
    tensor->at = buffer->at;
    count++;
    return CUDA_SUCCESS;
}

static void release(struct tensor *tensor)
{
    unsigned i = 0;
    while (buffers[i].at != tensor->at)
        i++;
    const struct buffer buffer = buffers[i];
    buffers[i] = buffers[--count];
    MUST(cuMemUnmap(buffer.at, buffer.bytes));
    MUST(cuMemRelease(buffer.handle));
    MUST(cuMemAddressFree(buffer.at, buffer.bytes));
    hold(MEMORY, -(ptrdiff_t)buffer.bytes);
}

int main(int argument_count, char **words)
{
    gallery_begin(argument_count, words);
    train(&(struct allocator){alloc, release, NULL});
    return gallery_end();
}
