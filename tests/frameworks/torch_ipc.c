/* torch_ipc - PyTorch's sharing of CUDA tensors by legacy handles, as torch.multiprocessing does: the handle of the tensor's whole
 * segment with an offset, and an interprocess event; the consumer says when it is done, and only then the segment may go. */
#include "torch_heaps.h"
#include "workload.h"

struct shared_tensor {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    size_t offset, bytes;
    uint64_t seed;
    size_t tail;
};

static struct torch_heaps heaps;

static CUresult alloc(struct tensor *tensor)
{
    return torch_alloc(&heaps, tensor);
}

static void release(struct tensor *tensor)
{
    torch_free(&heaps, tensor);
}

static void consume(int socket)
{
    struct shared_tensor shared;
    CUdeviceptr segment;
    CUevent event;
    char word;
    gallery_begin_child();
    receive_bytes(socket, &shared, sizeof(shared));
    MUST(cuIpcOpenEventHandle(&event, shared.event));
    MUST(cuIpcOpenMemHandle_v2(&segment, shared.memory, IPC_LAZY_PEER_ACCESS));
    MUST(cuStreamWaitEvent(NULL, event, 0));
    struct tensor tensor = {segment + shared.offset, shared.bytes, shared.seed, shared.tail};
    tensor_check(&tensor);
    send_bytes(socket, "o", 1);
    receive_bytes(socket, &word, 1);
    tensor_check(&tensor); /* still, after whatever happened meanwhile */
    MUST(cuMemsetD32_v2(tensor.at, 7, tensor.bytes / 4));
    MUST(cuCtxSynchronize());
    MUST(cuIpcCloseMemHandle(segment));
    MUST(cuEventDestroy_v2(event));
    send_bytes(socket, "c", 1);
}

static void share(int socket)
{
    struct tensor tensor = {.bytes = 12 * MIB};
    struct shared_tensor shared = {.bytes = tensor.bytes};
    CUevent event;
    char word;
    gallery_must(alloc(&tensor), "the allocator");
    tensor_fill(&tensor);
    shared.seed = tensor.seed;
    shared.tail = tensor.tail;
    gallery_pause("alone");
    CUdeviceptr segment = torch_export(&tensor);
    shared.offset = tensor.at - segment;
    MUST(cuIpcGetMemHandle(&shared.memory, segment));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS | CU_EVENT_BLOCKING_SYNC));
    MUST(cuEventRecord(event, NULL));
    MUST(cuIpcGetEventHandle(&shared.event, event));
    send_bytes(socket, &shared, sizeof(shared));
    receive_bytes(socket, &word, 1);
    gallery_pause("shared");
    send_bytes(socket, "g", 1);
    receive_bytes(socket, &word, 1);
    uint32_t found[4];
    MUST(cuMemcpyDtoH_v2(found, tensor.at, sizeof(found)));
    digest_add(found[3]);
    MUST(cuEventDestroy_v2(event));
    release(&tensor);
    torch_empty_cache();
}

int main(int argument_count, char **words)
{
    int socket = gallery_fork(consume);
    gallery_begin(argument_count, words);
    torch_heaps_begin(&heaps);
    share(socket);
    train(&(struct allocator){alloc, release, torch_empty_cache});
    gallery_join();
    return gallery_end();
}
