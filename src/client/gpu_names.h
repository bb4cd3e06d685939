/* gpu_names.h - the GPUs that a person named, each by NVML index or by the beginning of its UUID. The daemon
 * decides whether they exist. */
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

/* Add the GPU named by the first `length` bytes of `text`. A name that is already in `names` is an error. */
int gpu_names_add(struct gpu_names *names, const char *text, size_t length, struct error *error);

/* Add the GPUs of a comma-separated list, like "0,1": all of them or, on failure, none. */
int gpu_names_add_list(struct gpu_names *names, const char *list, struct error *error);

/* Whether `name` is among them, upper and lower case alike. */
bool gpu_names_contain(const struct gpu_names *names, const char *name);

/* The GPUs that the environment gives a program: those of CUDA_VISIBLE_DEVICES or of vgpu.rs's TF_VISIBLE_DEVICES.
 * If both are set, an index in CUDA_VISIBLE_DEVICES counts in the list of TF_VISIBLE_DEVICES. `names` stays empty
 * if neither is set. */
int gpu_names_from_environment(struct gpu_names *names, struct error *error);

/* Read a value of CUDA_VISIBLE_DEVICES as the CUDA driver does: the list ends at the first entry that is not a GPU.
 * So "-1" and "" hide every GPU, which is an error here. */
int gpu_names_from_visible_devices(struct gpu_names *names, const char *value, struct error *error);
