/* medley - uses GPU memory in every way that programs do, in an order of chance, and knows every byte of it.
 *
 *   medley BYTES SEED
 *
 * Holds up to BYTES and prints "ready". Of each line "go N" on standard input it takes N steps, each by chance: memory
 * comes and goes (cuMemAlloc, cuMemAllocPitch, cuMemAllocAsync, a pool of its own, cuMemCreate and cuMemMap), is written by host
 * and device, copied by a stream and summed up by a kernel, both also in a graph, and in one that has memory of its own; is read
 * back and compared; or a child reads it by legacy IPC. Where the session has no more memory it goes on with what it has. Prints
 * "good", or "bad ..." with what was wrong. Ends at the end of input, when it has looked at everything once more. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "driver_program.h"

#define BUFFERS 64u
#define PIECE (UINT64_C(2) << 20)
#define USUAL (UINT64_C(2) << 20)
#define LARGE (UINT64_C(10) << 20)   /* which moves in pieces, where a card is small */
#define LARGEST (UINT64_C(64) << 20) /* which does so in many */
#define PTX_CHECKSUM                                                                                         \
    ".visible .entry gs_checksum_u64(.param .u64 from, .param .u64 count, .param .u64 out)\n{\n ret;\n}\n"

enum kind { NOTHING, LINEAR, PITCHED, ASYNC, POOLED, MAPPED, KINDS };

static struct buffer {
    enum kind kind;
    CUdeviceptr address;
    uint64_t bytes, seed;
} buffers[BUFFERS];
static uint64_t held, most, chance;
static uint64_t expected[LARGEST / 8], found[LARGEST / 8];
static CUfunction checksum;
static CUdeviceptr sum_on_gpu;
static CUstream stream;
static CUmemoryPool pool;
static int line_to_child;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t up_to(uint64_t number)
{
    return next(&chance) % number;
}

/* What the buffer should hold; returns its sum. */
static uint64_t make_content(const struct buffer *buffer)
{
    uint64_t state = buffer->seed * UINT64_C(0x9e3779b97f4a7c15) | 1, sum = 0;
    for (uint64_t i = 0; i < buffer->bytes / 8; i++)
        sum += expected[i] = next(&state);
    return sum;
}

static void write_buffer(struct buffer *buffer)
{
    buffer->seed = next(&chance);
    make_content(buffer);
    CHECK(cuMemcpyHtoDAsync_v2(buffer->address, expected, buffer->bytes, stream));
    CHECK(cuStreamSynchronize(stream));
}

/* --- Coming and going ------------------------------------------------------------------------------ */

/* Whether there was memory: blocks and pools have parts that nobody uses, so a session may be full before all is held. */
static bool is_had(CUresult result, uint64_t bytes)
{
    size_t left, all;
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        CHECK(result);
        return true;
    }
    CHECK(cuMemGetInfo_v2(&left, &all));
    if (left >= bytes + 2 * PIECE) {
        printf("bad: %" PRIu64 " bytes were refused, and %zu are left\n", bytes, left);
        exit(1);
    }
    return false;
}

static bool map(struct buffer *buffer)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    buffer->bytes = (buffer->bytes + PIECE - 1) / PIECE * PIECE;
    if (!is_had(cuMemCreate(&handle, buffer->bytes, &how, 0), buffer->bytes))
        return false;
    CHECK(cuMemAddressReserve(&buffer->address, buffer->bytes, 0, 0, 0));
    CHECK(cuMemMap(buffer->address, buffer->bytes, 0, handle, 0));
    CHECK(cuMemRelease(handle)); /* the mapping holds it */
    CHECK(cuMemSetAccess(buffer->address, buffer->bytes, &access, 1));
    return true;
}

static bool allocate(struct buffer *buffer)
{
    size_t pitch;
    switch (buffer->kind) {
    case LINEAR:
        return is_had(cuMemAlloc_v2(&buffer->address, buffer->bytes), buffer->bytes);
    case PITCHED:
        return is_had(cuMemAllocPitch_v2(&buffer->address, &pitch, buffer->bytes, 1, 8), buffer->bytes);
    case ASYNC:
        return is_had(cuMemAllocAsync(&buffer->address, buffer->bytes, stream), buffer->bytes);
    case POOLED:
        return is_had(cuMemAllocFromPoolAsync(&buffer->address, buffer->bytes, pool, stream), buffer->bytes);
    default:
        return map(buffer);
    }
}

static void come(struct buffer *buffer)
{
    static const uint64_t ends[] = {4096, 4096, USUAL, USUAL, USUAL, USUAL, LARGE, LARGEST};
    buffer->bytes = (8 + up_to(ends[up_to(8)] - 8)) / 8 * 8;
    if (held + buffer->bytes + PIECE > most)
        return;
    buffer->kind = (enum kind)(LINEAR + up_to(KINDS - LINEAR));
    if (!allocate(buffer)) {
        buffer->kind = NOTHING;
        return;
    }
    held += buffer->bytes;
    write_buffer(buffer);
}

static void leave(struct buffer *buffer)
{
    if (buffer->kind == LINEAR || buffer->kind == PITCHED) {
        CHECK(cuMemFree_v2(buffer->address));
    } else if (buffer->kind == ASYNC || buffer->kind == POOLED) {
        CHECK(cuMemFreeAsync(buffer->address, stream));
        CHECK(cuStreamSynchronize(stream));
    } else {
        CHECK(cuMemUnmap(buffer->address, buffer->bytes));
        CHECK(cuMemAddressFree(buffer->address, buffer->bytes));
    }
    held -= buffer->bytes;
    buffer->kind = NOTHING;
}

/* --- Using ----------------------------------------------------------------------------------------- */

static const char *look(const struct buffer *buffer)
{
    make_content(buffer);
    CHECK(cuMemcpyDtoH_v2(found, buffer->address, buffer->bytes));
    return memcmp(expected, found, buffer->bytes) == 0 ? NULL : "its bytes";
}

static const char *sum_up(const struct buffer *buffer)
{
    uint64_t words = buffer->bytes / 8, sum = 0;
    CHECK(cuMemcpyHtoD_v2(sum_on_gpu, &sum, sizeof(sum)));
    CHECK(cuLaunchKernel(checksum, 1, 1, 1, 1, 1, 1, 0, stream,
                         (void *[]){(void *)&buffer->address, &words, &sum_on_gpu}, NULL));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH_v2(&sum, sum_on_gpu, sizeof(sum)));
    return sum == make_content(buffer) ? NULL : "its sum";
}

static void copy(const struct buffer *from, const struct buffer *to)
{
    CHECK(cuMemcpyDtoDAsync_v2(to->address, from->address, to->bytes, stream));
    CHECK(cuStreamSynchronize(stream));
}

/* Run what was captured on the stream, once, if there is memory for its own `bytes`. */
static bool run_captured(uint64_t bytes)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    bool has_run = is_had(cuGraphLaunch(exec, stream), bytes);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    return has_run;
}

/* The sum by a graph. */
static const char *sum_up_by_graph(const struct buffer *buffer)
{
    uint64_t words = buffer->bytes / 8, sum = 0;
    CHECK(cuMemcpyHtoD_v2(sum_on_gpu, &sum, sizeof(sum)));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuLaunchKernel(checksum, 1, 1, 1, 1, 1, 1, 0, stream,
                         (void *[]){(void *)&buffer->address, &words, &sum_on_gpu}, NULL));
    run_captured(0);
    CHECK(cuMemcpyDtoH_v2(&sum, sum_on_gpu, sizeof(sum)));
    return sum == make_content(buffer) ? NULL : "its sum by a graph";
}

/* The sum of a copy that lives in the graph. */
static const char *sum_up_in_graph(const struct buffer *buffer)
{
    uint64_t words = buffer->bytes / 8, sum = 0;
    CUdeviceptr copy;
    CHECK(cuMemcpyHtoD_v2(sum_on_gpu, &sum, sizeof(sum)));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemAllocAsync(&copy, buffer->bytes, stream));
    CHECK(cuMemcpyDtoDAsync_v2(copy, buffer->address, buffer->bytes, stream));
    CHECK(cuLaunchKernel(checksum, 1, 1, 1, 1, 1, 1, 0, stream,
                         (void *[]){(void *)&copy, &words, &sum_on_gpu}, NULL));
    CHECK(cuMemFreeAsync(copy, stream));
    bool has_run = run_captured(buffer->bytes);
    CHECK(cuDeviceGraphMemTrim(0));
    CHECK(cuMemcpyDtoH_v2(&sum, sum_on_gpu, sizeof(sum)));
    return !has_run || sum == make_content(buffer) ? NULL : "its sum in a graph";
}

/* A copy by a graph. */
static void copy_by_graph(const struct buffer *from, const struct buffer *to)
{
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemcpyDtoDAsync_v2(to->address, from->address, to->bytes, stream));
    run_captured(0);
}

/* `to` becomes as the beginning of `from`: what a seed makes begins alike at any length. */
static void overwrite(const struct buffer *from, struct buffer *to)
{
    if (from == to || from->kind == NOTHING || from->bytes < to->bytes)
        return;
    (up_to(2) ? copy : copy_by_graph)(from, to);
    to->seed = from->seed;
}

/* --- Another process ------------------------------------------------------------------------------- */

struct handed_out {
    CUipcMemHandle handle;
    uint64_t bytes;
};

/* The child: reads what each handle leads to, and sends its sum. */
static void read_for_parent(int parent)
{
    struct handed_out handed_out;
    CHECK(cuInit(0));
    use_gpu(0);
    if (send(parent, "", 1, MSG_NOSIGNAL) != 1)
        _exit(1);
    while (recv(parent, &handed_out, sizeof(handed_out), MSG_WAITALL) == sizeof(handed_out)) {
        CUdeviceptr address;
        uint64_t sum = 0;
        CHECK(cuIpcOpenMemHandle_v2(&address, handed_out.handle, 1));
        CHECK(cuMemcpyDtoH_v2(found, address, handed_out.bytes));
        CHECK(cuIpcCloseMemHandle(address));
        for (uint64_t i = 0; i < handed_out.bytes / 8; i++)
            sum += found[i];
        if (send(parent, &sum, sizeof(sum), MSG_NOSIGNAL) != sizeof(sum))
            break;
    }
    _exit(0);
}

/* Before anything is known of the GPU, which a forked child cannot use. When this returns it has met the GPU: a session takes
 * nobody in while its daemon is away. */
static void start_child(void)
{
    int ends[2];
    char ready;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        exit(1);
    pid_t child = fork();
    if (child < 0)
        exit(1);
    if (child == 0) {
        close(ends[0]);
        read_for_parent(ends[1]);
    }
    close(ends[1]);
    line_to_child = ends[0];
    if (recv(line_to_child, &ready, 1, 0) != 1)
        exit(1);
}

/* Memory that was handed out stays on the card, so it goes at once. */
static const char *hand_out(void)
{
    struct buffer buffer = {.kind = LINEAR, .bytes = up_to(2) ? USUAL : LARGE};
    struct handed_out handed_out = {.bytes = buffer.bytes};
    uint64_t sum;
    if (!is_had(cuMemAlloc_v2(&buffer.address, buffer.bytes), buffer.bytes))
        return NULL;
    write_buffer(&buffer);
    CHECK(cuIpcGetMemHandle(&handed_out.handle, buffer.address));
    bool is_read = send(line_to_child, &handed_out, sizeof(handed_out), MSG_NOSIGNAL) == sizeof(handed_out) &&
                   recv(line_to_child, &sum, sizeof(sum), MSG_WAITALL) == sizeof(sum);
    CHECK(cuMemFree_v2(buffer.address));
    if (!is_read)
        return "its child has gone";
    return sum == make_content(&buffer) ? NULL : "what its child read";
}

static const char *step(struct buffer *buffer)
{
    if (buffer->kind == NOTHING) {
        come(buffer);
        return NULL;
    }
    if (up_to(32) == 0)
        return hand_out();
    switch (up_to(7)) {
    case 0:
        leave(buffer);
        return NULL;
    case 1:
        write_buffer(buffer);
        return NULL;
    case 2:
    case 3:
        overwrite(&buffers[up_to(BUFFERS)], buffer);
        return NULL;
    case 4:
        return (up_to(2) ? sum_up : sum_up_by_graph)(buffer);
    case 5:
        return (up_to(2) ? sum_up : sum_up_in_graph)(buffer);
    default:
        return look(buffer);
    }
}

static bool is_wrong(const struct buffer *buffer, const char *wrong)
{
    if (wrong)
        printf("bad %u: %s; %" PRIu64 " bytes at %" PRIx64 ", of kind %d\n", (unsigned)(buffer - buffers),
               wrong, buffer->bytes, (uint64_t)buffer->address, (int)buffer->kind);
    return wrong != NULL;
}

static void go(uint64_t steps)
{
    while (steps--) {
        struct buffer *buffer = &buffers[up_to(BUFFERS)];
        if (is_wrong(buffer, step(buffer)))
            return;
    }
    puts("good");
}

/* As a program does that wants to keep what it had. */
static void make_pool(void)
{
    const CUmemPoolProps how = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CHECK(cuMemPoolCreate(&pool, &how));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(uint64_t){4 * PIECE}));
}

int main(int count, char **words)
{
    char line[64];
    if (count < 3)
        return 2;
    most = strtoull(words[1], NULL, 10);
    chance = strtoull(words[2], NULL, 10) * 2 + 1;
    start_child();
    CHECK(cuInit(0));
    use_gpu(0);
    make_pool();
    checksum = find_kernel(load_module(PTX(PTX_CHECKSUM)), "gs_checksum_u64");
    CHECK(cuMemAlloc_v2(&sum_on_gpu, 8));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < BUFFERS; i++)
        come(&buffers[i]);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (strncmp(line, "go ", 3) == 0)
            go(strtoull(line + 3, NULL, 10));
        fflush(stdout);
    }
    for (unsigned i = 0; i < BUFFERS; i++)
        if (buffers[i].kind != NOTHING && is_wrong(&buffers[i], look(&buffers[i])))
            return 1;
    return 0;
}
