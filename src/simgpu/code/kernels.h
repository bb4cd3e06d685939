/* kernels.h - the kernels whose results the simulated GPU really computes.
 *
 * They are chosen by their entry point's name; their PTX is in examples/kernels.ptx, so that a program that
 * loads it gets the same bits from a card and from here. A kernel of any other name does nothing but take
 * time.
 *
 *   gs_fill_u32(u64 pointer, u32 value, u64 count)
 *   gs_saxpy_f32(u64 count, f32 a, u64 x, u64 y)             y[i] = fma(a, x[i], y[i])
 *   gs_checksum_u32(u64 pointer, u64 count, u64 out)         *out += the sum of the words, modulo 2^32
 *   gs_checksum_u64(u64 pointer, u64 count, u64 out)         *out += the sum of the words, modulo 2^64
 *   gs_spin_us(u64 microseconds)                             watches the GPU's timer for that long
 *   gs_steps_u32(u64 steps, u64 out)                         takes 20 ns a step; out, unless 0: see the PTX
 *
 * Of libgpuslice.so's own PTX (src/intercept/memory/engine/swap/move/digest_ptx.h):
 *
 *   gpuslice_digest_parts(u64 parts, u64 sums)               block b: sums[b] = 128 bits of what the words of
 *                                                            parts[b] are
 *
 * Not in the PTX, as a card needs the device runtime for them:
 *
 *   gs_relaunch_u32(u64 left)                                while *left: *left -= 1, and its graph, one made
 *                                                            for launches from the device, runs again behind
 *                                                            its end; elsewhere nothing
 *   gs_set_conditional_u32(u64 handle, u32 value)            what cudaGraphSetConditional does
 *
 * Sums are taken in any order and added to `*out` atomically, so zero it first. The shape of the launch never
 * changes a result. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

/* How a launch sees memory. The simulated GPU's addresses are host addresses. */
struct sim_launch {
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;

    /* Whether device code may use all of address .. address + bytes - 1, which it then does. Called from
     * run() only; with bytes > 0, and never with a range that wraps. */
    bool (*is_mapped)(void *memory, uint64_t address, uint64_t bytes, bool writes);
    void *memory;
};

struct sim_kernel {
    const char *name;
    uint32_t parameter_count;
    uint32_t parameter_bytes[8];

    /* Do the work now. `arguments[i]` points at parameter i's value, of any alignment. Returns
     * CUDA_ERROR_ILLEGAL_ADDRESS, with nothing written, when a range is not mapped, and
     * CUDA_ERROR_MISALIGNED_ADDRESS when a pointer does not have its type's alignment. */
    CUresult (*run)(const struct sim_launch *launch, void *const *arguments);

    /* How long the launch takes on an idle device; NULL: no longer than launching it does. */
    uint64_t (*duration_ns)(const struct sim_launch *launch, void *const *arguments);

    /* It takes `duration_ns` by the GPU's timer, not by what it computes. */
    bool watches_clock;
};

/* The built-in kernel of that name, or NULL. The caller compares parameter sizes with the loaded image's
 * before using it: an image may have another kernel of the same name. */
const struct sim_kernel *sim_kernel_find(const char *name);
