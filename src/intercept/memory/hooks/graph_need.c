#include "intercept/memory/hooks/graph_need.h"

#include <sys/mman.h>

#include "cuda/driver_more.h"
#include "intercept/resolve/real.h"

#define DEPTH_MAX 16u
#define GRAIN_BYTES UINT64_C(512) /* allocations are multiples of this */

/* Memory that the graph has allocated up to the node that was read last. */
struct live {
    CUdeviceptr address;
    uint64_t bytes; /* 0: freed */
    CUdevice device;
};

struct reading {
    struct live *lives;
    size_t count, capacity;
    uint64_t now_bytes[LEDGER_GPUS]; /* by CUDA's ordinal */
    struct graph_need *most;
};

static void *pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool make_room(struct reading *reading)
{
    if (reading->count < reading->capacity)
        return true;
    size_t capacity = reading->capacity ? reading->capacity * 2 : 128;
    struct live *bigger = pages(capacity * sizeof(*bigger));
    if (!bigger)
        return false;
    for (size_t i = 0; i < reading->count; i++)
        bigger[i] = reading->lives[i];
    if (reading->lives)
        munmap(reading->lives, reading->capacity * sizeof(*bigger));
    reading->lives = bigger;
    reading->capacity = capacity;
    return true;
}

static void see_alloc(struct reading *reading, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (real(cuGraphMemAllocNodeGetParams)(node, &params) != CUDA_SUCCESS ||
        params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return;
    int device = params.poolProps.location.id;
    if (device < 0 || device >= (int)LEDGER_GPUS || !make_room(reading))
        return;
    uint64_t bytes = (params.bytesize + GRAIN_BYTES - 1) & ~(GRAIN_BYTES - 1);
    reading->lives[reading->count++] = (struct live){params.dptr, bytes, device};
    uint64_t *now = &reading->now_bytes[device], *most = &reading->most->bytes[device];
    *now += bytes;
    if (*now > *most)
        *most = *now;
}

static void see_free(struct reading *reading, CUgraphNode node)
{
    CUdeviceptr address;
    if (real(cuGraphMemFreeNodeGetParams)(node, &address) != CUDA_SUCCESS)
        return;
    for (size_t i = reading->count; i-- > 0;) {
        struct live *live = &reading->lives[i];
        if (live->address != address)
            continue;
        reading->now_bytes[live->device] -= live->bytes;
        live->bytes = 0;
        return;
    }
}

static void read_graph(struct reading *reading, CUgraph graph, unsigned depth)
{
    size_t count = 0;
    if (depth == DEPTH_MAX || real(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    size_t bytes = count * sizeof(CUgraphNode);
    CUgraphNode *nodes = pages(bytes);
    if (!nodes)
        return;
    if (real(cuGraphGetNodes)(graph, nodes, &count) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUgraph child;
        if (real(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            see_alloc(reading, nodes[i]);
        else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            see_free(reading, nodes[i]);
        else if (type == CU_GRAPH_NODE_TYPE_GRAPH && real(cuGraphChildGraphNodeGetGraph) &&
                 real(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) == CUDA_SUCCESS)
            read_graph(reading, child, depth + 1);
    }
    munmap(nodes, bytes);
}

bool graph_need(CUgraph graph, struct graph_need *need)
{
    struct reading reading = {.most = need};
    *need = (struct graph_need){0};
    if (!real(cuGraphGetNodes) || !real(cuGraphNodeGetType) || !real(cuGraphMemAllocNodeGetParams) ||
        !real(cuGraphMemFreeNodeGetParams))
        return false;
    read_graph(&reading, graph, 0);
    if (reading.lives)
        munmap(reading.lives, reading.capacity * sizeof(*reading.lives));
    uint64_t any = 0;
    for (unsigned device = 0; device < LEDGER_GPUS; device++)
        any |= need->bytes[device];
    return any != 0;
}
