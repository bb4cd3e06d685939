/* occupancy.c - how many blocks of a kernel fit on a multiprocessor: by its threads, its shared memory and
 * the registers that a function says it has, as the card's profile has them. */
#include "simgpu/code/library.h"
#include "simgpu/device/profile.h"

#define FUNCTION_REGISTERS 32 /* of a thread; as cuFuncGetAttribute tells */
#define CLUSTER_BLOCKS                                                                                       \
    8 /* most blocks of a cluster that every card with clusters takes (programming guide) */
#define CLUSTER_BLOCKS_NOT_PORTABLE 16

static int limit_of(CUdevice_attribute attribute)
{
    return profile_value(attribute);
}

static CUresult occupancy(int *blocks, CUfunction function, int block_threads, size_t shared_bytes)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(blocks);
    SIM_TRY(function_check(function));
    SIM_REQUIRE(block_threads > 0);
    *blocks = 0;
    if ((unsigned)block_threads > function_max_threads(function->image))
        return CUDA_SUCCESS;
    int threads = (block_threads + 31) / 32 * 32;
    int most = limit_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    int by_threads = limit_of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / threads;
    int by_registers =
        limit_of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) / (threads * FUNCTION_REGISTERS);
    size_t block_shared = shared_bytes + function->image->shared_bytes;
    if (block_shared > (size_t)limit_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))
        return CUDA_SUCCESS;
    block_shared += (size_t)limit_of(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    if (block_shared > 0) {
        size_t by_shared =
            (size_t)limit_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / block_shared;
        if (by_shared < (size_t)most)
            most = (int)by_shared;
    }
    if (by_threads < most)
        most = by_threads;
    *blocks = by_registers < most ? by_registers : most;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_threads,
                                                     size_t shared_bytes)
{
    return occupancy(blocks, function, block_threads, shared_bytes);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_threads, size_t shared_bytes,
                                                              unsigned int flags)
{
    SIM_REQUIRE(flags <= 1);
    return occupancy(blocks, function, block_threads, shared_bytes);
}

/* The size with the most threads at work; of equals the largest. */
CUresult cuOccupancyMaxPotentialBlockSize(int *grid_blocks, int *block_threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of_block, size_t shared_bytes, int limit)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(grid_blocks && block_threads && limit >= 0);
    SIM_TRY(function_check(function));
    int threads = (int)function_max_threads(function->image), best_threads = 0, best_blocks = 0;
    if (limit > 0 && limit < threads)
        threads = limit;
    while (threads > 0) {
        int blocks;
        SIM_TRY(
            occupancy(&blocks, function, threads, shared_of_block ? shared_of_block(threads) : shared_bytes));
        if (blocks * threads > best_blocks * best_threads) {
            best_threads = threads;
            best_blocks = blocks;
        }
        threads = (threads - 1) / 32 * 32;
    }
    *block_threads = best_threads;
    *grid_blocks = best_blocks * limit_of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_blocks, int *block_threads, CUfunction function,
                                                   CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                                   int limit, unsigned int flags)
{
    SIM_REQUIRE(flags <= 1);
    return cuOccupancyMaxPotentialBlockSize(grid_blocks, block_threads, function, shared_of_block,
                                            shared_bytes, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                                 int block_threads)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(bytes);
    SIM_TRY(function_check(function));
    SIM_REQUIRE(blocks > 0 && block_threads > 0);
    size_t each = (size_t)limit_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / (size_t)blocks;
    size_t fixed = (size_t)limit_of(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) +
                   function->image->shared_bytes;
    size_t most = (size_t)limit_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    size_t room = each > fixed ? each - fixed : 0;
    *bytes = room < most ? room : most;
    return CUDA_SUCCESS;
}

/* --- Clusters: blocks that run at once beside each other ------------------------------------------- */

static unsigned cluster_blocks(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            return config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
                   config->attrs[i].value.clusterDim.z;
    return 1;
}

static CUresult cluster_check(CUfunction function, const CUlaunchConfig *config)
{
    SIM_TRY(function_check(function));
    SIM_REQUIRE(config->numAttrs == 0 || config->attrs);
    return limit_of(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static int cluster_most(CUfunction function)
{
    return function->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]
               ? CLUSTER_BLOCKS_NOT_PORTABLE
               : CLUSTER_BLOCKS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *blocks, CUfunction function, const CUlaunchConfig *config)
{
    int at_once;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(blocks && config);
    SIM_TRY(cluster_check(function, config));
    SIM_TRY(occupancy(&at_once, function, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
                      config->sharedMemBytes));
    *blocks = at_once > 0 ? cluster_most(function) : 0;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config)
{
    int at_once;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(clusters && config);
    SIM_TRY(cluster_check(function, config));
    unsigned size = cluster_blocks(config);
    if (size == 0 || size > (unsigned)cluster_most(function))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    SIM_TRY(occupancy(&at_once, function, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
                      config->sharedMemBytes));
    *clusters = at_once * limit_of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) / (int)size;
    return CUDA_SUCCESS;
}
