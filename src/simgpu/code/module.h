/* module.h - what is in an image that a program loads: its kernels and its global variables.
 *
 * image    PTX text, a cubin (ELF), or a fatbin that holds several of these for several architectures, bare
 *          or in the wrapper that nvcc makes (`__fatDeviceText`)
 * kernel   an entry point: its name and where its parameters lie
 * global   a module variable that the program can find by name (cuModuleGetGlobal)
 *
 * Nothing here runs or compiles anything: the simulated GPU knows what a kernel does by its name alone
 * (kernels.h). Images are untrusted bytes; whatever they are, parsing ends, stays inside what the image says
 * is its size, and stays inside `limit`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cuda/driver.h"

#define SIM_IMAGE_PARAMETERS 4096u       /* most parameters of one kernel */
#define SIM_IMAGE_PARAMETER_BYTES 32764u /* most bytes of them, as from CUDA 12.1 on */

struct sim_parameter {
    uint32_t offset_bytes;
    uint32_t size_bytes;
};

struct sim_kernel_image {
    char *name;
    uint32_t parameter_count;
    uint32_t parameter_bytes; /* of all, with the padding between them */
    uint32_t shared_bytes;    /* static; 0 where the image does not say (PTX) */
    uint64_t local_bytes;     /* of each thread: arrays in PTX; 0 where the image does not say (cubins) */
    uint32_t max_threads;     /* a block, by .maxntid or .reqntid; 0: no limit of its own */
    struct sim_parameter *parameters;
};

/* What a module variable is. A reference is not memory: it names what cuModuleGetTexRef() and cuModuleGetSurfRef() find. */
enum sim_global_kind { SIM_GLOBAL_MEMORY, SIM_GLOBAL_TEXTURE, SIM_GLOBAL_SURFACE };

struct sim_global {
    char *name;
    enum sim_global_kind kind;
    uint64_t size_bytes;      /* 0 for a reference */
    uint32_t alignment_bytes; /* a power of two */
    bool is_managed;
    uint8_t
        *data; /* size_bytes of initial contents; NULL: zeros, or not known (PTX with symbols or floats) */
};

enum sim_image_kind {
    SIM_IMAGE_PTX,
    SIM_IMAGE_CUBIN,
};

/* Immutable once parsed; owns all it points to, so the bytes it came from may go. */
struct sim_image {
    enum sim_image_kind kind; /* of what was chosen, when a fatbin held several */
    uint32_t ptx_version;     /* 10 * major + minor; 0 for a cubin */
    uint32_t architecture;    /* of the code: 80 for sm_80 */
    uint32_t kernel_count, global_count;
    struct sim_kernel_image *kernels;
    struct sim_global *globals;
};

/* The caller has a pointer and no length, as cuModuleLoadData: PTX ends at its zero, the others say how long
 * they are. */
#define SIM_IMAGE_UNKNOWN_BYTES SIZE_MAX

/* Parse `image` for a GPU of `architecture` (90 for compute capability 9.0). Of a fatbin's entries the newest
 * cubin that runs there is taken, else the newest PTX. `limit_bytes` is the image's length if it is known. A
 * fatbin wrapper holds a pointer, which is followed only when the length is not known. PTX of known length
 * need not end in a zero.
 *
 * Returns CUDA_SUCCESS and sets `*parsed`; or
 *   CUDA_ERROR_INVALID_IMAGE            neither of the formats, or damaged
 *   CUDA_ERROR_INVALID_PTX              PTX text that is not PTX, or for a newer architecture
 *   CUDA_ERROR_UNSUPPORTED_PTX_VERSION  PTX newer than CUDA 13.0's
 *   CUDA_ERROR_NO_BINARY_FOR_GPU        nothing in it runs on this architecture
 *   CUDA_ERROR_INVALID_VALUE            NULL
 *   CUDA_ERROR_OUT_OF_MEMORY
 * with `error` saying why for people (NULL allowed). */
CUresult sim_image_parse(const void *image, size_t limit_bytes, unsigned architecture,
                         struct sim_image **parsed, struct error *error);
void sim_image_free(struct sim_image *image); /* NULL allowed */

/* NULL when the image has nothing of that name. */
const struct sim_kernel_image *sim_image_kernel(const struct sim_image *image, const char *name);
const struct sim_global *sim_image_global(const struct sim_image *image, const char *name);
