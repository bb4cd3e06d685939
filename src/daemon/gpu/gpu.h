/* gpu.h - finds a GPU by what users call it. */
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
