/* ucx - what UCX's cuda_copy and cuda_ipc do: what an address is, they ask by pointer attributes; which allocation it is of, by its
 * range and its BUFFER_ID, by which the cache of a peer's opened memory knows that there is other memory now at the same address.
 * Its own buffers are for FABRIC where the card has that, else of cuMemAlloc. */
#include "vmm.h"
#include "workload.h"

#include <string.h>

#define ROUNDS 3
#define BUFFER_BYTES (6 * MIB)

static const struct wishes own_wishes = {.fallback = CU_MEM_HANDLE_TYPE_NONE, .fabric = true, .rdma = true};

/* What a memory key has. */
struct remote_key {
    unsigned long long buffer_id;
    CUdeviceptr base;
    size_t length;
    bool is_legacy;
    CUipcMemHandle legacy;
    struct tensor content;
};

static void ask_what_it_is(CUdeviceptr at)
{
    CUmemorytype type = 0;
    unsigned managed = 1;
    int ordinal = -1;
    CUcontext context;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *answers[] = {&type, &managed, &ordinal, &context};
    MUST(cuPointerGetAttributes(4, attributes, answers, at));
    if (type != CU_MEMORYTYPE_DEVICE || managed || ordinal != 0)
        gallery_fail("memory of the card is said to be of type %d, managed %u, GPU %d", (int)type, managed,
                     ordinal);
}

static unsigned long long buffer_id(CUdeviceptr at)
{
    unsigned long long id;
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
    return id;
}

/* --- Buffers --------------------------------------------------------------------------------------------------- */

static struct buffer {
    CUdeviceptr at;
    size_t bytes;
    bool is_vmm;
    CUmemGenericAllocationHandle handle;
    unsigned long long id;
} buffers[2 * TENSORS_MOST];
static unsigned count;

static bool alloc_fabric(struct buffer *buffer, size_t bytes)
{
    unsigned long long allowed = 0;
    CUmemAllocationProp properties = vmm_properties(&own_wishes);
    if (!(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC))
        return false;
    properties.allocFlags.gpuDirectRDMACapable = 1;
    const size_t unit = vmm_granularity(&properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    buffer->bytes = round_up(bytes, unit);
    if (cuMemCreate(&buffer->handle, buffer->bytes, &properties, 0) != CUDA_SUCCESS)
        return false;
    MUST(cuMemAddressReserve(&buffer->at, buffer->bytes, unit, 0, 0));
    vmm_map(buffer->at, buffer->bytes, buffer->handle);
    MUST(cuPointerGetAttribute(&allowed, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, buffer->at));
    if (!(allowed & CU_MEM_HANDLE_TYPE_FABRIC))
        gallery_fail("memory made for FABRIC is said to allow %#llx", allowed);
    return true;
}

static CUresult alloc(struct tensor *tensor)
{
    struct buffer *buffer = &buffers[count];
    *buffer = (struct buffer){.bytes = round_up(tensor->bytes, 2 * MIB)};
    buffer->is_vmm = alloc_fabric(buffer, tensor->bytes);
    if (!buffer->is_vmm) {
        CUresult result = cuMemAlloc_v2(&buffer->at, buffer->bytes);
        if (result != CUDA_SUCCESS)
            return result;
    }
    ask_what_it_is(buffer->at);
    buffer->id = buffer_id(buffer->at);
    hold(MEMORY, (ptrdiff_t)buffer->bytes);
    tensor->at = buffer->at;
    count++;
    return CUDA_SUCCESS;
}

static struct buffer *buffer_at(CUdeviceptr at)
{
    for (unsigned i = 0; i < count; i++)
        if (buffers[i].at == at)
            return &buffers[i];
    gallery_fail("no buffer is there");
}

static void free_as(CUdeviceptr at, enum kind kind)
{
    struct buffer *of = buffer_at(at);
    const struct buffer buffer = *of;
    if (buffer_id(at) != buffer.id)
        gallery_fail("the BUFFER_ID of memory that was not freed has changed");
    *of = buffers[--count];
    if (buffer.is_vmm) {
        MUST(cuMemRelease(buffer.handle));
        MUST(cuMemUnmap(buffer.at, buffer.bytes));
        MUST(cuMemAddressFree(buffer.at, buffer.bytes));
    } else {
        MUST(cuMemFree_v2(buffer.at));
    }
    hold(kind, -(ptrdiff_t)buffer.bytes);
}

static void release(struct tensor *tensor)
{
    free_as(tensor->at, MEMORY);
}

/* --- The peer and its cache ------------------------------------------------------------------------------------ */

static struct cached {
    struct remote_key key;
    CUdeviceptr mapped;
    bool is_used;
} cache[ROUNDS];

static void close_cached(struct cached *region)
{
    if (region->key.is_legacy) {
        MUST(cuIpcCloseMemHandle(region->mapped));
    } else {
        MUST(cuMemUnmap(region->mapped, region->key.length));
        MUST(cuMemAddressFree(region->mapped, region->key.length));
    }
    region->is_used = false;
}

static CUdeviceptr open_key(int socket, const struct remote_key *key)
{
    CUdeviceptr at;
    if (key->is_legacy) {
        MUST(cuIpcOpenMemHandle_v2(&at, key->legacy, IPC_LAZY_PEER_ACCESS));
        return at;
    }
    CUmemGenericAllocationHandle handle = vmm_receive(socket);
    MUST(cuMemAddressReserve(&at, key->length, 0, 0, 0));
    vmm_map(at, key->length, handle);
    MUST(cuMemRelease(handle));
    return at;
}

static struct cached *look_up(int socket, const struct remote_key *key)
{
    struct cached *place = NULL;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct cached *region = &cache[i];
        if (region->is_used && region->key.base == key->base && region->key.buffer_id != key->buffer_id)
            close_cached(region); /* of memory that its owner has freed since */
        if (!region->is_used)
            place = region;
    }
    *place = (struct cached){.key = *key, .mapped = open_key(socket, key), .is_used = true};
    return place;
}

static void peer(int socket)
{
    struct remote_key key;
    gallery_begin_child();
    for (int round = 0; round < ROUNDS; round++) {
        char word;
        receive_bytes(socket, &key, sizeof(key));
        const struct cached *region = look_up(socket, &key);
        struct tensor content = key.content;
        content.at = region->mapped + (key.content.at - key.base);
        tensor_check(&content);
        send_bytes(socket, "g", 1);
        receive_bytes(socket, &word, 1);
        tensor_check(&content);
        for (unsigned i = 0; i < ROUNDS; i++)
            if (cache[i].is_used)
                close_cached(&cache[i]);
        send_bytes(socket, "p", 1);
    }
}

static void pack_and_send(int socket, const struct tensor *tensor)
{
    struct remote_key key = {.content = *tensor};
    int is_legacy = 0;
    unsigned long long allowed = 0;
    CUmemoryPool pool;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *answers[] = {&is_legacy, &allowed, &pool};
    MUST(cuMemGetAddressRange_v2(&key.base, &key.length, tensor->at));
    key.buffer_id = buffer_id(tensor->at);
    MUST(cuPointerGetAttributes(3, attributes, answers, tensor->at));
    key.is_legacy = is_legacy != 0;
    if (key.is_legacy)
        MUST(cuIpcGetMemHandle(&key.legacy, tensor->at));
    send_bytes(socket, &key, sizeof(key));
    if (!key.is_legacy) {
        CUmemGenericAllocationHandle handle;
        const CUmemAllocationProp properties = {.requestedHandleTypes = (CUmemAllocationHandleType)allowed};
        MUST(cuMemRetainAllocationHandle(&handle, (void *)tensor->at));
        vmm_send(socket, handle, &properties);
        MUST(cuMemRelease(handle));
    }
    hold(MEMORY, -(ptrdiff_t)key.length);
    hold(EXPORTED, (ptrdiff_t)key.length);
}

/* Memory comes and goes, so that its addresses do as well. */
static void transfer(int socket)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct tensor tensor = {.bytes = BUFFER_BYTES};
        char word;
        gallery_must(alloc(&tensor), "the allocator");
        tensor_fill(&tensor);
        MUST(cuCtxSynchronize());
        if (round == 0)
            gallery_pause("alone");
        pack_and_send(socket, &tensor);
        receive_bytes(socket, &word, 1);
        if (round == 0)
            gallery_pause("shared");
        send_bytes(socket, "d", 1);
        receive_bytes(socket, &word, 1);
        tensor_check(&tensor);
        free_as(tensor.at, EXPORTED);
    }
}

int main(int argument_count, char **words)
{
    int socket = gallery_fork(peer);
    gallery_begin(argument_count, words);
    transfer(socket);
    train(&(struct allocator){alloc, release, NULL});
    gallery_join();
    return gallery_end();
}
