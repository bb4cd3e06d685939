/* foreign.h - environment variables of systems that do what GPU Slice does, read with their meaning there:
 * docs/from-hami.md, docs/from-vgpu.rs.md.
 *
 * They count only for a process on its own, never for one that somebody put into a session. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Write HAMi's CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_SM_LIMIT, with and without the index of a GPU behind ("_0"),
 * to `text` in the form that limits.h reads; "" where none is set. HAMi's 0 means no limit; `no_limit` is written for
 * it. False when `text` is too short, or a value has characters that no limit has. */
bool foreign_hami_limits(const char *name, const char *no_limit, char *text, size_t bytes);

/* A variable that limits memory elsewhere and does not here, and is set: KAI's GPU_MEMORY_LIMIT, TensorFusion's
 * TF_GPU_MEMORY_LIMIT and TF_CUDA_MEMORY_LIMIT. NULL: none is. They are not read, as no page of theirs says their unit. */
const char *foreign_unread_limit(void);

/* vgpu.rs's DISABLE_GPU_LIMITER and ENABLE_CUDA_HOOKS: the process runs without limits. */
bool foreign_limits_are_off(void);
/* nvshare's NVSHARE_ENABLE_SINGLE_OVERSUB: one process may have more managed memory than the card has. */
bool foreign_says_single_oversubscription(void);
/* vgpu.rs's ENABLE_NVML_HOOKS: NVML shows the whole card. */
bool foreign_nvml_is_off(void);
