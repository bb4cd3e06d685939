/* foreign.h - variables of systems that do what we do, read as theirs: docs/from-hami.md, docs/from-vgpu.rs.md.
 *
 * They say something about a process on its own alone, never about one that somebody put into a session. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* HAMi's CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_SM_LIMIT, with and without the index of a GPU behind ("_0"), as limits.h reads
 * limits; "" where none is set. `no_limit` is what stands for 0, which is no limit there. False when that does not fit, or a value
 * has characters that no limit has. */
bool foreign_hami_limits(const char *name, const char *no_limit, char *text, size_t bytes);

/* vgpu.rs's DISABLE_GPU_LIMITER and ENABLE_CUDA_HOOKS: the process runs without limits. */
bool foreign_limits_are_off(void);
/* nvshare's NVSHARE_ENABLE_SINGLE_OVERSUB: one process may have more managed memory than the card has. */
bool foreign_says_single_oversubscription(void);
/* vgpu.rs's ENABLE_NVML_HOOKS: NVML shows the whole card. */
bool foreign_nvml_is_off(void);
