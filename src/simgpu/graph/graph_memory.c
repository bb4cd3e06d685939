/* graph_memory.c - memory that graphs allocate. Each device has a share of its own for it: it grows in steps
 * of 2 MiB when a graph is uploaded or launched that needs more, and stays reserved until the program trims
 * it. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/graph/graph.h"
#include "simgpu/memory/heap.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

#define STEP_BYTES (UINT64_C(2) << 20)
#define GRAIN_BYTES UINT64_C(512)

struct graph_memory {
    unsigned gpu;
    uint64_t address, bytes; /* bytes: in grains */
    atomic_uint references;  /* nodes, and one while it is live */
    atomic_bool live;
};

static struct share {
    pthread_mutex_t lock;
    uint64_t reserved_bytes, reserved_high_bytes;
    uint64_t used_bytes, used_high_bytes;
} shares[DEVICE_GPUS] = {
    [0 ... DEVICE_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) & ~(step - 1);
}

CUresult graph_memory_make(unsigned gpu, uint64_t bytes, struct graph_memory **memory_out, uint64_t *address)
{
    if (bytes > device_shape(gpu)->total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->gpu = gpu;
    memory->bytes = round_up(bytes, GRAIN_BYTES);
    atomic_store(&memory->references, 1);
    CUresult result = memory_place(NULL, gpu, MEMORY_GRAPH, bytes, 0, memory, &memory->address);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    *memory_out = memory;
    *address = memory->address;
    return CUDA_SUCCESS;
}

void graph_memory_retain(struct graph_memory *memory)
{
    atomic_fetch_add(&memory->references, 1);
}

void graph_memory_release(struct graph_memory *memory)
{
    struct memory_allocation gone;
    if (atomic_fetch_sub(&memory->references, 1) > 1)
        return;
    heap_free(memory->address, 1u << MEMORY_GRAPH, &gone);
    free(memory);
}

struct graph_memory *graph_memory_at(uint64_t address)
{
    struct memory_allocation allocation;
    if (!memory_find(address, &allocation) || allocation.kind != MEMORY_GRAPH ||
        allocation.address != address)
        return NULL;
    return allocation.owner;
}

bool graph_memory_is_live(const struct graph_memory *memory)
{
    return atomic_load(&memory->live);
}

unsigned graph_memory_gpu(const struct graph_memory *memory)
{
    return memory->gpu;
}

uint64_t graph_memory_bytes(const struct graph_memory *memory)
{
    return memory->bytes;
}

bool graph_memory_is_accessible(const struct memory_allocation *allocation)
{
    return graph_memory_is_live(allocation->owner);
}

bool graph_memory_free_at(uint64_t address)
{
    struct graph_memory *memory = graph_memory_at(address);
    return memory && graph_memory_free(memory) == CUDA_SUCCESS;
}

/* Under the share's lock. */
static bool share_reserve(unsigned gpu, uint64_t bytes)
{
    struct share *share = &shares[gpu];
    uint64_t wanted = share->used_bytes + bytes;
    if (wanted <= share->reserved_bytes)
        return true;
    uint64_t missing = round_up(wanted - share->reserved_bytes, STEP_BYTES);
    if (!device_charge(gpu, missing))
        return false;
    share->reserved_bytes += missing;
    if (share->reserved_bytes > share->reserved_high_bytes)
        share->reserved_high_bytes = share->reserved_bytes;
    return true;
}

bool graph_memory_reserve(unsigned gpu, uint64_t bytes)
{
    pthread_mutex_lock(&shares[gpu].lock);
    bool is_there = share_reserve(gpu, bytes);
    pthread_mutex_unlock(&shares[gpu].lock);
    return is_there;
}

CUresult graph_memory_allocate(struct graph_memory *memory)
{
    struct share *share = &shares[memory->gpu];
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&share->lock);
    if (atomic_load(&memory->live)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (share_reserve(memory->gpu, memory->bytes)) {
        share->used_bytes += memory->bytes;
        if (share->used_bytes > share->used_high_bytes)
            share->used_high_bytes = share->used_bytes;
        graph_memory_retain(memory);
        atomic_store(&memory->live, true);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&share->lock);
    return result;
}

CUresult graph_memory_free(struct graph_memory *memory)
{
    struct share *share = &shares[memory->gpu];
    pthread_mutex_lock(&share->lock);
    bool was_live = atomic_exchange(&memory->live, false);
    if (was_live)
        share->used_bytes -= memory->bytes;
    pthread_mutex_unlock(&share->lock);
    if (was_live)
        graph_memory_release(memory);
    return was_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Give back what is reserved and not used. Under the share's lock. */
static void share_trim(unsigned gpu)
{
    struct share *share = &shares[gpu];
    uint64_t keep = round_up(share->used_bytes, STEP_BYTES);
    if (keep >= share->reserved_bytes)
        return;
    device_credit(gpu, share->reserved_bytes - keep);
    share->reserved_bytes = keep;
}

static bool end_life(struct memory_allocation *allocation, void *gpu)
{
    if (allocation->kind != MEMORY_GRAPH || allocation->gpu != *(const unsigned *)gpu)
        return false;
    struct graph_memory *memory = allocation->owner;
    if (!atomic_exchange(&memory->live, false))
        return false;
    shares[memory->gpu].used_bytes -= memory->bytes;
    /* The nodes' references keep the address, unless they went before. */
    if (atomic_fetch_sub(&memory->references, 1) > 1)
        return false;
    free(memory);
    return true;
}

void graph_memory_drop(unsigned gpu)
{
    pthread_mutex_lock(&shares[gpu].lock);
    heap_free_each(end_life, &gpu);
    share_trim(gpu);
    pthread_mutex_unlock(&shares[gpu].lock);
}

/* --- What a program sees of it --------------------------------------------------------------------- */

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    unsigned gpu = simulator.visible[device];
    pthread_mutex_lock(&shares[gpu].lock);
    share_trim(gpu);
    pthread_mutex_unlock(&shares[gpu].lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    SIM_REQUIRE(value && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    const struct share *share = &shares[simulator.visible[device]];
    pthread_mutex_lock(&shares[simulator.visible[device]].lock);
    const uint64_t values[] = {
        [CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT] = share->used_bytes,
        [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH] = share->used_high_bytes,
        [CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT] = share->reserved_bytes,
        [CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] = share->reserved_high_bytes,
    };
    pthread_mutex_unlock(&shares[simulator.visible[device]].lock);
    memcpy(value, &values[attribute], sizeof(values[attribute]));
    return CUDA_SUCCESS;
}

/* The marks of highest use can only be set to 0, which begins them anew. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    SIM_TRY(sim_ready());
    SIM_TRY(device_check(device));
    SIM_REQUIRE(value);
    uint64_t number;
    memcpy(&number, value, sizeof(number));
    SIM_REQUIRE(number == 0 && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                                attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    struct share *share = &shares[simulator.visible[device]];
    pthread_mutex_lock(&share->lock);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        share->used_high_bytes = share->used_bytes;
    else
        share->reserved_high_bytes = share->reserved_bytes;
    pthread_mutex_unlock(&share->lock);
    return CUDA_SUCCESS;
}
