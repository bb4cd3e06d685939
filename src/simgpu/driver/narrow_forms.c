/* narrow_forms.c - the forms from before CUDA 3.2, whose device addresses and sizes have 32 bits: a 64-bit driver
 * refuses them.
 *
 * NVIDIA's driver answers INVALID_CONTEXT (seen there for cuMemFree: github.com/pmodels/mpich/pull/7091). Nobody
 * here has seen how it treats contexts of cuCtxCreate's oldest form (measure). As in stubs.c the entry points are
 * untyped here: no argument of theirs matters. */
#include "cuda/driver.h"

CUresult
context_current(CUcontext *context); /* sim.h, which has the typed prototypes that must not be seen here */
CUresult sim_ready(void);

static CUresult refuse(void)
{
    CUcontext context;
    CUresult result = sim_ready();
    if (result == CUDA_SUCCESS)
        result = context_current(&context);
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
}

/* gcc would make one function of them all. */
#if defined(__GNUC__) && !defined(__clang__)
#define APART __attribute__((no_icf))
#else
#define APART
#endif

#define NARROW_FORM(symbol)                                                                                  \
    __attribute__((visibility("default"))) APART CUresult symbol(void);                                      \
    CUresult symbol(void)                                                                                    \
    {                                                                                                        \
        return refuse();                                                                                     \
    }
NARROW_FORM(cuMemAlloc)
NARROW_FORM(cuMemAllocHost)
NARROW_FORM(cuMemAllocPitch)
NARROW_FORM(cuMemFree)
NARROW_FORM(cuMemGetAddressRange)
NARROW_FORM(cuMemGetInfo)
NARROW_FORM(cuMemHostGetDevicePointer)
NARROW_FORM(cuMemcpy2D)
NARROW_FORM(cuMemcpy2DAsync)
NARROW_FORM(cuMemcpy2DUnaligned)
NARROW_FORM(cuMemcpy3D)
NARROW_FORM(cuMemcpy3DAsync)
NARROW_FORM(cuMemcpyAtoD)
NARROW_FORM(cuMemcpyDtoA)
NARROW_FORM(cuMemcpyDtoD)
NARROW_FORM(cuMemcpyDtoDAsync)
NARROW_FORM(cuMemcpyDtoH)
NARROW_FORM(cuMemcpyDtoHAsync)
NARROW_FORM(cuMemcpyHtoD)
NARROW_FORM(cuMemcpyHtoDAsync)
NARROW_FORM(cuMemsetD16)
NARROW_FORM(cuMemsetD2D16)
NARROW_FORM(cuMemsetD2D32)
NARROW_FORM(cuMemsetD2D8)
NARROW_FORM(cuMemsetD32)
NARROW_FORM(cuMemsetD8)
NARROW_FORM(cuModuleGetGlobal)
NARROW_FORM(cuTexRefGetAddress)
NARROW_FORM(cuTexRefSetAddress)
NARROW_FORM(cuTexRefSetAddress2D)
