/* semaphores.c - semaphores of other APIs, imported by a descriptor.
 *
 * A file that can be mapped stands for one: its first eight bytes are its value, which every process that has the
 * file may read and write as the other API would. OPAQUE_FD is a binary semaphore: signalled is 1, and a wait
 * makes it 0 again. TIMELINE_SEMAPHORE_FD counts: a signal sets it, and a wait is over when it is at least as
 * high.
 *
 * To a stream or a node of a graph both are stream memory operations (memops.h). */
#include "simgpu/time/semaphores.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/graph/capture.h"
#include "simgpu/time/execution.h"
#include "simgpu/time/memops.h"

#define SKIP_FLAGS                                                                                           \
    3u /* CUDA_EXTERNAL_SEMAPHORE_..._SKIP_NVSCIBUF_MEMSYNC, of no meaning here: alone 1 and 2 */

struct CUextSemaphore_st {
    _Atomic unsigned kind; /* SIM_SEMAPHORE; structs stay (sim.h) */
    bool is_timeline;
    uint64_t *value; /* mapped for good: work that nobody waited for may still look at it */
    CUexternalSemaphore next_free;
};

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static CUexternalSemaphore free_semaphores;

static CUexternalSemaphore semaphore_take(void)
{
    pthread_mutex_lock(&free_lock);
    CUexternalSemaphore semaphore = free_semaphores;
    if (semaphore)
        free_semaphores = semaphore->next_free;
    pthread_mutex_unlock(&free_lock);
    return semaphore ? semaphore : calloc(1, sizeof(*semaphore));
}

static void semaphore_give(CUexternalSemaphore semaphore)
{
    pthread_mutex_lock(&free_lock);
    semaphore->next_free = free_semaphores;
    free_semaphores = semaphore;
    pthread_mutex_unlock(&free_lock);
}

static CUresult type_check(CUexternalSemaphoreHandleType type)
{
    switch (type) {
    case CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD:
    case CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD:
        return CUDA_SUCCESS;
    default:
        return type >= CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD &&
                       type <= CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : CUDA_ERROR_INVALID_VALUE;
    }
}

/* Takes the descriptor over when it succeeds (driver API reference). */
CUresult cuImportExternalSemaphore(CUexternalSemaphore *semaphore_out,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *descriptor)
{
    CUcontext context;
    struct stat file;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(semaphore_out && descriptor && descriptor->flags == 0);
    SIM_TRY(context_current(&context));
    SIM_TRY(type_check(descriptor->type));
    SIM_REQUIRE(fstat(descriptor->handle.fd, &file) == 0 && S_ISREG(file.st_mode) &&
                (uint64_t)file.st_size >= sizeof(uint64_t));
    CUexternalSemaphore semaphore = semaphore_take();
    void *value = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor->handle.fd, 0);
    if (!semaphore || value == MAP_FAILED) {
        if (semaphore)
            semaphore_give(semaphore);
        if (value != MAP_FAILED)
            munmap(value, sizeof(uint64_t));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    close(descriptor->handle.fd);
    semaphore->value = value;
    semaphore->is_timeline = descriptor->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    atomic_store(&semaphore->kind, SIM_SEMAPHORE);
    *semaphore_out = semaphore;
    return CUDA_SUCCESS;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore semaphore)
{
    SIM_TRY(sim_ready());
    unsigned kind = SIM_SEMAPHORE;
    if (!semaphore || !atomic_compare_exchange_strong(&semaphore->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_HANDLE;
    semaphore_give(semaphore);
    return CUDA_SUCCESS;
}

/* --- In streams ------------------------------------------------------------------------------------ */

static CUstreamBatchMemOpParams operation(CUstreamBatchMemOpType type,
                                          const struct CUextSemaphore_st *semaphore, uint64_t value,
                                          unsigned flags)
{
    return (CUstreamBatchMemOpParams){.waitValue = {.operation = type,
                                                    .address = (CUdeviceptr)(uintptr_t)semaphore->value,
                                                    .value64 = value,
                                                    .flags = flags}};
}

static CUresult signal_one(CUcontext context, CUstream stream, const struct CUextSemaphore_st *semaphore,
                           uint64_t value)
{
    CUstreamBatchMemOpParams write =
        operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, semaphore, semaphore->is_timeline ? value : 1, 0);
    return memops_submit(context, stream, &write, 1);
}

static CUresult wait_one(CUcontext context, CUstream stream, const struct CUextSemaphore_st *semaphore,
                         uint64_t value)
{
    CUstreamBatchMemOpParams operations[2] = {
        operation(CU_STREAM_MEM_OP_WAIT_VALUE_64, semaphore, semaphore->is_timeline ? value : 1,
                  semaphore->is_timeline ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WAIT_VALUE_EQ),
        operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, semaphore, 0, 0)};
    return memops_submit(context, stream, operations, semaphore->is_timeline ? 1 : 2);
}

static CUresult semaphores_check(const CUexternalSemaphore *semaphores, const void *params, unsigned count)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(semaphores && params && count > 0);
    for (unsigned i = 0; i < count; i++)
        if (!semaphores[i] || atomic_load(&semaphores[i]->kind) != SIM_SEMAPHORE)
            return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

CUresult semaphores_signal_check(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 *what)
{
    SIM_TRY(semaphores_check(what->extSemArray, what->paramsArray, what->numExtSems));
    for (unsigned i = 0; i < what->numExtSems; i++)
        SIM_REQUIRE((what->paramsArray[i].flags & ~SKIP_FLAGS) == 0);
    return CUDA_SUCCESS;
}

CUresult semaphores_wait_check(const CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 *what)
{
    SIM_TRY(semaphores_check(what->extSemArray, what->paramsArray, what->numExtSems));
    for (unsigned i = 0; i < what->numExtSems; i++)
        SIM_REQUIRE((what->paramsArray[i].flags & ~SKIP_FLAGS) == 0);
    return CUDA_SUCCESS;
}

static CUresult all_check(const CUgraphNodeParams *node)
{
    return node->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL ? semaphores_signal_check(&node->extSemSignal)
                                                             : semaphores_wait_check(&node->extSemWait);
}

static CUresult submit_one(CUcontext context, CUstream stream, const CUgraphNodeParams *node, unsigned i)
{
    const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 *signal = &node->extSemSignal;
    const CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 *wait = &node->extSemWait;
    return node->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
               ? signal_one(context, stream, signal->extSemArray[i],
                            signal->paramsArray[i].params.fence.value)
               : wait_one(context, stream, wait->extSemArray[i], wait->paramsArray[i].params.fence.value);
}

/* Check all before submitting the first. */
static CUresult submit_all(CUstream handle, bool per_thread, CUgraphNodeParams node, unsigned count)
{
    CUcontext context;
    CUstream stream;
    CUresult result;
    SIM_TRY(all_check(&node));
    if (capture_is_possible() && capture_node(handle, per_thread, &node, &result))
        return result;
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    for (unsigned i = 0; i < count; i++)
        SIM_TRY(submit_one(context, stream, &node, i));
    return CUDA_SUCCESS;
}

/* The node's type has no const. */
#define ARRAY_OF(semaphores) ((CUexternalSemaphore *)(uintptr_t)(semaphores))

SIM_FORMS(cuSignalExternalSemaphoresAsync, _ptsz,
          (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
           unsigned int count, CUstream stream),
          submit_all(stream, per_thread,
                     (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
                                         .extSemSignal = {ARRAY_OF(semaphores), params, count}},
                     count))
SIM_FORMS(cuWaitExternalSemaphoresAsync, _ptsz,
          (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
           unsigned int count, CUstream stream),
          submit_all(stream, per_thread,
                     (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
                                         .extSemWait = {ARRAY_OF(semaphores), params, count}},
                     count))
