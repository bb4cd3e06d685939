/* torch_graphs - PyTorch's CUDA graphs: what a capture allocates comes from a private pool of segments that the graph keeps, so that
 * it finds its memory at each replay. */
#include "torch_heaps.h"
#include "workload.h"

#define LAYERS 4
#define GRAPHS 2

static struct torch_heaps common, private[GRAPHS];
static CUstream stream;

/* A captured network: each layer writes what the next one reads. */
static struct graph {
    struct torch_heaps *pool;
    CUgraphExec exec;
    struct tensor input, layers[LAYERS];
} graphs[GRAPHS];

static CUresult alloc(struct tensor *tensor)
{
    return torch_alloc(&common, tensor);
}

static void release(struct tensor *tensor)
{
    torch_free(&common, tensor);
}

/* The layers' memory is had while the capture is open. */
static bool capture(struct graph *graph)
{
    CUgraph made;
    CUresult result = CUDA_SUCCESS;
    const struct tensor *from = &graph->input;
    torch_capture(true);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < LAYERS && result == CUDA_SUCCESS; i++) {
        struct tensor *to = &graph->layers[i];
        to->bytes = graph->input.bytes;
        result = torch_alloc(graph->pool, to);
        if (result == CUDA_SUCCESS)
            MUST(cuMemcpyDtoDAsync_v2(to->at, from->at, to->bytes, stream));
        from = to;
    }
    MUST(cuStreamEndCapture(stream, &made));
    torch_capture(false);
    if (result == CUDA_SUCCESS)
        MUST(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
    MUST(cuGraphDestroy(made));
    return result == CUDA_SUCCESS;
}

static void replay(struct graph *graph)
{
    tensor_fill(&graph->input);
    MUST(cuCtxSynchronize());
    MUST(cuGraphLaunch(graph->exec, stream));
    MUST(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < LAYERS; i++) {
        graph->layers[i].seed = graph->input.seed;
        graph->layers[i].tail = graph->input.tail;
        tensor_check(&graph->layers[i]);
    }
}

static void begin_graph(struct graph *graph, struct torch_heaps *pool)
{
    graph->pool = pool;
    torch_heaps_begin(pool);
    graph->input.bytes = wanted_bytes / 4 / GRAPHS / (LAYERS + 1) / 512 * 512;
    if (alloc(&graph->input) != CUDA_SUCCESS || !capture(graph)) {
        gallery_refused();
        graph->exec = NULL;
    }
}

/* The pool's segments go back only when the graph has ended. */
static void end_graph(struct graph *graph)
{
    if (!graph->exec)
        return;
    MUST(cuGraphExecDestroy(graph->exec));
    for (unsigned i = 0; i < LAYERS; i++)
        torch_free(graph->pool, &graph->layers[i]);
    release(&graph->input);
}

static void replay_all(void)
{
    for (unsigned i = 0; i < GRAPHS; i++)
        if (graphs[i].exec)
            replay(&graphs[i]);
}

int main(int argument_count, char **words)
{
    gallery_begin(argument_count, words);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    torch_heaps_begin(&common);
    for (unsigned i = 0; i < GRAPHS; i++)
        begin_graph(&graphs[i], &private[i]);
    replay_all();
    gallery_pause("captured");
    replay_all();
    wanted_bytes -= wanted_bytes / 4;
    train(&(struct allocator){alloc, release, torch_empty_cache});
    replay_all();
    for (unsigned i = 0; i < GRAPHS; i++)
        end_graph(&graphs[i]);
    torch_empty_cache();
    MUST(cuStreamDestroy_v2(stream));
    return gallery_end();
}
