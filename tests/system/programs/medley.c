/* medley - uses GPU memory in every way that programs do, in an order of chance, and knows every byte of it.
 *
 *   medley BYTES SEED
 *
 * Holds up to BYTES and prints "ready". Of each line "go N" on standard input it takes N steps, each by chance: memory
 * comes and goes (cuMemAlloc, cuMemAllocAsync, cuMemCreate and cuMemMap), is written by host and device, copied by a
 * stream and summed up by a kernel, both also in a graph, or read back and compared. Prints "good", or "bad ..." with what was wrong.
 * Ends at the end of input, when it has looked at everything once more. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "cuda/driver_more.h"
#include "driver_program.h"

#define BUFFERS 64u
#define PIECE (UINT64_C(2) << 20)
#define LARGEST (UINT64_C(2) << 20)
#define PTX_CHECKSUM                                                                                         \
    ".visible .entry gs_checksum_u64(.param .u64 from, .param .u64 count, .param .u64 out)\n{\n ret;\n}\n"

enum kind { NOTHING, LINEAR, ASYNC, MAPPED };

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

static void map(struct buffer *buffer)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    buffer->bytes = (buffer->bytes + PIECE - 1) / PIECE * PIECE;
    CHECK(cuMemAddressReserve(&buffer->address, buffer->bytes, 0, 0, 0));
    CHECK(cuMemCreate(&handle, buffer->bytes, &how, 0));
    CHECK(cuMemMap(buffer->address, buffer->bytes, 0, handle, 0));
    CHECK(cuMemRelease(handle)); /* the mapping holds it */
    CHECK(cuMemSetAccess(buffer->address, buffer->bytes, &access, 1));
}

static void come(struct buffer *buffer)
{
    buffer->bytes = (up_to(4) ? 8 + up_to(LARGEST - 8) : 8 + up_to(4096)) / 8 * 8;
    if (held + buffer->bytes + PIECE > most)
        return;
    buffer->kind = (enum kind)(LINEAR + up_to(3));
    if (buffer->kind == LINEAR)
        CHECK(cuMemAlloc_v2(&buffer->address, buffer->bytes));
    else if (buffer->kind == ASYNC)
        CHECK(cuMemAllocAsync(&buffer->address, buffer->bytes, stream));
    else
        map(buffer);
    held += buffer->bytes;
    write_buffer(buffer);
}

static void leave(struct buffer *buffer)
{
    if (buffer->kind == LINEAR) {
        CHECK(cuMemFree_v2(buffer->address));
    } else if (buffer->kind == ASYNC) {
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

/* Run what was captured on the stream, once. */
static void run_captured(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

/* The sum by a graph. */
static const char *sum_up_by_graph(const struct buffer *buffer)
{
    uint64_t words = buffer->bytes / 8, sum = 0;
    CHECK(cuMemcpyHtoD_v2(sum_on_gpu, &sum, sizeof(sum)));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuLaunchKernel(checksum, 1, 1, 1, 1, 1, 1, 0, stream,
                         (void *[]){(void *)&buffer->address, &words, &sum_on_gpu}, NULL));
    run_captured();
    CHECK(cuMemcpyDtoH_v2(&sum, sum_on_gpu, sizeof(sum)));
    return sum == make_content(buffer) ? NULL : "its sum by a graph";
}

/* A copy by a graph. */
static void copy_by_graph(const struct buffer *from, const struct buffer *to)
{
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemcpyDtoDAsync_v2(to->address, from->address, to->bytes, stream));
    run_captured();
}

/* `to` becomes as the beginning of `from`: what a seed makes begins alike at any length. */
static void overwrite(const struct buffer *from, struct buffer *to)
{
    if (from == to || from->kind == NOTHING || from->bytes < to->bytes)
        return;
    (up_to(2) ? copy : copy_by_graph)(from, to);
    to->seed = from->seed;
}

static const char *step(struct buffer *buffer)
{
    if (buffer->kind == NOTHING) {
        come(buffer);
        return NULL;
    }
    switch (up_to(6)) {
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

int main(int count, char **words)
{
    char line[64];
    if (count < 3)
        return 2;
    most = strtoull(words[1], NULL, 10);
    chance = strtoull(words[2], NULL, 10) * 2 + 1;
    CHECK(cuInit(0));
    use_gpu(0);
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
