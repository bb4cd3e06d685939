/* rmm_async - RMM's cuda_async_memory_resource: a pool of its own, made for hardware decompression where the driver is of CUDA 12.8
 * or later, whatever the card can; it keeps all that was freed. An allocation of the first size is made and freed at once.
 *
 * HOW: "" or "fd", "fabric": with handles by which others could import it, though nobody does. */
#include "vmm.h"
#include "workload.h"

#include <string.h>

#define HW_DECOMPRESS 2 /* CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS of cuda.h */
#define HAS_HW_DECOMPRESS 12080

static CUmemoryPool pool;
static CUstream stream;

static void look_at_pool(void)
{
    cuuint64_t reserved, used;
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    hold(MEMORY, (ptrdiff_t)used - (ptrdiff_t)held(MEMORY));
    hold(KEPT, (ptrdiff_t)(reserved - used) - (ptrdiff_t)held(KEPT));
}

static CUresult alloc(struct tensor *tensor)
{
    CUresult result = cuMemAllocFromPoolAsync(&tensor->at, tensor->bytes, pool, stream);
    MUST(cuStreamSynchronize(stream));
    look_at_pool();
    return result;
}

static void release(struct tensor *tensor)
{
    MUST(cuMemFreeAsync(tensor->at, stream));
    MUST(cuStreamSynchronize(stream));
    look_at_pool();
}

static CUmemAllocationHandleType handle_types(void)
{
    if (strcmp(how, "fd") == 0)
        return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (strcmp(how, "fabric") == 0 && device_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED))
        return CU_MEM_HANDLE_TYPE_FABRIC;
    return CU_MEM_HANDLE_TYPE_NONE;
}

static void begin_pool(void)
{
    int version;
    cuuint64_t keep = UINT64_MAX;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = handle_types(),
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    MUST(cuDriverGetVersion(&version));
    if (version >= HAS_HW_DECOMPRESS)
        properties.usage = HW_DECOMPRESS;
    MUST(cuMemPoolCreate(&pool, &properties));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

/* The pool's first memory. */
static void prime_pool(void)
{
    struct tensor first = {.bytes = wanted_bytes / 2};
    if (alloc(&first) == CUDA_SUCCESS)
        release(&first);
    else
        gallery_refused();
}

int main(int argument_count, char **words)
{
    gallery_begin(argument_count, words);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    begin_pool();
    prime_pool();
    train(&(struct allocator){alloc, release, NULL});
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemPoolDestroy(pool));
    MUST(cuStreamDestroy_v2(stream));
    return gallery_end();
}
