/* torch_heaps.c - see torch_heaps.h. */
#include "torch_heaps.h"

#include "cuda/runtime_prototypes.h"

#define SMALL (MIB)
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_FROM (10 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define UNIT ((size_t)512)
/* garbage_collection_threshold:0.8, as people set it against fragmentation. */
#define COLLECT_ABOVE(total) ((total) / 10 * 8)
#define HEAPS_MOST 8
#define EXPORTED_MOST 64

static struct torch_heaps *all[HEAPS_MOST];
static unsigned heaps_count;
static CUdeviceptr exported[EXPORTED_MOST];
static unsigned exported_count;

static void must(cudaError_t error, const char *call)
{
    if (error != cudaSuccess)
        gallery_fail("%s answered %d, %s", call, (int)error, cudaGetErrorName(error));
}
#define RUNTIME(call) must(call, #call)

static size_t round_to_unit(size_t bytes)
{
    return round_up(bytes < UNIT ? UNIT : bytes, UNIT);
}

static bool splits_small(const struct heap *heap, size_t bytes, size_t rest)
{
    (void)heap;
    (void)bytes;
    return rest >= UNIT;
}

static bool splits_large(const struct heap *heap, size_t bytes, size_t rest)
{
    (void)heap;
    (void)bytes;
    return rest > SMALL;
}

/* Of what kind the segment is, which goes back. */
static enum kind forget_segment(CUdeviceptr segment)
{
    for (unsigned i = 0; i < exported_count; i++)
        if (exported[i] == segment) {
            exported[i] = exported[--exported_count];
            return EXPORTED;
        }
    return MEMORY;
}

static void give(struct heap *heap, CUdeviceptr at, size_t bytes)
{
    (void)heap;
    RUNTIME(cudaFree((void *)at));
    hold(forget_segment(at), -(ptrdiff_t)bytes);
}

static size_t reserved_bytes(void)
{
    return held(MEMORY) + held(EXPORTED);
}

/* Before a new segment: where most of the card is taken, segments that were free for longer than usual go back first. */
static void collect_garbage(void)
{
    size_t available = 0, total = 0;
    RUNTIME(cudaMemGetInfo(&available, &total));
    if (reserved_bytes() <= COLLECT_ABOVE(total))
        return;
    for (unsigned i = 0; i < heaps_count; i++) {
        struct heap *heap = &all[i]->large;
        uint64_t ages = 0, count = 0;
        for (unsigned k = 0; k < heap->count; k++)
            if (heap_segment_is_free(heap, k)) {
                ages += heap->clock - heap->blocks[k].freed_at;
                count++;
            }
        if (count > 0)
            heap_give_back(heap, heap->clock - ages / count);
    }
}

void torch_empty_cache(void)
{
    RUNTIME(cudaDeviceSynchronize());
    for (unsigned i = 0; i < heaps_count; i++) {
        heap_give_back(&all[i]->large, UINT64_MAX);
        heap_give_back(&all[i]->small, UINT64_MAX);
    }
}

static bool is_capturing;

void torch_capture(bool begins)
{
    is_capturing = begins;
}

/* While a stream is captured, cudaMalloc is allowed to a thread that says that it knows. */
static cudaError_t malloc_relaxed(void **at, size_t bytes)
{
    int mode = 2; /* cudaStreamCaptureModeRelaxed */
    RUNTIME(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t error = cudaMalloc(at, bytes);
    RUNTIME(cudaThreadExchangeStreamCaptureMode(&mode));
    return error;
}

static CUresult take_segment(struct heap *heap, size_t bytes)
{
    void *at;
    cudaError_t error = malloc_relaxed(&at, bytes);
    if (error == cudaErrorMemoryAllocation && !is_capturing) {
        cudaGetLastError(); /* it is no fault of the next call */
        torch_empty_cache();
        error = malloc_relaxed(&at, bytes);
    }
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    must(error, "cudaMalloc");
    hold(MEMORY, (ptrdiff_t)bytes);
    heap_add(heap, (CUdeviceptr)at, bytes);
    return CUDA_SUCCESS;
}

static CUresult take_small(struct heap *heap, size_t bytes)
{
    (void)bytes;
    return take_segment(heap, SMALL_SEGMENT);
}

static CUresult take_large(struct heap *heap, size_t bytes)
{
    collect_garbage();
    return take_segment(heap, bytes < LARGE_FROM ? LARGE_SEGMENT : round_up(bytes, 2 * MIB));
}

static const struct heap_rules small_rules = {
    .round = round_to_unit, .take = take_small, .splits = splits_small, .give = give};
static const struct heap_rules large_rules = {
    .round = round_to_unit, .take = take_large, .splits = splits_large, .give = give};

void torch_heaps_begin(struct torch_heaps *heaps)
{
    heaps->small.rules = &small_rules;
    heaps->large.rules = &large_rules;
    if (heaps_count == HEAPS_MOST)
        gallery_fail("more than %d pools", HEAPS_MOST);
    all[heaps_count++] = heaps;
}

static struct heap *heap_of(struct torch_heaps *heaps, const struct tensor *tensor)
{
    return tensor->bytes <= SMALL ? &heaps->small : &heaps->large;
}

CUresult torch_alloc(struct torch_heaps *heaps, struct tensor *tensor)
{
    return heap_alloc(heap_of(heaps, tensor), tensor->bytes, &tensor->at);
}

void torch_free(struct torch_heaps *heaps, struct tensor *tensor)
{
    heap_free(heap_of(heaps, tensor), tensor->at);
}

/* Segments are as cudaMalloc gave them, so the driver knows where they begin. */
CUdeviceptr torch_export(const struct tensor *tensor)
{
    CUdeviceptr segment;
    size_t bytes;
    MUST(cuMemGetAddressRange_v2(&segment, &bytes, tensor->at));
    for (unsigned i = 0; i < exported_count; i++)
        if (exported[i] == segment)
            return segment;
    if (exported_count == EXPORTED_MOST)
        gallery_fail("more than %d segments given away", EXPORTED_MOST);
    exported[exported_count++] = segment;
    hold(MEMORY, -(ptrdiff_t)bytes);
    hold(EXPORTED, (ptrdiff_t)bytes);
    return segment;
}
