/* pool_ipc - memory of a pool that other processes use, as NVIDIA's samples share it: the pool's handle goes to the other process as
 * soon as the pool is made, pointers of it follow, and all free what they have before the pool is destroyed. */
#include "workload.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHARED_MOST (16 * MIB)

static CUmemoryPool pool;
static CUstream stream;

/* --- Descriptors over the socket ------------------------------------------------------------------------------ */

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static void send_descriptor(int socket, int fd)
{
    union control control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec some = {.iov_base = "f", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1)
        gallery_fail("the other process is gone");
}

static int receive_descriptor(int socket)
{
    union control control;
    char word;
    int fd = -1;
    struct iovec some = {.iov_base = &word, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        gallery_fail("no descriptor came");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

/* --- The importer ---------------------------------------------------------------------------------------------- */

struct shared_pointer {
    CUmemPoolPtrExportData pointer;
    struct tensor content;
};

static void import_pool(int socket)
{
    int fd = receive_descriptor(socket);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags;
    MUST(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    MUST(cuMemPoolGetAccess(&flags, pool, &access.location));
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        MUST(cuMemPoolSetAccess(pool, &access, 1));
}

static void use_pool(int socket)
{
    struct shared_pointer shared;
    char word;
    gallery_begin_child();
    import_pool(socket);
    receive_bytes(socket, &shared, sizeof(shared));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemPoolImportPointer(&shared.content.at, pool, &shared.pointer));
    tensor_check(&shared.content);
    send_bytes(socket, "i", 1);
    receive_bytes(socket, &word, 1);
    tensor_check(&shared.content);
    MUST(cuMemFreeAsync(shared.content.at, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemPoolDestroy(pool));
    send_bytes(socket, "f", 1);
}

/* --- The exporter ---------------------------------------------------------------------------------------------- */

static void export_pool(int socket)
{
    int fd;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    MUST(cuMemPoolCreate(&pool, &properties));
    MUST(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(socket, fd);
    close(fd);
}

static void share(int socket)
{
    struct shared_pointer shared = {
        .content = {.bytes = wanted_bytes / 4 < SHARED_MOST ? wanted_bytes / 4 : SHARED_MOST}};
    char word;
    export_pool(socket);
    MUST(cuMemAllocFromPoolAsync(&shared.content.at, shared.content.bytes, pool, stream));
    MUST(cuStreamSynchronize(stream));
    tensor_fill(&shared.content);
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolExportPointer(&shared.pointer, shared.content.at));
    hold(POOLED, (ptrdiff_t)shared.content.bytes);
    send_bytes(socket, &shared, sizeof(shared));
    receive_bytes(socket, &word, 1);
    gallery_pause("shared");
    tensor_check(&shared.content);
    send_bytes(socket, "g", 1);
    receive_bytes(socket, &word, 1);
    MUST(cuMemFreeAsync(shared.content.at, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemPoolDestroy(pool));
    hold(POOLED, -(ptrdiff_t)shared.content.bytes);
}

int main(int argument_count, char **words)
{
    int socket = gallery_fork(use_pool);
    gallery_begin(argument_count, words);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    share(socket);
    gallery_join();
    gallery_pause("destroyed");
    train(&(struct allocator){linear_alloc, linear_free, NULL});
    MUST(cuStreamDestroy_v2(stream));
    return gallery_end();
}
