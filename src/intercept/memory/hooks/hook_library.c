/* hook_library.c - calls that may use a library first in a context (library_use.h). */
#include "cuda/driver_more.h"
#include "intercept/memory/library_use.h"
#include "intercept/resolve/real.h"

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    real_needed(cuKernelGetFunction);
    return library_use_kernel(function, kernel);
}

#define USES(symbol, parameters, arguments)                                                                  \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct ahead ahead;                                                                                  \
        real_needed(symbol);                                                                                 \
        ahead_begin(&ahead);                                                                                 \
        return library_used(&ahead, real(symbol) arguments, library);                                        \
    }
USES(cuLibraryGetGlobal, (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
     (address, bytes, library, name))
USES(cuLibraryGetManaged, (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
     (address, bytes, library, name))
USES(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (module, library))
USES(cuLibraryGetUnifiedFunction, (void **function, CUlibrary library, const char *name),
     (function, library, name))
