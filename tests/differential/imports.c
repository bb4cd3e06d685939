/* imports.c - rows: memory that another process made. The peer is a process of its own, which makes what it
 * is asked for and keeps it until the end. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differ.h"

#define MADE_MOST 24u

/* Of all processes; the peer writes it before it answers. */
static struct peer_memory {
    unsigned count;
    struct {
        CUipcMemHandle handle;
        uint64_t bytes;
        unsigned gpu;
    } made[MADE_MOST];
} * peer;
static pid_t peer_pid;
static int peer_line;

struct wish {
    uint64_t bytes;
    unsigned gpu;
};

static CUresult make(const struct wish *wish)
{
    CUcontext context;
    CUdeviceptr address;
    CUresult result = cuInit(0);
    if (!result)
        result = cuDevicePrimaryCtxRetain(&context, (CUdevice)wish->gpu);
    if (!result)
        result = cuCtxSetCurrent(context);
    if (!result)
        result = cuMemAlloc_v2(&address, wish->bytes);
    if (!result)
        result = cuIpcGetMemHandle(&peer->made[peer->count].handle, address);
    if (result)
        return result;
    peer->made[peer->count].bytes = wish->bytes;
    peer->made[peer->count++].gpu = wish->gpu;
    return CUDA_SUCCESS;
}

static void serve(int line)
{
    struct wish wish;
    while (read(line, &wish, sizeof(wish)) == sizeof(wish)) {
        CUresult result = make(&wish);
        if (write(line, &result, sizeof(result)) != sizeof(result))
            break;
    }
    _exit(0);
}

bool start_peer(void)
{
    int line[2];
    peer = mmap(NULL, sizeof(*peer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (peer == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) != 0)
        return false;
    peer_pid = fork();
    if (peer_pid == 0) {
        close(line[0]);
        serve(line[1]);
    }
    close(line[1]);
    peer_line = line[0];
    return peer_pid > 0;
}

void end_peer(void)
{
    if (!peer)
        return;
    close(peer_line);
    waitpid(peer_pid, NULL, 0);
    peer->count = 0;
}

uint64_t peer_bytes(unsigned gpu, bool (*is_opened)(unsigned piece))
{
    uint64_t bytes = 0;
    for (unsigned i = 0; peer && i < peer->count; i++)
        if (peer->made[i].gpu == gpu && !is_opened(i))
            bytes += peer->made[i].bytes;
    return bytes;
}

/* A piece of the peer's memory on the current GPU: one that it has, or a new one. Its index, or -1. */
static int some_memory(struct actor *actor)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (peer->count && !one_in(actor, 3)) {
        unsigned first = (unsigned)chance(actor, peer->count);
        for (unsigned i = 0; i < peer->count; i++)
            if (peer->made[(first + i) % peer->count].gpu == actor->gpu)
                return (int)((first + i) % peer->count);
    }
    struct wish wish = {1 + chance(actor, 200000), actor->gpu};
    if (peer->count == MADE_MOST || write(peer_line, &wish, sizeof(wish)) != sizeof(wish) ||
        read(peer_line, &result, sizeof(result)) != sizeof(result) || result != CUDA_SUCCESS)
        return -1;
    return (int)peer->count - 1;
}

static void open_memory(struct actor *actor)
{
    CUdeviceptr address = UNTOUCHED;
    CUipcMemHandle none = {{0}};
    unsigned flags = one_in(actor, 6) ? 0 : 1;
    int which = some_memory(actor);
    uint64_t bytes = which < 0 ? 0 : peer->made[which].bytes;
    put(actor, "the peer's %d, %llu bytes, %u", which, (unsigned long long)bytes, flags);
    actor->ask = bytes;
    CUresult result =
        CALL(actor, cuIpcOpenMemHandle_v2)(&address, which < 0 ? none : peer->made[which].handle, flags);
    put_result(actor, result);
    if (result != CUDA_SUCCESS) {
        put_kept(actor, address);
        return;
    }
    struct thing *opened = add_thing(actor, OPENED, address, bytes);
    opened->piece = (unsigned)which;
    put(actor, " made %u", opened->number);
}

#define ROW(symbol, weight, call)                                                                            \
    {                                                                                                        \
#symbol, (void *)(uintptr_t)symbol, weight, call                                                     \
    }
const struct row import_rows[] = {
    ROW(cuIpcOpenMemHandle_v2, 4, open_memory),
    {NULL, NULL, 0, NULL},
};
