/* resolve.c - cuGetProcAddress: every row of the table has an address here. */
#include <stddef.h>

#include "cuda/entry_points.h"

/* This file and stubs.c see the entry points as untyped symbols, so they do not include prototypes.h. */
#define CUDA_ENTRY(symbol, name, since, stream, class) extern CUresult symbol(void);
#pragma GCC visibility push(default)
#include "cuda/entry_points.def"
#pragma GCC visibility pop
#undef CUDA_ENTRY

#include "simgpu/driver/resolve.h"

static CUresult (*const addresses[CUDA_ENTRY_COUNT])(void) = {
#define CUDA_ENTRY(symbol, name, since, stream, class) symbol,
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
};

CUresult resolve_entry(const char *name, void **address, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t both = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!name || !address || (flags & ~both) != 0 || flags == both)
        return CUDA_ERROR_INVALID_VALUE;
    int row = cuda_entry_resolve(name, version, flags);
    if (status)
        *status = row >= 0                    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : row == CUDA_ENTRY_TOO_NEW ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *address = row >= 0 ? (void *)addresses[row] : NULL;
    return row >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
