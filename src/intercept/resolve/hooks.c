/* hooks.c - the tables of our functions. */
#include "intercept/resolve/hooks.h"

#include <string.h>

#include "cuda/prototypes.h"
#include "intercept/resolve/nvml_prototypes.h"

void *const hook_functions[CUDA_ENTRY_COUNT] = {
#define HOOK(symbol) [CUDA_ID_##symbol] = (void *)(symbol),
#include "intercept/resolve/hooks.def"
};

void *const hook_nvml_functions[NVML_ID_COUNT + 1] = {
#define NVML_HOOK(symbol) [NVML_ID_##symbol] = (void *)(symbol),
#include "intercept/resolve/hooks.def"
};

const char *const hook_nvml_symbols[NVML_ID_COUNT + 1] = {
#define NVML_HOOK(symbol) [NVML_ID_##symbol] = #symbol,
#define NVML_REAL(symbol) [NVML_ID_##symbol] = #symbol,
#include "intercept/resolve/hooks.def"
};

int hook_nvml_find(const char *symbol)
{
    for (int id = 0; id < NVML_ID_COUNT; id++) {
        if (strcmp(hook_nvml_symbols[id], symbol) == 0)
            return id;
    }
    return -1;
}
