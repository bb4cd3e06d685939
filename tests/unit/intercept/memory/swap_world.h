/* swap_world.h - a process with the swap engine on the simulated driver, for the tests of either. */
#pragma once

#include "intercept/memory/engine/resident.h"
#include "intercept/memory/engine/swap.h"
#include "intercept/memory/engine/swap_move.h"
#include "memory/engine_world.h"

#define LIMIT (1024 * MIB)

/* Have the engine call this in place of the driver's. */
#define SET(symbol, function) atomic_store(&real_functions[CUDA_ID_##symbol], (void *)(function))

static inline uint64_t card_free(void)
{
    size_t free_bytes, total_bytes;
    assert_int_equal(real(cuMemGetInfo_v2)(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return free_bytes;
}

/* Bytes that tell where they are and whose. */
static inline void fill(CUdeviceptr address, uint64_t bytes, unsigned seed)
{
    unsigned char *pattern = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++)
        pattern[i] = (unsigned char)((i * 131 + (i >> 8) * 7) ^ seed);
    assert_int_equal(cuMemcpyHtoD_v2(address, pattern, bytes), CUDA_SUCCESS);
    free(pattern);
}

static inline void check(CUdeviceptr address, uint64_t bytes, unsigned seed)
{
    unsigned char *seen = malloc(bytes);
    assert_int_equal(cuMemcpyDtoH_v2(seen, address, bytes), CUDA_SUCCESS);
    for (uint64_t i = 0; i < bytes; i++)
        if (seen[i] != (unsigned char)((i * 131 + (i >> 8) * 7) ^ seed))
            fail_msg("byte %llu of %llu is wrong", (unsigned long long)i, (unsigned long long)bytes);
    free(seen);
}

static uint64_t free_at_first;

static inline int make_context(void **state)
{
    if (cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
        return -1;
    free_at_first = card_free();
    return 0;
}

/* Whatever a test left: all is given back with the context, on the card, in the ledger and in the table. */
static inline int destroy_context(void **state)
{
    swap_state()->arena.limit_bytes = 0;
    swap_state()->is_evicted = false;
    int result = cuCtxDestroy_v2(context) == CUDA_SUCCESS && used() == 0 ? 0 : -1;
    struct swap_bytes bytes = swap_bytes();
    return result == 0 && bytes.resident_bytes == 0 && bytes.evicted_bytes == 0 ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_context, destroy_context)

/* False: there is no simulated driver. */
static inline bool start_world(void)
{
    return start_machine("swap");
}
