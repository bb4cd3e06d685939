/* gpu_names.h - which GPUs a person named: each by NVML index or by the beginning of its UUID. Whether they
 * exist is the daemon's to say. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define GPU_NAMES_MAX 64
#define GPU_NAME_BYTES 64 /* "MIG-GPU-" and a UUID with slice numbers fit */

struct gpu_names {
    unsigned count;
    char names[GPU_NAMES_MAX][GPU_NAME_BYTES];
};

/* Add the GPU named by the first `length` bytes of `text`. One that is there already is refused. */
int gpu_names_add(struct gpu_names *names, const char *text, size_t length, struct error *error);

/* Add the GPUs of a list with commas between, like "0,1": all of them or, on failure, none. */
int gpu_names_add_list(struct gpu_names *names, const char *list, struct error *error);

/* Whether `name` is among them, in any case. */
bool gpu_names_contain(const struct gpu_names *names, const char *name);

/* The GPUs that the environment gives a program: CUDA_VISIBLE_DEVICES, and vgpu.rs's TF_VISIBLE_DEVICES, among which indices in
 * the first count where both are set. `names` stays empty where neither is. */
int gpu_names_from_environment(struct gpu_names *names, struct error *error);

/* Read a value of CUDA_VISIBLE_DEVICES. As the CUDA driver reads it: what follows an entry that is no GPU
 * does not count, so "-1" and "" hide every GPU, which is an error here. */
int gpu_names_from_visible_devices(struct gpu_names *names, const char *value, struct error *error);
