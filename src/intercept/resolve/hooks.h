/* hooks.h - the functions that stand in front of the driver's and NVML's, as tables (rows: hooks.def).
 *
 * hook   a function of ours with a driver function's name and prototype. It is what a linked caller gets, and
 *        what resolution hands out in place of the driver's own. It reaches what it stands in front of by
 *        real(). */
#pragma once

#include "cuda/entry_points.h"

/* Rows of hooks.def that are NVML's, hooked and called: NVML_ID_nvmlDeviceGetMemoryInfo. */
enum nvml_id {
#define NVML_HOOK(symbol) NVML_ID_##symbol,
#define NVML_REAL(symbol) NVML_ID_##symbol,
#include "intercept/resolve/hooks.def"
    NVML_ID_COUNT
};

/* Our function for an entry point; NULL where we have none. */
extern void *const hook_functions[CUDA_ENTRY_COUNT];
/* One more than the count: there may be no row. */
extern void *const hook_nvml_functions[NVML_ID_COUNT + 1];
extern const char *const hook_nvml_symbols[NVML_ID_COUNT + 1];

/* The row of an NVML symbol, or -1. */
int hook_nvml_find(const char *symbol);
