/* torch_async - PyTorch's cudaMallocAsync backend: the device's own pool, told to keep what was freed. A capture's allocations
 * become nodes of its graph. Where there is no memory, all streams are waited for and the pool is trimmed. */
#include "workload.h"

#define CAPTURED_BYTES (8 * MIB)

static CUmemoryPool pool;
static CUstream stream, side;

/* What the pool has taken from the driver, of which tensors use a part. */
static void look_at_pool(void)
{
    cuuint64_t reserved, used;
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    hold(MEMORY, (ptrdiff_t)used - (ptrdiff_t)held(MEMORY));
    hold(KEPT, (ptrdiff_t)(reserved - used) - (ptrdiff_t)held(KEPT));
}

static void empty_cache(void)
{
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolTrimTo(pool, 0));
    look_at_pool();
}

static CUresult alloc(struct tensor *tensor)
{
    CUresult result = cuMemAllocAsync(&tensor->at, tensor->bytes, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        empty_cache();
        result = cuMemAllocAsync(&tensor->at, tensor->bytes, stream);
    }
    MUST(cuStreamSynchronize(stream));
    look_at_pool();
    return result;
}

/* Used on a second stream as well: the free waits for that one. */
static void release(struct tensor *tensor)
{
    CUevent used;
    MUST(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(used, side));
    MUST(cuStreamWaitEvent(stream, used, 0));
    MUST(cuEventDestroy_v2(used));
    MUST(cuMemFreeAsync(tensor->at, stream));
    MUST(cuStreamSynchronize(stream));
    look_at_pool();
}

/* A graph that allocates, copies there and back, and frees. */
static CUgraphExec capture(const struct tensor *tensor)
{
    CUgraph made;
    CUgraphExec exec;
    CUdeviceptr between;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuMemAllocAsync(&between, tensor->bytes, stream));
    MUST(cuMemcpyDtoDAsync_v2(between, tensor->at, tensor->bytes, stream));
    MUST(cuMemcpyDtoDAsync_v2(tensor->at, between, tensor->bytes, stream));
    MUST(cuMemFreeAsync(between, stream));
    MUST(cuStreamEndCapture(stream, &made));
    MUST(cuGraphInstantiateWithFlags(&exec, made, GRAPH_FREES_AT_LAUNCH));
    MUST(cuGraphDestroy(made));
    return exec;
}

static size_t graph_bytes(void)
{
    CUdevice device;
    cuuint64_t reserved;
    MUST(cuCtxGetDevice(&device));
    MUST(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    return reserved;
}

static void use_graph(void)
{
    CUdevice device;
    struct tensor tensor = {.bytes = CAPTURED_BYTES};
    if (alloc(&tensor) != CUDA_SUCCESS) {
        gallery_refused();
        return;
    }
    CUgraphExec exec = capture(&tensor);
    tensor_fill(&tensor);
    MUST(cuCtxSynchronize());
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    hold(GRAPH, (ptrdiff_t)graph_bytes());
    gallery_pause("captured");
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    tensor_check(&tensor);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuCtxGetDevice(&device));
    MUST(cuDeviceGraphMemTrim(device));
    hold(GRAPH, -(ptrdiff_t)held(GRAPH));
    release(&tensor);
    empty_cache();
}

int main(int argument_count, char **words)
{
    CUdevice device;
    cuuint64_t keep = UINT64_MAX;
    gallery_begin(argument_count, words);
    MUST(cuCtxGetDevice(&device));
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    use_graph();
    train(&(struct allocator){alloc, release, empty_cache});
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuStreamDestroy_v2(side));
    return gallery_end();
}
