#include "intercept/submit/synchronous.h"

#include "intercept/resolve/real.h"

atomic_bool synchronous_in_use;

CUresult synchronous_end(CUstream stream, CUresult result)
{
    if (result == CUDA_SUCCESS && real(cuStreamSynchronize))
        result = real(cuStreamSynchronize)(stream);
    return result;
}
