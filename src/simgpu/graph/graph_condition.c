/* graph_condition.c - the values that conditional nodes ask. On a card kernels set them
 * (cudaGraphSetConditional); here the built-in kernel gs_set_conditional_u32 does. */
#include <stdlib.h>

#include "simgpu/graph/graph.h"

struct condition {
    struct condition *next;
    CUgraphConditionalHandle handle;
    CUgraph graph;
    unsigned default_value, flags;
    unsigned value;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct condition *conditions; /* of the process; there are few and they stay */
static CUgraphConditionalHandle last_handle = 0x5c0de00000000;

/* Under the lock. */
static struct condition *condition_find(CUgraphConditionalHandle handle)
{
    struct condition *condition = conditions;
    while (condition && condition->handle != handle)
        condition = condition->next;
    return condition;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
                                        unsigned int default_value, unsigned int flags)
{
    SIM_TRY(graph_check(graph));
    SIM_REQUIRE(handle && (flags & ~(unsigned)GRAPH_CONDITION_ASSIGN_DEFAULT) == 0);
    if (context)
        SIM_TRY(context_check(context));
    else
        SIM_TRY(context_current(&context));
    struct condition *condition = calloc(1, sizeof(*condition));
    if (!condition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    condition->graph = graph;
    condition->flags = flags;
    condition->default_value = default_value;
    pthread_mutex_lock(&lock);
    condition->handle = ++last_handle;
    condition->next = conditions;
    conditions = condition;
    pthread_mutex_unlock(&lock);
    *handle = condition->handle;
    return CUDA_SUCCESS;
}

bool graph_condition_exists(CUgraphConditionalHandle handle, CUgraph graph)
{
    /* A body's nodes may ask what belongs to a graph around it. */
    CUgraph outermost = graph;
    while (outermost->parent)
        outermost = outermost->parent->graph;
    pthread_mutex_lock(&lock);
    const struct condition *condition = condition_find(handle);
    bool exists = condition && (condition->graph == graph || condition->graph == outermost);
    pthread_mutex_unlock(&lock);
    return exists;
}

unsigned graph_condition_value(CUgraphConditionalHandle handle)
{
    pthread_mutex_lock(&lock);
    const struct condition *condition = condition_find(handle);
    unsigned value = condition ? condition->value : 0;
    pthread_mutex_unlock(&lock);
    return value;
}

bool graph_condition_set(CUgraphConditionalHandle handle, unsigned value)
{
    pthread_mutex_lock(&lock);
    struct condition *condition = condition_find(handle);
    if (condition)
        condition->value = value;
    pthread_mutex_unlock(&lock);
    return condition != NULL;
}

void graph_condition_begin(CUgraphConditionalHandle handle)
{
    pthread_mutex_lock(&lock);
    struct condition *condition = condition_find(handle);
    if (condition && (condition->flags & GRAPH_CONDITION_ASSIGN_DEFAULT))
        condition->value = condition->default_value;
    pthread_mutex_unlock(&lock);
}
