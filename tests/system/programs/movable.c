/* movable - holds GPU memory whose every byte it knows, and looks whether that is what it wrote.
 *
 *   movable BUFFERS BYTES
 *
 * Allocates BUFFERS buffers of up to BYTES, of all sizes, and prints "ready". Of each line on standard input it prints what
 * came of it:
 *
 *   fill SEED      every buffer gets bytes that follow from its number and SEED               "filled"
 *   check          copies every buffer back, and has the GPU sum it up                        "good", or "bad N: ..."
 *   alloc BYTES    one buffer more, of which nothing is known before the next fill            "allocated"
 *   create BYTES   the same, of physical memory that it makes itself, all of it in one         "created"
 *   free           the last one goes                                                          "freed"
 *   ask            what of its memory can be asked without the GPU                            "good", or "bad ..."
 *   touch          a kernel that does nothing                                                 "touched"
 *   work MS        the same, time and again for so long                                       "worked N": so often
 *   toil           the same, until there is another line                                      "worked N"
 *   export         a thread without a context exports physical memory that it makes            "exported", or "bad ..."
 *   name HOW       its addresses are named in a call that gives the GPU nothing (named_by)    "named", or "bad ..."
 *   register       sets all buffers to SYNC_MEMOPS and tells a network card of them              "registered", or "bad N ..."
 *   reach          has the network card read each one                                           "good", or "bad N: ..."
 *   atexit         a handler of exit() makes "check"                                          "will"
 *
 * Ends at the end of input. */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/driver_more.h"
#include "driver_program.h"
#include "simgpu/driver/fakecuda.h"

#define BUFFERS_MOST 4096
#define PTX_CHECKSUM                                                                                         \
    ".visible .entry gs_checksum_u64(.param .u64 from, .param .u64 count, .param .u64 out)\n{\n ret;\n}\n"

static struct buffer {
    CUdeviceptr address;
    size_t bytes;  /* a multiple of 8 */
    uint64_t seed; /* 0: nothing was written there */
    bool is_mapped;
    int registration; /* of the network card */
} buffers[BUFFERS_MOST];
static unsigned count;
static uint64_t *host;
static size_t host_bytes;
static CUfunction checksum, nothing;
static CUdeviceptr sum_on_gpu;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* What the buffer should hold; returns its sum. */
static uint64_t make_content(const struct buffer *buffer, uint64_t *to)
{
    uint64_t state = buffer->seed * UINT64_C(0x9e3779b97f4a7c15) | 1, sum = 0;
    for (size_t i = 0; i < buffer->bytes / 8; i++)
        sum += to[i] = next(&state);
    return sum;
}

static void write_buffer(struct buffer *buffer, uint64_t seed)
{
    buffer->seed = seed;
    make_content(buffer, host);
    CHECK(cuMemcpyHtoD_v2(buffer->address, host, buffer->bytes));
}

static struct buffer *new_buffer(size_t bytes)
{
    struct buffer *buffer = &buffers[count++];
    *buffer = (struct buffer){.bytes = (bytes + 7) / 8 * 8};
    if (buffer->bytes > host_bytes) {
        host_bytes = buffer->bytes;
        host = realloc(host, 2 * host_bytes);
    }
    return buffer;
}

static void allocate(size_t bytes)
{
    struct buffer *buffer = new_buffer(bytes);
    CHECK(cuMemAlloc_v2(&buffer->address, buffer->bytes));
}

/* `bytes`: a multiple of 2 MiB. */
static void create(size_t bytes)
{
    struct buffer *buffer = new_buffer(bytes);
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    buffer->is_mapped = true;
    CHECK(cuMemAddressReserve(&buffer->address, bytes, 0, 0, 0));
    CHECK(cuMemCreate(&handle, bytes, &how, 0));
    CHECK(cuMemMap(buffer->address, bytes, 0, handle, 0));
    CHECK(cuMemRelease(handle)); /* the mapping holds it */
    CHECK(cuMemSetAccess(buffer->address, bytes, &access, 1));
}

static void free_last(void)
{
    const struct buffer *buffer = &buffers[--count];
    if (!buffer->is_mapped) {
        CHECK(cuMemFree_v2(buffer->address));
        return;
    }
    CHECK(cuMemUnmap(buffer->address, buffer->bytes));
    CHECK(cuMemAddressFree(buffer->address, buffer->bytes));
}

static void fill(uint64_t seed)
{
    for (unsigned i = 0; i < count; i++)
        write_buffer(&buffers[i], seed * BUFFERS_MOST + i);
}

static uint64_t sum_by_gpu(const struct buffer *buffer)
{
    uint64_t words = buffer->bytes / 8, sum = 0;
    CHECK(cuMemcpyHtoD_v2(sum_on_gpu, &sum, sizeof(sum)));
    CHECK(cuLaunchKernel(checksum, 1, 1, 1, 1, 1, 1, 0, NULL,
                         (void *[]){(void *)&buffer->address, &words, &sum_on_gpu}, NULL));
    CHECK(cuMemcpyDtoH_v2(&sum, sum_on_gpu, sizeof(sum)));
    return sum;
}

static void look(void)
{
    for (unsigned i = 0; i < count; i++) {
        const struct buffer *buffer = &buffers[i];
        if (!buffer->seed)
            continue;
        uint64_t *expected = host, *found = host + host_bytes / 8, sum = make_content(buffer, expected);
        uint64_t summed = sum_by_gpu(buffer);
        CHECK(cuMemcpyDtoH_v2(found, buffer->address, buffer->bytes));
        if (summed != sum || memcmp(expected, found, buffer->bytes) != 0) {
            printf("bad %u: %zu bytes at %" PRIx64 "\n", i, buffer->bytes, (uint64_t)buffer->address);
            return;
        }
    }
    puts("good");
}

static void ask(void)
{
    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr base;
        size_t bytes;
        CHECK(cuMemGetAddressRange_v2(&base, &bytes, buffers[i].address + buffers[i].bytes / 2));
        if (base != buffers[i].address) {
            printf("bad %u: it begins at %" PRIx64 "\n", i, (uint64_t)base);
            return;
        }
    }
    puts("good");
}

static void touch(void)
{
    CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
}

static unsigned work(uint64_t ms)
{
    uint64_t end_ns = monotonic_ns() + ms * 1000000;
    unsigned done = 0;
    for (; monotonic_ns() < end_ns; done++)
        touch();
    return done;
}

static unsigned toil(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned done = 0;
    for (; poll(&input, 1, 0) == 0; done++)
        touch();
    return done;
}

/* --- Addresses in calls that give the GPU nothing ---------------------------------------------------- */

/* The first two buffers: of the same length. */
#define FROM (buffers[0].address)
#define TO (buffers[4].address)
#define BYTES (buffers[0].bytes)

static CUstream stream;

static CUDA_MEMCPY3D copy_of(CUdeviceptr from, CUdeviceptr to)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = BYTES,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = BYTES,
                           .WidthInBytes = BYTES,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = to, .value = 7, .elementSize = 1, .width = BYTES, .height = 1};
}

static void capture_copy(void)
{
    CHECK(cuMemcpyDtoDAsync_v2(TO, FROM, BYTES, stream));
}

static void capture_peer_copy(void)
{
    CUcontext own;
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuMemcpyPeerAsync(TO, own, FROM, own, BYTES, stream));
}

static void capture_box(void)
{
    CUDA_MEMCPY3D box = copy_of(FROM, TO);
    CHECK(cuMemcpy3DAsync_v2(&box, stream));
}

static void capture_fill(void)
{
    CHECK(cuMemsetD8Async(TO, 7, BYTES, stream));
}

static void capture_write(void)
{
    CHECK(cuStreamWriteValue32_v2(stream, TO, 7, 0));
}

static CUgraph captured(void (*call)(void))
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    call();
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* What a program has before its memory leaves: a graph of a copy and a fill, and what it launches. */
static CUgraph graph;
static CUgraphNode copying, filling;
static CUgraphExec exec;

static void add_copy_and_fill(void)
{
    CUcontext own;
    CUDA_MEMCPY3D copy = copy_of(FROM, TO);
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(TO);
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&filling, graph, NULL, 0, &fill, own));
    CHECK(cuGraphAddMemcpyNode(&copying, graph, &filling, 1, &copy, own));
}

/* Another one like it. */
static void add_copy_and_fill_again(void)
{
    const CUgraph first = graph;
    const CUgraphNode nodes[] = {copying, filling};
    add_copy_and_fill();
    CHECK(cuGraphDestroy(graph));
    graph = first;
    copying = nodes[0];
    filling = nodes[1];
}

static void add_node(void)
{
    CUgraphNode node;
    CUgraph made;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyParams = copy_of(FROM, TO);
    CHECK(cuCtxGetCurrent(&params.memcpy.copyCtx));
    CHECK(cuGraphCreate(&made, 0));
    CHECK(cuGraphAddNode_v2(&node, made, NULL, NULL, 0, &params));
    CHECK(cuGraphDestroy(made));
}

static void set_params(void)
{
    CUDA_MEMCPY3D copy = copy_of(FROM, TO);
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(TO);
    CHECK(cuGraphMemcpyNodeSetParams(copying, &copy));
    CHECK(cuGraphMemsetNodeSetParams(filling, &fill));
}

static void set_params_of_exec(void)
{
    CUcontext own;
    CUDA_MEMCPY3D copy = copy_of(FROM, TO);
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuGraphExecMemcpyNodeSetParams(exec, copying, &copy, own));
}

static void set_fill_of_exec(void)
{
    CUcontext own;
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(TO);
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuGraphExecMemsetNodeSetParams(exec, filling, &fill, own));
}

static void update(void)
{
    CUgraphExecUpdateResultInfo info;
    CHECK(cuGraphExecUpdate_v2(exec, graph, &info));
}

static void instantiate(void)
{
    CUgraphExec made;
    CHECK(cuGraphInstantiateWithFlags(&made, graph, 0));
    CHECK(cuGraphExecDestroy(made));
}

static void make_texture(void)
{
    CUtexObject texture;
    CUDA_TEXTURE_DESC how = {.filterMode = CU_TR_FILTER_MODE_POINT};
    CUDA_RESOURCE_DESC what = {.resType = CU_RESOURCE_TYPE_LINEAR};
    what.res.linear.devPtr = FROM;
    what.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    what.res.linear.numChannels = 1;
    what.res.linear.sizeInBytes = 4096;
    CHECK(cuTexObjectCreate(&texture, &what, &how, NULL));
    CHECK(cuTexObjectDestroy(texture));
}

static const struct {
    const char *name;
    void (*call)(void);
    bool is_captured;
} named_by[] = {
    {"captured-copy", capture_copy, true},
    {"captured-peer-copy", capture_peer_copy, true},
    {"captured-box", capture_box, true},
    {"captured-fill", capture_fill, true},
    {"captured-write", capture_write, true},
    {"copy-and-fill-nodes", add_copy_and_fill_again, false},
    {"node", add_node, false},
    {"set-params", set_params, false},
    {"set-copy-of-exec", set_params_of_exec, false},
    {"set-fill-of-exec", set_fill_of_exec, false},
    {"update", update, false},
    {"instantiate", instantiate, false},
    {"texture", make_texture, false},
};

static void name(const char *how)
{
    if (!stream) {
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        add_copy_and_fill();
        CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    for (size_t i = 0; i < sizeof(named_by) / sizeof(*named_by); i++) {
        if (strncmp(how, named_by[i].name, strlen(named_by[i].name)) != 0)
            continue;
        if (named_by[i].is_captured)
            CHECK(cuGraphDestroy(captured(named_by[i].call)));
        else
            named_by[i].call();
        puts("named");
        return;
    }
    puts("ready to name");
}

/* --- A thread without a context ----------------------------------------------------------------------- */

static void *export_some(void *unused)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUcontext current;
    int fd = -1;
    (void)unused;
    CHECK(cuMemCreate(&handle, 2 << 20, &how, 0));
    CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(cuMemRelease(handle));
    CHECK(cuCtxGetCurrent(&current));
    close(fd);
    puts(current ? "bad: it has a context" : "exported");
    return NULL;
}

static void export_in_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, export_some, NULL) != 0 || pthread_join(thread, NULL) != 0)
        puts("bad: no thread");
}

/* --- A network card ----------------------------------------------------------------------------------- */

static void register_all(void)
{
    const unsigned on = 1;
    for (unsigned i = 0; i < count; i++) {
        CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffers[i].address));
        buffers[i].registration = fakecuda_nic_register(buffers[i].address, buffers[i].bytes);
        if (buffers[i].registration < 0) {
            printf("bad %u: it is not for RDMA\n", i);
            return;
        }
    }
    puts("registered");
}

static void reach(void)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t *expected = host, *found = host + host_bytes / 8;
        make_content(&buffers[i], expected);
        if (fakecuda_nic_read(buffers[i].registration, 0, found, buffers[i].bytes) != 0) {
            printf("bad %u: it has moved\n", i);
            return;
        }
        if (memcmp(expected, found, buffers[i].bytes) != 0) {
            printf("bad %u: it is not what was written\n", i);
            return;
        }
    }
    puts("good");
}

static void obey(const char *line)
{
    if (strncmp(line, "fill ", 5) == 0) {
        fill(strtoull(line + 5, NULL, 10));
        puts("filled");
    } else if (strncmp(line, "alloc ", 6) == 0) {
        allocate(strtoull(line + 6, NULL, 10));
        puts("allocated");
    } else if (strncmp(line, "create ", 7) == 0) {
        create(strtoull(line + 7, NULL, 10));
        puts("created");
    } else if (strncmp(line, "free", 4) == 0) {
        free_last();
        puts("freed");
    } else if (strncmp(line, "check", 5) == 0) {
        look();
    } else if (strncmp(line, "ask", 3) == 0) {
        ask();
    } else if (strncmp(line, "touch", 5) == 0) {
        touch();
        puts("touched");
    } else if (strncmp(line, "export", 6) == 0) {
        export_in_a_thread();
    } else if (strncmp(line, "name ", 5) == 0) {
        name(line + 5);
    } else if (strncmp(line, "register", 8) == 0) {
        register_all();
    } else if (strncmp(line, "reach", 5) == 0) {
        reach();
    } else if (strncmp(line, "atexit", 6) == 0) {
        puts(atexit(look) == 0 ? "will" : "will not");
    } else if (strncmp(line, "work ", 5) == 0) {
        printf("worked %u\n", work(strtoull(line + 5, NULL, 10)));
    } else if (strncmp(line, "toil", 4) == 0) {
        printf("worked %u\n", toil());
    }
    fflush(stdout);
}

int main(int argument_count, char **words)
{
    char line[64];
    if (argument_count < 3)
        return 2;
    unsigned wanted = (unsigned)strtoul(words[1], NULL, 10);
    size_t most = strtoull(words[2], NULL, 10);
    uint64_t state = 1;
    setvbuf(stdin, NULL, _IONBF, 0); /* what was not read yet is all poll() sees */
    CHECK(cuInit(0));
    use_gpu(0);
    CUmodule module = load_module(PTX(PTX_CHECKSUM PTX_NOTHING));
    checksum = find_kernel(module, "gs_checksum_u64");
    nothing = find_kernel(module, "nothing");
    CHECK(cuMemAlloc_v2(&sum_on_gpu, 8));
    for (unsigned i = 0; i < wanted && i < BUFFERS_MOST; i++)
        allocate(i % 4 == 0 ? most : 8 + next(&state) % (i % 4 == 1 ? 4096 : most));
    fill(1);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        obey(line);
    return 0;
}
