/* gpu.h - finds a GPU by what users call it, and says how much of its memory programs can have. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "cuda/uuid.h"
#include "daemon/gpu/card.h"

struct daemon;

/* The GPU that users call `text`: an NVML index; "CARD:INSTANCE" by NVML's indices for a MIG instance; or the start of
 * a UUID, with or without "GPU-" or "MIG-". -ENOENT with ERR_GPU_NOT_FOUND, or -EBUSY with ERR_AMBIGUOUS. */
int gpu_find(const struct daemon *daemon, const char *text, unsigned *gpu, struct error *error);
/* The GPU with this UUID; -1: there is none. */
int gpu_find_uuid(const struct daemon *daemon, const uint8_t uuid[static GPU_UUID_BYTES]);

/* Work out from NVML's figures what programs can have on the GPU: all but what the driver keeps for itself. Where NVML
 * says less of that than CUDA, or nothing, CUDA is right. */
void gpu_take_figures(struct gpu *gpu, const struct gpu_figures *figures);
/* The same, now that it is known how large the GPU is for CUDA. */
void gpu_take_cuda_bytes(struct gpu *gpu, uint64_t bytes);
/* The same, with the traits that the probe has found. */
void gpu_take_traits(struct gpu *gpu, uint32_t traits);
