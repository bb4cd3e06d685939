/* library.h - modules, libraries and their functions, as handles (images: module.h). */
#pragma once

#include "simgpu/kernels.h"
#include "simgpu/module.h"
#include "simgpu/sim.h"

struct CUfunc_st {
    _Atomic unsigned kind;
    CUmodule module;
    const struct sim_kernel_image *image;
    const struct sim_kernel *kernel;       /* NULL: unknown, takes FAKECUDA_KERNEL_NS and does nothing */
    int attributes[CU_FUNC_ATTRIBUTE_MAX]; /* those that can be set */
};

/* A module of one context; a library's module belongs to it. */
struct CUmod_st {
    _Atomic unsigned kind;
    CUcontext context;
    CUlibrary library; /* or NULL */
    struct sim_image *image;
    CUfunction functions; /* one for each of the image's kernels */
    uint64_t *globals;    /* the address of each of the image's globals */
    CUmodule next;
};

/* CUDA_SUCCESS if the handle is a function of a living module; also takes a CUkernel, as the driver does. */
CUresult function_resolve(CUfunction handle, CUcontext context, CUfunction *function);

/* CUDA_SUCCESS if the handle is a living CUfunction. */
CUresult function_check(CUfunction function);
/* Most threads of a block of it. */
unsigned function_max_threads(const struct sim_kernel_image *image);

/* Modules of a context that goes. */
void library_drop_context(CUcontext context);
