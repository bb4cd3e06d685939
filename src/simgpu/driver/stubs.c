/* stubs.c - an answer for every entry point that nobody here defines: CUDA_ERROR_NOT_SUPPORTED, or NOT_INITIALIZED
 * before cuInit. To implement an entry point, define it elsewhere; the weak one here then gives way. Each is a
 * function of its own, as in the driver: a caller may tell entry points apart by their addresses. */
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda/driver.h"

CUresult sim_ready(void); /* sim.h, which has the typed prototypes that must not be seen here */

static CUresult not_supported(void)
{
    return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

/* gcc would make one function of them all. */
#if defined(__GNUC__) && !defined(__clang__)
#define APART __attribute__((no_icf))
#else
#define APART
#endif

#define CUDA_ENTRY(symbol, name, since, stream, class)                                                       \
    __attribute__((weak, visibility("default"))) APART CUresult symbol(void);                                \
    CUresult symbol(void)                                                                                    \
    {                                                                                                        \
        return not_supported();                                                                              \
    }
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
