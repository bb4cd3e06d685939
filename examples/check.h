/* check.h - the CUDA driver API, and CHECK(), which ends the program with a line that names the call that
 * failed.
 *
 * Within GPU Slice's tree the examples use its own description of the API, so that they build without a CUDA
 * toolkit; elsewhere they use NVIDIA's cuda.h: cc -I/usr/local/cuda/include saxpy.c -lcuda -lm */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#if __has_include("cuda/prototypes.h")
#include "cuda/prototypes.h"
#else
#include <cuda.h>
#endif

static inline void check(CUresult result, const char *call)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s\nfailed: %s (%d)\n", call, name ? name : "unknown error", (int)result);
    exit(1);
}
#define CHECK(call) check((call), #call)
