/* swap_world.h - a process with the swap engine on the simulated driver, for the tests of either. */
#pragma once

#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/move/swap_move.h"
#include "intercept/memory/engine/swap/swap.h"
#include "memory/engine/engine_world.h"

#define LIMIT (1024 * MIB)

/* Have the engine call this in place of the driver's. */
#define SET(symbol, function) atomic_store(&real_functions[CUDA_ID_##symbol], (void *)(function))

static inline uint64_t card_free(void)
{
    size_t free_bytes, total_bytes;
    assert_int_equal(real(cuMemGetInfo_v2)(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return free_bytes;
}

/* Of extents that stay, for whatever reason. */
static inline uint64_t pinned_bytes(void)
{
    uint64_t sum = 0;
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        sum += swap_state()->pinned_bytes[why];
    return sum;
}

/* Bytes that tell where they are and whose. They begin anew after PATTERN_BYTES, so that much memory is filled, and looked at,
 * as fast as it is copied. */
#define PATTERN_BYTES (UINT64_C(64) << 10)

static inline void make_pattern(unsigned char pattern[static PATTERN_BYTES], unsigned seed)
{
    for (uint64_t i = 0; i < PATTERN_BYTES; i++)
        pattern[i] = (unsigned char)((i * 131 + (i >> 8) * 7) ^ seed);
}

static inline uint64_t pattern_part(uint64_t left)
{
    return left < PATTERN_BYTES ? left : PATTERN_BYTES;
}

static inline void fill(CUdeviceptr address, uint64_t bytes, unsigned seed)
{
    unsigned char pattern[PATTERN_BYTES], *all = malloc(bytes);
    make_pattern(pattern, seed);
    for (uint64_t at = 0; at < bytes; at += PATTERN_BYTES)
        memcpy(all + at, pattern, pattern_part(bytes - at));
    assert_int_equal(cuMemcpyHtoD_v2(address, all, bytes), CUDA_SUCCESS);
    free(all);
}

static inline void check(CUdeviceptr address, uint64_t bytes, unsigned seed)
{
    unsigned char pattern[PATTERN_BYTES], *seen = malloc(bytes);
    assert_int_equal(cuMemcpyDtoH_v2(seen, address, bytes), CUDA_SUCCESS);
    make_pattern(pattern, seed);
    for (uint64_t at = 0; at < bytes; at += PATTERN_BYTES)
        if (memcmp(seen + at, pattern, pattern_part(bytes - at)) != 0)
            fail_msg("a byte of the %llu from %llu on is wrong, of %llu", (unsigned long long)PATTERN_BYTES,
                     (unsigned long long)at, (unsigned long long)bytes);
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

/* Whatever a test left: all is given back with the context, on the card, in the ledger and in the table, but for memory of pools,
 * which it has freed. */
static inline int destroy_context(void **state)
{
    CUmemoryPool pool;
    swap_state()->arena.limit_bytes = 0;
    swap_state()->is_evicted = false;
    bool is_done = cuCtxDestroy_v2(context) == CUDA_SUCCESS &&
                   cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS &&
                   cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;
    int result = is_done && used() == 0 ? 0 : -1;
    struct swap_bytes bytes = swap_bytes();
    return result == 0 && bytes.resident_bytes == 0 && bytes.evicted_bytes == 0 ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_context, destroy_context)

/* False: there is no simulated driver. */
static inline bool start_world(void)
{
    return start_machine("swap");
}

/* What was opened to device 1. */
static struct {
    uint64_t bytes;
    unsigned calls;
} opened;
static CUresult (*driver_set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);

static inline CUresult count_opened(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                    size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (access[i].location.id == 1) {
            opened.bytes += bytes;
            opened.calls++;
        }
    return driver_set_access(address, bytes, access, count);
}

/* A peer reaches what there is, what is made later, and both when they have come back: allocations of `bytes`, which are `on_card`
 * there. Those that lie side by side
 * are opened by one call; as they come back, by `most_calls` each. */
static inline void see_a_peer_reach(uint64_t bytes, uint64_t on_card, unsigned most_calls)
{
    CUcontext other;
    CUdeviceptr address = take(bytes);
    driver_set_access = real(cuMemSetAccess);
    SET(cuMemSetAccess, count_opened);
    opened.bytes = opened.calls = 0;
    assert_int_equal(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
    assert_int_equal(cuCtxEnablePeerAccess(context, 0), CUDA_SUCCESS);
    assert_int_equal(opened.bytes, on_card);
    assert_int_equal(opened.calls, 1);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CUdeviceptr later = take(bytes);
    assert_int_equal(opened.bytes, 2 * on_card);
    assert_int_equal(opened.calls, 2);
    assert_int_equal(swap_evict(NULL), CUDA_SUCCESS);
    assert_int_equal(swap_restore(NULL), CUDA_SUCCESS);
    assert_int_equal(opened.bytes, 4 * on_card);
    assert_in_range(opened.calls, 3, 2 + 2 * most_calls);
    SET(cuMemSetAccess, driver_set_access);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(later), CUDA_SUCCESS);
    swap_state()->open_to[0] = 0;
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}
