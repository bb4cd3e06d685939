/* graph_objects.c - user objects: things of the program that live as long as the graphs that use them. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/graph/graph.h"

struct CUuserObject_st {
    _Atomic unsigned kind;
    void *pointer;
    CUhostFn destroy;
    atomic_uint count; /* references of the program and of graphs */
    CUuserObject next_free;
};

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static CUuserObject free_objects;

static CUresult object_check(CUuserObject object)
{
    SIM_TRY(sim_ready());
    return object && atomic_load(&object->kind) == SIM_USER_OBJECT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *pointer, CUhostFn destroy,
                            unsigned int references, unsigned int flags)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(object_out && destroy && references > 0 && references <= INT32_MAX);
    SIM_REQUIRE(flags == USER_OBJECT_NO_DESTRUCTOR_SYNC);
    pthread_mutex_lock(&free_lock);
    CUuserObject object = free_objects;
    if (object)
        free_objects = object->next_free;
    pthread_mutex_unlock(&free_lock);
    if (!object && !(object = calloc(1, sizeof(*object))))
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->pointer = pointer;
    object->destroy = destroy;
    atomic_store(&object->count, references);
    atomic_store(&object->kind, SIM_USER_OBJECT);
    *object_out = object;
    return CUDA_SUCCESS;
}

static CUresult object_release(CUuserObject object, unsigned references)
{
    unsigned count = atomic_load(&object->count);
    do {
        SIM_REQUIRE(references > 0 && references <= count);
    } while (!atomic_compare_exchange_weak(&object->count, &count, count - references));
    if (count > references)
        return CUDA_SUCCESS;
    atomic_store(&object->kind, SIM_DESTROYED);
    object->destroy(object->pointer);
    pthread_mutex_lock(&free_lock);
    object->next_free = free_objects;
    free_objects = object;
    pthread_mutex_unlock(&free_lock);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int references)
{
    SIM_TRY(object_check(object));
    SIM_REQUIRE(references > 0 && references <= INT32_MAX);
    atomic_fetch_add(&object->count, references);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int references)
{
    SIM_TRY(object_check(object));
    return object_release(object, references);
}

/* --- Graphs' references ---------------------------------------------------------------------------- */

static struct graph_user_reference *reference_find(CUgraph graph, CUuserObject object)
{
    for (size_t i = 0; i < graph->reference_count; i++)
        if (graph->references[i].object == object)
            return &graph->references[i];
    return NULL;
}

static CUresult reference_add(CUgraph graph, CUuserObject object, unsigned count)
{
    struct graph_user_reference *reference = reference_find(graph, object);
    if (!reference) {
        struct graph_user_reference *references =
            realloc(graph->references, (graph->reference_count + 1) * sizeof(*references));
        if (!references)
            return CUDA_ERROR_OUT_OF_MEMORY;
        graph->references = references;
        reference = &references[graph->reference_count++];
        *reference = (struct graph_user_reference){.object = object};
    }
    reference->count += count;
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    SIM_TRY(graph_check(graph));
    SIM_TRY(object_check(object));
    SIM_REQUIRE(count > 0 && count <= INT32_MAX && (flags & ~(unsigned)GRAPH_USER_OBJECT_MOVE) == 0);
    bool is_moved = flags & GRAPH_USER_OBJECT_MOVE;
    SIM_REQUIRE(!is_moved || count <= atomic_load(&object->count));
    SIM_TRY(reference_add(graph, object, count));
    if (!is_moved)
        atomic_fetch_add(&object->count, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SIM_TRY(graph_check(graph));
    SIM_TRY(object_check(object));
    struct graph_user_reference *reference = reference_find(graph, object);
    SIM_REQUIRE(reference && count > 0 && count <= reference->count);
    reference->count -= count;
    if (reference->count == 0)
        *reference = graph->references[--graph->reference_count];
    return object_release(object, count);
}

/* A copy has one reference of each object, however many the graph has. */
CUresult graph_references_copy(CUgraph to, CUgraph from)
{
    for (size_t i = 0; i < from->reference_count; i++) {
        SIM_TRY(reference_add(to, from->references[i].object, 1));
        atomic_fetch_add(&from->references[i].object->count, 1);
    }
    return CUDA_SUCCESS;
}

void graph_references_release(CUgraph graph)
{
    for (size_t i = 0; i < graph->reference_count; i++)
        object_release(graph->references[i].object, graph->references[i].count);
    free(graph->references);
    graph->references = NULL;
    graph->reference_count = 0;
}
