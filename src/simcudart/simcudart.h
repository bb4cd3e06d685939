/* simcudart.h - the parts of the stand-in for NVIDIA's runtime library, libcudart.so.12 and libcudart.so.13.
 *
 * It is a thin layer over the driver's public entry points and knows nothing of the simulated GPU behind
 * them. Like NVIDIA's it finds them by dlopen("libcuda.so.1"), dlsym("cuGetProcAddress_v2") and one query a
 * name, so whatever stands between a program and the driver sees this runtime's calls as it sees the real
 * one's. The same sources make both libraries; CUDART_MAJOR says which.
 *
 * program   one image of device code that the host program registered (nvcc's start-up code does), with the
 *           kernels and variables in it; given to the driver when something of it is first used
 * kernel    a registered kernel; the host knows it by the address of its stand-in function
 * form      of a call, what stream 0 means in it: the legacy default stream, or the thread's own (the _ptsz
 *           and _ptds symbols, for programs compiled with --default-stream per-thread) */
#pragma once

#include <stdbool.h>

#include "cuda/entry_points.h"
#include "cuda/prototypes.h"
#include "cuda/runtime_prototypes.h"

#define RUNTIME_DEVICES 64

enum form { LEGACY_FORM, PER_THREAD_FORM };

/* The driver's function behind a row of the entry-point table. Never NULL after runtime_need_driver(): what
 * the driver lacks answers CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER. */
void *driver_entry(enum cuda_entry_id id);

/* DRIVER(cuMemAlloc_v2)(&address, bytes); and with a choice of form, DRIVER_FORM(form, cuMemcpyHtoD_v2,
 * _ptds)(...) */
#define DRIVER(symbol) ((__typeof__(&symbol))driver_entry(CUDA_ID_##symbol))
#define DRIVER_FORM(form, symbol, suffix)                                                                    \
    ((__typeof__(&symbol))driver_entry((form) == PER_THREAD_FORM ? CUDA_ID_##symbol##suffix                  \
                                                                 : CUDA_ID_##symbol))

/* Load and initialise the driver, once a process. Every call returns what that returned. */
cudaError_t runtime_need_driver(void);

/* The CUDA version of the driver, whether or not it will do; 0 without one. */
int runtime_driver_number(void);
/* The same, and make the primary context of the thread's device current if the thread has no context. */
cudaError_t runtime_need_context(void);
/* The primary context of a device, made if need be. The thread's current context does not change. */
cudaError_t runtime_primary_context(int device, CUcontext *context);
/* How often a device was reset. After a reset, managed variables are somewhere else. */
unsigned runtime_resets(void);

cudaError_t runtime_translate(CUresult result);
/* What every call ends with: remember a failure for cudaGetLastError(). */
cudaError_t runtime_answer(cudaError_t error);
void runtime_forget_errors(void);

#define RUNTIME_TRY(call)                                                                                    \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess)                                                                           \
            return error_;                                                                                   \
    } while (0)
#define RUNTIME_REQUIRE(condition, error)                                                                    \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return (error);                                                                                  \
    } while (0)

/* Define two exports, both forms of one call: `body(form, arguments...)` does the work and its answer is
 * recorded. */
#define UNPACK(...) __VA_ARGS__
#define EXPORT_FORMS(name, suffix, body, parameters, arguments)                                              \
    cudaError_t name parameters                                                                              \
    {                                                                                                        \
        return runtime_answer(body(LEGACY_FORM, UNPACK arguments));                                          \
    }                                                                                                        \
    cudaError_t name##suffix parameters                                                                      \
    {                                                                                                        \
        return runtime_answer(body(PER_THREAD_FORM, UNPACK arguments));                                      \
    }
#define EXPORT(name, body, parameters, arguments)                                                            \
    cudaError_t name parameters                                                                              \
    {                                                                                                        \
        return runtime_answer(body arguments);                                                               \
    }

/* What the driver knows as the kernel that a host program means (by its stand-in function, or by a handle),
 * and the kernel's function in the current context. cudaErrorInvalidDeviceFunction if it is not a kernel. */
cudaError_t program_kernel(const void *host, CUkernel *kernel);
cudaError_t program_function(const void *host, CUfunction *function);
/* The reverse: what the host calls `kernel`; `kernel` itself if the host did not register it. */
void *program_host_of(CUkernel kernel);
/* A handle that came from the driver may stand for a kernel from now on. */
void program_adopt_kernel(CUkernel kernel);
/* Where a registered variable is in the current context, and its size; else cudaErrorInvalidSymbol. */
cudaError_t program_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes);

/* The driver's description of a 3D copy. */
cudaError_t copy_describe(const struct cudaMemcpy3DParms *parameters, CUDA_MEMCPY3D *copy);
cudaError_t copy_undescribe(const CUDA_MEMCPY3D *copy, struct cudaMemcpy3DParms *parameters);

/* An element's channels in the driver's words, and back. cudaErrorInvalidChannelDescriptor if no element has
 * such channels. */
cudaError_t array_describe_element(const struct cudaChannelFormatDesc *channels, CUarray_format *format,
                                   unsigned int *count);
cudaError_t array_undescribe_element(CUarray_format format, unsigned int count,
                                     struct cudaChannelFormatDesc *channels);
/* How many bytes one element of an array takes. */
cudaError_t array_element_bytes(cudaArray_const_t array, size_t *bytes);

/* The part of a variable that a copy goes to or comes from. cudaErrorInvalidMemcpyDirection for a kind that
 * says otherwise, cudaErrorInvalidValue outside the variable. */
cudaError_t copy_symbol_target(const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                               void **part);
cudaError_t copy_symbol_source(const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                               void **part);
