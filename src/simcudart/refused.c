/* refused.c - answers for what NVIDIA's runtime can do and this one cannot (rows: symbols.def). The simulated
 * GPU has no graphics to share memory with. Copies from array to array that count bytes across rows, and
 * launches on several devices in one call, have long been deprecated. */
#include "simcudart/simcudart.h"

#define WORKS_BOTH(symbol)
#define WORKS_ONLY_12(symbol)
#define WORKS_ONLY_13(symbol)
#define REFUSED_BOTH(symbol)                                                                                 \
    __attribute__((visibility("default"))) cudaError_t refuse_##symbol(void) __asm__(#symbol);               \
    cudaError_t refuse_##symbol(void)                                                                        \
    {                                                                                                        \
        return runtime_answer(cudaErrorNotSupported);                                                        \
    }
#if CUDART_MAJOR == 12
#define REFUSED_ONLY_12 REFUSED_BOTH
#define REFUSED_ONLY_13 WORKS_BOTH
#define REFUSED_BY_12_BOTH REFUSED_BOTH
#else
#define REFUSED_ONLY_12 WORKS_BOTH
#define REFUSED_ONLY_13 REFUSED_BOTH
#define REFUSED_BY_12_BOTH WORKS_BOTH
#endif

#define CUDART_SYMBOL(symbol, versions, what) what##_##versions(symbol)
#include "simcudart/symbols.def"
