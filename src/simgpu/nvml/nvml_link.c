/* nvml_link.c - libnvidia-ml.so.1 as something to link with: every name is here, and a program that calls one gets the simulated
 * driver's (this library's DT_AUXILIARY leads the dynamic linker there first). So a process that loads both libraries
 * has one simulated machine. */
#include "cuda/nvml.h"

#define NVML_FUNCTION(symbol)                                                                                \
    __attribute__((visibility("default"))) nvmlReturn_t symbol(void);                                        \
    nvmlReturn_t symbol(void)                                                                                \
    {                                                                                                        \
        return NVML_ERROR_LIBRARY_NOT_FOUND;                                                                 \
    }
#include "cuda/nvml_functions.def"
