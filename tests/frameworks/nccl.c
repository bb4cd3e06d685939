/* nccl - what NCCL does with memory: user buffers of ncclMemAlloc (FABRIC and descriptor together, for network cards), buffers of the
 * communicator that a second rank imports, a user buffer that is registered with that rank, and where the card has it a multicast
 * object with memory bound to it. What is freed is found by its address alone. */
#include "vmm.h"
#include "workload.h"

#include <string.h>

#define BUFFER_BYTES (4 * MIB)
#define MULTICAST_BYTES (8 * MIB)

static const struct wishes user_wishes = {.fallback = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .fabric = true,
                                          .fabric_beside = true,
                                          .rdma = true};
static const struct wishes own_wishes = {.fallback = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .rdma = true};

static CUresult nccl_alloc(CUdeviceptr *at, size_t *bytes, const struct wishes *wishes,
                           CUmemAllocationGranularity_flags which)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = vmm_properties(wishes);
    const size_t unit = vmm_granularity(&properties, which);
    *bytes = round_up(*bytes, unit);
    CUresult result = vmm_create(&handle, *bytes, wishes, &properties);
    if (result != CUDA_SUCCESS)
        return result;
    MUST(cuMemAddressReserve(at, *bytes, unit, 0, 0));
    vmm_map(*at, *bytes, handle);
    hold(MEMORY, (ptrdiff_t)*bytes);
    return CUDA_SUCCESS;
}

static void nccl_free(CUdeviceptr at, enum kind kind)
{
    CUmemGenericAllocationHandle handle;
    size_t bytes;
    MUST(cuMemRetainAllocationHandle(&handle, (void *)at));
    MUST(cuMemRelease(handle));
    MUST(cuMemGetAddressRange_v2(NULL, &bytes, at));
    MUST(cuMemUnmap(at, bytes));
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(at, bytes));
    hold(kind, -(ptrdiff_t)bytes);
}

static CUresult alloc(struct tensor *tensor)
{
    size_t bytes = tensor->bytes;
    return nccl_alloc(&tensor->at, &bytes, &user_wishes, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

static void release(struct tensor *tensor)
{
    nccl_free(tensor->at, MEMORY);
}

/* --- The second rank ----------------------------------------------------------------------------------------- */

struct peer_buffer {
    size_t bytes, tensor_bytes;
    uint64_t seed;
    size_t tail;
};

static void second_rank(int socket)
{
    struct peer_buffer buffer;
    char word;
    gallery_begin_child();
    for (int i = 0; i < 2; i++) {
        CUdeviceptr at;
        receive_bytes(socket, &buffer, sizeof(buffer));
        CUmemGenericAllocationHandle handle = vmm_receive(socket);
        MUST(cuMemAddressReserve(&at, buffer.bytes, 0, 0, 0));
        vmm_map(at, buffer.bytes, handle);
        MUST(cuMemRelease(handle)); /* the mapping holds it */
        tensor_check(&(struct tensor){at, buffer.tensor_bytes, buffer.seed, buffer.tail});
        send_bytes(socket, "m", 1);
        receive_bytes(socket, &word, 1);
        tensor_check(&(struct tensor){at, buffer.tensor_bytes, buffer.seed, buffer.tail});
        MUST(cuMemUnmap(at, buffer.bytes));
        MUST(cuMemAddressFree(at, buffer.bytes));
        send_bytes(socket, "u", 1);
    }
}

/* As a proxy does for a peer: the allocation is found by its address, and goes as a descriptor. */
static void share_with_rank(int socket, const struct tensor *tensor)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    CUdeviceptr base;
    struct peer_buffer buffer = {.tensor_bytes = tensor->bytes, .seed = tensor->seed, .tail = tensor->tail};
    char word;
    MUST(cuMemGetAddressRange_v2(&base, &buffer.bytes, tensor->at));
    MUST(cuMemRetainAllocationHandle(&handle, (void *)base));
    MUST(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    send_bytes(socket, &buffer, sizeof(buffer));
    vmm_send(socket, handle, &properties);
    MUST(cuMemRelease(handle));
    hold(MEMORY, -(ptrdiff_t)buffer.bytes);
    hold(EXPORTED, (ptrdiff_t)buffer.bytes);
    receive_bytes(socket, &word, 1);
}

static void end_sharing(int socket)
{
    char word;
    send_bytes(socket, "e", 1);
    receive_bytes(socket, &word, 1);
}

/* A buffer of the communicator's own, then one of the user's that is registered. */
static void communicate(int socket)
{
    struct tensor own = {.bytes = BUFFER_BYTES}, user = {.bytes = BUFFER_BYTES};
    size_t bytes = own.bytes;
    gallery_must(nccl_alloc(&own.at, &bytes, &own_wishes, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 "ncclCuMemAlloc");
    gallery_must(alloc(&user), "ncclMemAlloc");
    tensor_fill(&own);
    tensor_fill(&user);
    MUST(cuCtxSynchronize());
    gallery_pause("alone");
    share_with_rank(socket, &own);
    gallery_pause("connected");
    end_sharing(socket);
    share_with_rank(socket, &user);
    gallery_pause("registered");
    end_sharing(socket);
    tensor_check(&own);
    tensor_check(&user);
    nccl_free(own.at, EXPORTED);
    nccl_free(user.at, EXPORTED);
}

/* --- Multicast ----------------------------------------------------------------------------------------------- */

static void use_multicast(void)
{
    struct tensor bound = {.bytes = MULTICAST_BYTES};
    CUmulticastObjectProp object_properties = {
        .numDevices = 1, .size = MULTICAST_BYTES, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemGenericAllocationHandle object, memory;
    CUdeviceptr at;
    size_t unit, bytes = bound.bytes;
    CUdevice device;
    MUST(cuCtxGetDevice(&device));
    MUST(cuMulticastGetGranularity(&unit, &object_properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
    object_properties.size = bytes = round_up(bytes, unit);
    MUST(cuMulticastCreate(&object, &object_properties));
    MUST(cuMulticastAddDevice(object, device));
    gallery_must(nccl_alloc(&bound.at, &bytes, &own_wishes, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                 "ncclCuMemAlloc");
    tensor_fill(&bound);
    MUST(cuMemRetainAllocationHandle(&memory, (void *)bound.at));
    MUST(cuMulticastBindMem(object, 0, memory, 0, bytes, 0));
    MUST(cuMemRelease(memory));
    MUST(cuMemAddressReserve(&at, bytes, unit, 0, 0));
    vmm_map(at, bytes, object);
    hold(MEMORY, -(ptrdiff_t)bytes);
    hold(BOUND, (ptrdiff_t)bytes);
    gallery_pause("bound");
    tensor_check(&bound);
    MUST(cuMulticastUnbind(object, device, 0, bytes));
    MUST(cuMemUnmap(at, bytes));
    MUST(cuMemAddressFree(at, bytes));
    MUST(cuMemRelease(object));
    nccl_free(bound.at, BOUND);
}

int main(int argument_count, char **words)
{
    int socket = gallery_fork(second_rank);
    gallery_begin(argument_count, words);
    communicate(socket);
    if (device_attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED))
        use_multicast();
    train(&(struct allocator){alloc, release, NULL});
    gallery_join();
    return gallery_end();
}
