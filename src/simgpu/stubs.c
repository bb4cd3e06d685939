/* stubs.c - an answer for every entry point that nobody here defines: CUDA_ERROR_NOT_SUPPORTED, or NOT_INITIALIZED
 * before cuInit. To implement one is to define it elsewhere; this weak alias then gives way. */
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda/driver.h"

CUresult sim_ready(void); /* sim.h, which has the typed prototypes that must not be seen here */

CUresult not_supported(void);

CUresult not_supported(void)
{
    return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

#define CUDA_ENTRY(symbol, name, since, stream, class)                                                       \
    extern __attribute__((weak, alias("not_supported"), visibility("default"))) CUresult symbol(void);
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
