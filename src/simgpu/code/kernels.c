/* kernels.c - the built-in kernels, on the host. Their PTX is examples/kernels.ptx; the two change together.
 */
#include "simgpu/code/kernels.h"

#include <math.h>
#include <string.h>

#include "simgpu/device/faults.h"
#include "simgpu/graph/graph.h"
#include "simgpu/time/execution.h"

static uint64_t argument_u64(void *const *arguments, unsigned index)
{
    uint64_t value;
    memcpy(&value, arguments[index], sizeof(value));
    return value;
}

static uint32_t argument_u32(void *const *arguments, unsigned index)
{
    uint32_t value;
    memcpy(&value, arguments[index], sizeof(value));
    return value;
}

/* Whether the kernel may use `count` elements of `each_bytes` at `address`. Nothing is used when there are
 * none. */
static CUresult check(const struct sim_launch *launch, uint64_t address, uint64_t count, uint64_t each_bytes,
                      bool writes)
{
    uint64_t bytes, end;
    if (!count)
        return CUDA_SUCCESS;
    if (address % each_bytes)
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    if (__builtin_mul_overflow(count, each_bytes, &bytes) || __builtin_add_overflow(address, bytes, &end) ||
        !launch->is_mapped(launch->memory, address, bytes, writes))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_SUCCESS;
}

static CUresult run_fill_u32(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t address = argument_u64(arguments, 0), count = argument_u64(arguments, 2);
    uint32_t value = argument_u32(arguments, 1);
    CUresult result = check(launch, address, count, sizeof(uint32_t), true);
    if (result)
        return result;
    uint32_t *to = (uint32_t *)(uintptr_t)address;
    for (uint64_t i = 0; i < count; i++)
        to[i] = value;
    return CUDA_SUCCESS;
}

static CUresult run_saxpy_f32(const struct sim_launch *launch, void *const *arguments)
{
    /* What fma.rn.f32 gives for every NaN (PTX ISA, "Floating-Point Instructions"); hosts keep payloads. */
    static const uint32_t canonical_nan = 0x7fffffff;
    uint64_t count = argument_u64(arguments, 0);
    uint64_t x_address = argument_u64(arguments, 2), y_address = argument_u64(arguments, 3);
    float a;
    memcpy(&a, arguments[1], sizeof(a));
    CUresult result = check(launch, x_address, count, sizeof(float), false);
    if (!result)
        result = check(launch, y_address, count, sizeof(float), true);
    if (result)
        return result;
    const float *x = (const float *)(uintptr_t)x_address;
    float *y = (float *)(uintptr_t)y_address;
    for (uint64_t i = 0; i < count; i++) {
        float sum = fmaf(a, x[i], y[i]);
        if (isnan(sum))
            memcpy(&sum, &canonical_nan, sizeof(sum));
        y[i] = sum;
    }
    return CUDA_SUCCESS;
}

static CUresult run_checksum_u32(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t address = argument_u64(arguments, 0), count = argument_u64(arguments, 1);
    uint64_t out = argument_u64(arguments, 2);
    CUresult result = check(launch, address, count, sizeof(uint32_t), false);
    if (!result)
        result = check(launch, out, 1, sizeof(uint32_t), true);
    if (result)
        return result;
    const uint32_t *from = (const uint32_t *)(uintptr_t)address;
    uint32_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += from[i];
    __atomic_fetch_add((uint32_t *)(uintptr_t)out, sum ^ fault_of_sum(), __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult run_checksum_u64(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t address = argument_u64(arguments, 0), count = argument_u64(arguments, 1);
    uint64_t out = argument_u64(arguments, 2);
    CUresult result = check(launch, address, count, sizeof(uint64_t), false);
    if (!result)
        result = check(launch, out, 1, sizeof(uint64_t), true);
    if (result)
        return result;
    const uint64_t *from = (const uint64_t *)(uintptr_t)address;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += from[i];
    __atomic_fetch_add((uint64_t *)(uintptr_t)out, sum ^ fault_of_sum(), __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

/* Each thread adds what it has to one address, where additions come one by one. */
static uint64_t duration_checksum(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t threads = (uint64_t)launch->grid[0] * launch->block[0];
    return (uint64_t)((double)threads * constant(SIM_ATOMIC_NS));
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 29) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 32;
}

/* GPU Slice's own (intercept/memory/engine/swap/move/digest_ptx.h), which has this for each of its blocks. */
struct digest_part {
    uint64_t address, first_word, pairs, owner;
};

#define DIGEST_THREADS 256
#define DIGEST_PART_BYTES (UINT64_C(64) << 10)

static void digest_part_run(const struct digest_part *part, uint64_t sums[static 2])
{
    const uint64_t *from = (const uint64_t *)(uintptr_t)part->address;
    uint64_t first = 0, second = 0; /* not in memory, where they might be among the words */
    for (uint64_t i = 0; i < 2 * part->pairs; i++) {
        uint64_t place = part->first_word + i;
        first += mix(from[i] ^ place * UINT64_C(0x9E3779B97F4A7C15));
        second += mix(from[i] + place * UINT64_C(0xD1342543DE82EF95) + UINT64_C(0x2545F4914F6CDD1D));
    }
    sums[0] = first;
    sums[1] = second;
}

/* Nothing is written where the launch is not of the kernel's shape: the card would refuse that launch, by .reqntid. */
static CUresult run_digest_parts(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t address = argument_u64(arguments, 0), out = argument_u64(arguments, 1), blocks = launch->grid[0];
    const uint32_t *block = launch->block;
    if (block[0] != DIGEST_THREADS || block[1] != 1 || block[2] != 1 || launch->grid[1] != 1 ||
        launch->grid[2] != 1)
        return CUDA_ERROR_LAUNCH_FAILED;
    CUresult result = check(launch, address, 4 * blocks, sizeof(uint64_t), false);
    if (!result)
        result = check(launch, out, 2 * blocks, sizeof(uint64_t), true);
    const struct digest_part *parts = (const struct digest_part *)(uintptr_t)address;
    for (uint64_t i = 0; i < blocks && !result; i++)
        result = parts[i].pairs * 16 > DIGEST_PART_BYTES
                     ? CUDA_ERROR_LAUNCH_FAILED
                     : check(launch, parts[i].address, parts[i].pairs, 16, false);
    if (result)
        return result;
    uint64_t *sums = (uint64_t *)(uintptr_t)out;
    for (uint64_t i = 0; i < blocks; i++)
        digest_part_run(&parts[i], sums + 2 * i);
    sums[0] ^= fault_of_sum();
    return CUDA_SUCCESS;
}

/* As fast as the memory, if there are blocks enough to keep it busy. */
static uint64_t duration_digest_parts(const struct sim_launch *launch, void *const *arguments)
{
    const struct digest_part *parts = (const struct digest_part *)(uintptr_t)argument_u64(arguments, 0);
    uint64_t bytes = 0, blocks = launch->grid[0], most = (uint64_t)constant(SIM_BUSY_BLOCKS);
    if (check(launch, argument_u64(arguments, 0), 4 * blocks, sizeof(uint64_t), false))
        return 0;
    for (uint64_t i = 0; i < blocks; i++)
        bytes += 16 * parts[i].pairs;
    return execution_device_ns(blocks < most ? bytes / blocks * most : bytes);
}

static CUresult run_spin_us(const struct sim_launch *launch, void *const *arguments)
{
    return CUDA_SUCCESS;
}

static uint64_t duration_spin_us(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t duration_ns;
    if (__builtin_mul_overflow(argument_u64(arguments, 0), 1000u, &duration_ns))
        return UINT64_MAX;
    return duration_ns;
}

#define STEP_NS 20 /* assumed: eight dependent multiplications */

/* `count` times x * multiplier + addend, from 1: each doubling of the count applies the map to itself. */
static uint32_t step_result(uint64_t count)
{
    uint32_t x = 1, multiplier = 1664525, addend = 1013904223;
    for (; count; count >>= 1) {
        if (count & 1)
            x = x * multiplier + addend;
        addend = addend * multiplier + addend;
        multiplier *= multiplier;
    }
    return x;
}

static CUresult run_steps_u32(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t out = argument_u64(arguments, 1);
    CUresult result = out ? check(launch, out, 1, sizeof(uint32_t), true) : CUDA_SUCCESS;
    if (out && result == CUDA_SUCCESS)
        *(uint32_t *)(uintptr_t)out = step_result(8 * argument_u64(arguments, 0));
    return result;
}

static uint64_t duration_steps_u32(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t duration_ns;
    if (__builtin_mul_overflow(argument_u64(arguments, 0), STEP_NS, &duration_ns))
        return UINT64_MAX;
    return duration_ns;
}

static CUresult run_set_conditional(const struct sim_launch *launch, void *const *arguments)
{
    uint32_t value;
    memcpy(&value, arguments[1], sizeof(value));
    return graph_condition_set(argument_u64(arguments, 0), value) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult run_relaunch_u32(const struct sim_launch *launch, void *const *arguments)
{
    uint64_t address = argument_u64(arguments, 0);
    CUresult result = check(launch, address, 1, sizeof(uint32_t), true);
    if (result)
        return result;
    uint32_t *left = (uint32_t *)(uintptr_t)address;
    if (*left && graph_device_relaunch())
        --*left;
    return CUDA_SUCCESS;
}

static const struct sim_kernel kernels[] = {
    {"gpuslice_digest_parts", 2, {8, 8}, run_digest_parts, duration_digest_parts},
    {"gs_checksum_u32", 3, {8, 8, 8}, run_checksum_u32, duration_checksum},
    {"gs_checksum_u64", 3, {8, 8, 8}, run_checksum_u64, duration_checksum},
    {"gs_fill_u32", 3, {8, 4, 8}, run_fill_u32, NULL},
    {"gs_relaunch_u32", 1, {8}, run_relaunch_u32, NULL},
    {"gs_saxpy_f32", 4, {8, 4, 8, 8}, run_saxpy_f32, NULL},
    {"gs_set_conditional_u32", 2, {8, 4}, run_set_conditional, NULL},
    {"gs_spin_us", 1, {8}, run_spin_us, duration_spin_us, .watches_clock = true},
    {"gs_steps_u32", 2, {8, 8}, run_steps_u32, duration_steps_u32},
};

const struct sim_kernel *sim_kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}
