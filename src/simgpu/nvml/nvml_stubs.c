/* nvml_stubs.c - an answer for every NVML function that nobody here defines: NOT_SUPPORTED, or UNINITIALIZED before
 * nvmlInit. To implement a function, define it elsewhere; the weak one here then gives way. */
#include "cuda/nvml.h"

nvmlReturn_t nvml_ready(void); /* nvml_find.h, which has the typed prototypes that must not be seen here */

static nvmlReturn_t not_supported(void)
{
    nvmlReturn_t result = nvml_ready();
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

#define NVML_FUNCTION(symbol)                                                                                \
    __attribute__((weak, visibility("default"))) nvmlReturn_t symbol(void);                                  \
    nvmlReturn_t symbol(void)                                                                                \
    {                                                                                                        \
        return not_supported();                                                                              \
    }
#include "cuda/nvml_functions.def"
