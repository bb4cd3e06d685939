/* library.h - modules, libraries and their functions, as handles (images: module.h). */
#pragma once

#include "simgpu/code/kernels.h"
#include "simgpu/code/module.h"
#include "simgpu/driver/sim.h"

/* What the launch calls from before CUDA 4 set (launch_old.c). */
#define OLD_PARAMETER_BYTES 4096u
struct old_launch {
    unsigned block[3];
    unsigned shared_bytes;
    unsigned parameter_bytes;
    _Alignas(16) char parameters[OLD_PARAMETER_BYTES];
};

struct CUfunc_st {
    _Atomic unsigned kind;
    CUmodule module;
    const struct sim_kernel_image *image;
    const struct sim_kernel *kernel;       /* NULL: unknown, takes FAKECUDA_KERNEL_NS and does nothing */
    int attributes[CU_FUNC_ATTRIBUTE_MAX]; /* those that can be set */
    struct old_launch *old;                /* NULL: no such call was made */
};

/* A module of one context; a library's module belongs to it. */
struct CUmod_st {
    _Atomic unsigned kind;
    CUcontext context;
    CUlibrary library; /* or NULL */
    struct sim_image *image;
    CUfunction functions;       /* one for each of the image's kernels */
    uint64_t *globals;          /* the address of each of the image's globals */
    LIST_ENTRY(CUmod_st) entry; /* of the living ones */
    atomic_bool is_loaded;      /* its code is on the GPU */
    uint64_t code_bytes;        /* what that takes */
};

/* A module of each context that uses the library. */
struct CUlib_st {
    _Atomic unsigned kind;
    char *bytes; /* the image, NULL where it stays the program's (it must outlive the library then) */
    const void *image;
    size_t limit_bytes;
    struct sim_image *parsed; /* names and layouts, without a context */
    CUkernel kernels;
};

struct CUkern_st {
    _Atomic unsigned kind;
    CUlibrary library;
    const struct sim_kernel_image *image;
};

#define SIM_LIBRARY 0x51c0de07u
#define SIM_KERNEL 0x51c0de08u

/* CUDA_SUCCESS if the handle is a function of a living module; also takes a CUkernel, as the driver does. */
CUresult function_resolve(CUfunction handle, CUcontext context, CUfunction *function);

/* CUDA_SUCCESS if the handle is a living CUfunction. */
CUresult function_check(CUfunction function);
/* The most threads that a block of the kernel may have. */
unsigned function_max_threads(const struct sim_kernel_image *image);

/* Drop the modules of a context that ends. */
void library_drop_context(CUcontext context);

/* --- Between library.c, library_modules.c and library_functions.c ---------------------------------- */

CUresult module_check(CUmodule module);
CUresult library_check(CUlibrary library);

/* Load the module's code if it is not loaded yet: takes time and memory. OUT_OF_MEMORY. */
CUresult module_load_code(CUmodule module);
/* Whether code is loaded when something of the module is launched first (CUDA_MODULE_LOADING). */
bool module_loading_is_lazy(void);

/* `error` (NULL allowed) says what is wrong with an image. */
CUresult module_make(CUmodule *module, CUcontext context, CUlibrary library, const void *bytes,
                     size_t limit_bytes, struct error *error);
void module_drop(CUmodule module);
/* A living module of the library and the context, either NULL for any; NULL when there is none. */
CUmodule module_find(CUlibrary library, CUcontext context);

/* The library's module in a context, loaded when it is first asked for. */
CUresult library_module(CUlibrary library, CUcontext context, CUmodule *module);

CUresult function_find(CUmodule module, const char *name, CUfunction *function);
/* Either out-parameter may be NULL. */
CUresult global_find(CUmodule module, const char *name, CUdeviceptr *pointer, size_t *bytes);

/* Read a whole file. The caller frees `*bytes`. */
CUresult image_read_file(const char *path, char **bytes, size_t *length);
/* Tell what is wrong with an image where the program asked for that (CU_JIT_ERROR_LOG_BUFFER). */
void image_write_log(const struct error *error, unsigned option_count, const CUjit_option *options,
                     void **option_values);
