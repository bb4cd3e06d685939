/* hooks.h - the functions that are called in place of the driver's and NVML's, as tables (rows: hooks.def).
 *
 * hook   a function of ours with a driver function's name and prototype. A program linked with the driver calls it,
 *        and resolution returns it in place of the driver's own function. It calls the function that it replaces
 *        by real(). */
#pragma once

#include "cuda/entry_points.h"

/* Rows of hooks.def that are NVML's, hooked and called: NVML_ID_nvmlDeviceGetMemoryInfo. */
enum nvml_id {
#define NVML_HOOK(symbol) NVML_ID_##symbol,
#define NVML_REAL(symbol) NVML_ID_##symbol,
#include "intercept/resolve/hooks.def"
    NVML_ID_COUNT
};

/* Our function for an entry point; NULL if it is not hooked. */
extern void *const hook_functions[CUDA_ENTRY_COUNT];
/* One element more than rows, since there may be no row. */
extern void *const hook_nvml_functions[NVML_ID_COUNT + 1];
extern const char *const hook_nvml_symbols[NVML_ID_COUNT + 1];

/* The row of an NVML symbol; -1 if there is none. */
int hook_nvml_find(const char *symbol);
