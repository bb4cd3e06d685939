/* launch_old.c - the launch calls from before CUDA 4: the program sets a function's block shape and its parameters one
 * by one, and launches it in a grid. What was set stays with the function. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/code/library.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Find a function and what is set of it; the lock is held until old_end(). */
static CUresult old_begin(CUfunction handle, CUfunction *function)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_TRY(context_current(&context));
    SIM_TRY(function_resolve(handle, context, function));
    pthread_mutex_lock(&lock);
    if (!(*function)->old) {
        (*function)->old = calloc(1, sizeof(*(*function)->old));
        if (!(*function)->old) {
            pthread_mutex_unlock(&lock);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        for (unsigned dimension = 0; dimension < 3; dimension++)
            (*function)->old->block[dimension] = 1;
    }
    return CUDA_SUCCESS;
}

static void old_end(void)
{
    pthread_mutex_unlock(&lock);
}

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z)
{
    CUfunction function;
    SIM_REQUIRE(x > 0 && y > 0 && z > 0);
    SIM_TRY(old_begin(handle, &function));
    function->old->block[0] = (unsigned)x;
    function->old->block[1] = (unsigned)y;
    function->old->block[2] = (unsigned)z;
    old_end();
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int bytes)
{
    CUfunction function;
    SIM_TRY(old_begin(handle, &function));
    function->old->shared_bytes = bytes;
    old_end();
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction handle, unsigned int bytes)
{
    CUfunction function;
    SIM_REQUIRE(bytes <= OLD_PARAMETER_BYTES);
    SIM_TRY(old_begin(handle, &function));
    function->old->parameter_bytes = bytes;
    old_end();
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction handle, int offset, void *value, unsigned int bytes)
{
    CUfunction function;
    SIM_REQUIRE(value && offset >= 0 && (unsigned)offset <= OLD_PARAMETER_BYTES &&
                bytes <= OLD_PARAMETER_BYTES - (unsigned)offset);
    SIM_TRY(old_begin(handle, &function));
    memcpy(function->old->parameters + offset, value, bytes);
    old_end();
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned int value)
{
    return cuParamSetv(function, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction function, int offset, float value)
{
    return cuParamSetv(function, offset, &value, sizeof(value));
}

static CUresult launch(CUfunction handle, int width, int height, CUstream stream)
{
    CUfunction function;
    SIM_REQUIRE(width > 0 && height > 0);
    SIM_TRY(old_begin(handle, &function));
    struct old_launch how = *function->old;
    old_end();
    size_t bytes = how.parameter_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, how.parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, how.block[0], how.block[1],
                          how.block[2], how.shared_bytes, stream, NULL, extra);
}

CUresult cuLaunch(CUfunction function)
{
    return launch(function, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return launch(function, width, height, NULL);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return launch(function, width, height, stream);
}
