/* torch_expandable - PyTorch's expandable segments: addresses for nine eighths of the card, once for small and once for large
 * tensors, into which physical memory of 2 or 20 MiB is mapped where it is needed and from which it is taken when it is not.
 *
 * HOW is "share": then a second process maps all pages of a tensor, reads and writes there. */
#include "heap.h"
#include "vmm.h"
#include "workload.h"

#include <string.h>

#define SMALL_MOST (MIB)
#define PAGES_MOST 2048

/* How PyTorch makes them since it shares them by FABRIC too. */
static const struct wishes wishes = {
    .fallback = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .fabric = true, .rdma = true};

static struct segment {
    struct heap heap;
    CUdeviceptr at;
    size_t page_bytes, pages;
    bool is_mapped[PAGES_MOST], is_exported[PAGES_MOST];
    CUmemGenericAllocationHandle handles[PAGES_MOST];
    CUmemAllocationProp properties;
} small, large;

static size_t round_to_unit(size_t bytes)
{
    return round_up(bytes, 512);
}

static bool splits_small(const struct heap *heap, size_t bytes, size_t rest)
{
    (void)heap;
    (void)bytes;
    return rest >= 512;
}

static bool splits_large(const struct heap *heap, size_t bytes, size_t rest)
{
    (void)heap;
    (void)bytes;
    return rest >= 512; /* a rest of an expandable segment is always of use */
}

static void unmap_page(struct segment *segment, size_t page)
{
    MUST(cuMemUnmap(segment->at + page * segment->page_bytes, segment->page_bytes));
    MUST(cuMemRelease(segment->handles[page]));
    hold(segment->is_exported[page] ? EXPORTED : MEMORY, -(ptrdiff_t)segment->page_bytes);
    segment->is_mapped[page] = segment->is_exported[page] = false;
}

/* Every page that lies in a free block as a whole. */
static size_t unmap_free(struct segment *segment)
{
    size_t given = 0;
    MUST(cuCtxSynchronize());
    for (size_t page = 0; page < segment->pages; page++) {
        CUdeviceptr begin = segment->at + page * segment->page_bytes, end = begin + segment->page_bytes;
        if (!segment->is_mapped[page])
            continue;
        for (unsigned i = 0; i < segment->heap.count; i++) {
            const struct block block = segment->heap.blocks[i];
            if (block.is_used || block.at > begin || block.at + block.bytes < end)
                continue;
            heap_remove(&segment->heap, begin, segment->page_bytes);
            unmap_page(segment, page);
            given += segment->page_bytes;
            break;
        }
    }
    return given;
}

static void empty_cache(void)
{
    unmap_free(&small);
    unmap_free(&large);
}

/* All pages are made before the first is mapped; where one cannot be, none is. */
static CUresult map_pages(struct segment *segment, size_t first, size_t count)
{
    for (size_t page = first; page < first + count; page++) {
        CUresult result =
            vmm_create(&segment->handles[page], segment->page_bytes, &wishes, &segment->properties);
        if (result == CUDA_SUCCESS)
            continue;
        while (page-- > first)
            MUST(cuMemRelease(segment->handles[page]));
        return result;
    }
    CUdeviceptr at = segment->at + first * segment->page_bytes;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (size_t page = first; page < first + count; page++) {
        MUST(cuMemMap(segment->at + page * segment->page_bytes, segment->page_bytes, 0,
                      segment->handles[page], 0));
        segment->is_mapped[page] = true;
    }
    MUST(cuMemSetAccess(at, count * segment->page_bytes, &access, 1));
    hold(MEMORY, (ptrdiff_t)(count * segment->page_bytes));
    heap_add(&segment->heap, at, count * segment->page_bytes);
    return CUDA_SUCCESS;
}

/* The lowest place where unmapped pages, behind what is free before them, are enough. */
static CUresult expand(struct segment *segment, size_t bytes)
{
    for (size_t page = 0; page < segment->pages; page++) {
        if (segment->is_mapped[page])
            continue;
        size_t before = heap_free_before(&segment->heap, segment->at + page * segment->page_bytes), run = 0;
        while (page + run < segment->pages && !segment->is_mapped[page + run] &&
               before + run * segment->page_bytes < bytes)
            run++;
        if (before + run * segment->page_bytes >= bytes)
            return map_pages(segment, page, run);
        page += run;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult take(struct heap *heap, size_t bytes)
{
    struct segment *segment = heap == &small.heap ? &small : &large;
    CUresult result = expand(segment, bytes);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    empty_cache();
    return expand(segment, bytes);
}

static const struct heap_rules small_rules = {
    .round = round_to_unit, .take = take, .splits = splits_small, .joins_segments = true};
static const struct heap_rules large_rules = {
    .round = round_to_unit, .take = take, .splits = splits_large, .joins_segments = true};

static void begin_segment(struct segment *segment, const struct heap_rules *rules, size_t page_bytes)
{
    size_t available, total;
    MUST(cuMemGetInfo_v2(&available, &total));
    segment->heap.rules = rules;
    segment->page_bytes = page_bytes;
    segment->pages = (total + total / 8 + page_bytes - 1) / page_bytes;
    if (segment->pages > PAGES_MOST)
        gallery_fail("more than %d pages of a card", PAGES_MOST);
    segment->properties = vmm_properties(&wishes);
    MUST(cuMemAddressReserve(&segment->at, segment->pages * page_bytes, 0, 0, 0));
}

static void end_segment(struct segment *segment)
{
    MUST(cuMemAddressFree(segment->at, segment->pages * segment->page_bytes));
}

static struct segment *segment_of(const struct tensor *tensor)
{
    return tensor->bytes <= SMALL_MOST ? &small : &large;
}

static CUresult alloc(struct tensor *tensor)
{
    return heap_alloc(&segment_of(tensor)->heap, tensor->bytes, &tensor->at);
}

static void release(struct tensor *tensor)
{
    heap_free(&segment_of(tensor)->heap, tensor->at);
}

/* --- The second process ------------------------------------------------------------------------------------ */

/* What it is told of a tensor before its pages come. */
struct shared_tensor {
    size_t page_bytes, pages, offset, bytes;
    uint64_t seed, new_seed;
};

static void write_as(CUdeviceptr at, size_t bytes, uint64_t seed)
{
    struct tensor tensor = {.at = at, .bytes = bytes, .seed = seed};
    static unsigned char content[64 * MIB];
    tensor_content(&tensor, content);
    MUST(cuMemcpyHtoD_v2(at, content, bytes));
}

static void consume(int socket)
{
    struct shared_tensor shared;
    CUmemGenericAllocationHandle handles[64];
    CUdeviceptr at;
    gallery_begin_child();
    receive_bytes(socket, &shared, sizeof(shared));
    size_t bytes = shared.pages * shared.page_bytes;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    for (size_t page = 0; page < shared.pages; page++) {
        handles[page] = vmm_receive(socket);
        MUST(cuMemMap(at + page * shared.page_bytes, shared.page_bytes, 0, handles[page], 0));
    }
    MUST(cuMemSetAccess(at, bytes, &access, 1));
    tensor_check(&(struct tensor){.at = at + shared.offset, .bytes = shared.bytes, .seed = shared.seed});
    write_as(at + shared.offset, shared.bytes, shared.new_seed);
    send_bytes(socket, "w", 1);
    char done;
    receive_bytes(socket, &done, 1);
    for (size_t page = 0; page < shared.pages; page++) {
        MUST(cuMemUnmap(at + page * shared.page_bytes, shared.page_bytes));
        MUST(cuMemRelease(handles[page]));
    }
    MUST(cuMemAddressFree(at, bytes));
    send_bytes(socket, "c", 1);
}

static void share(int socket)
{
    struct tensor tensor = {.bytes = 24 * MIB};
    char word;
    gallery_must(alloc(&tensor), "the allocator");
    tensor_fill(&tensor);
    write_as(tensor.at, tensor.bytes, tensor.seed);
    tensor_expect(&tensor, tensor.seed);
    const size_t first = (tensor.at - large.at) / large.page_bytes;
    const size_t last = (tensor.at + tensor.bytes - 1 - large.at) / large.page_bytes;
    struct shared_tensor shared = {.page_bytes = large.page_bytes,
                                   .pages = last - first + 1,
                                   .offset = tensor.at - large.at - first * large.page_bytes,
                                   .bytes = tensor.bytes,
                                   .seed = tensor.seed,
                                   .new_seed = tensor.seed + 1};
    gallery_pause("alone");
    send_bytes(socket, &shared, sizeof(shared));
    for (size_t page = first; page <= last; page++) {
        large.is_exported[page] = true;
        vmm_send(socket, large.handles[page], &large.properties);
        hold(MEMORY, -(ptrdiff_t)large.page_bytes);
        hold(EXPORTED, (ptrdiff_t)large.page_bytes);
    }
    receive_bytes(socket, &word, 1);
    gallery_pause("shared");
    tensor_expect(&tensor, shared.new_seed);
    tensor_check(&tensor);
    send_bytes(socket, "d", 1);
    receive_bytes(socket, &word, 1);
    release(&tensor);
    empty_cache();
}

int main(int argument_count, char **words)
{
    int socket = -1;
    const bool shares = argument_count > 3 && strcmp(words[3], "share") == 0;
    if (shares)
        socket = gallery_fork(consume);
    gallery_begin(argument_count, words);
    begin_segment(&small, &small_rules, 2 * MIB);
    begin_segment(&large, &large_rules, 20 * MIB);
    if (shares)
        share(socket);
    train(&(struct allocator){alloc, release, empty_cache});
    end_segment(&small);
    end_segment(&large);
    if (shares)
        gallery_join();
    return gallery_end();
}
