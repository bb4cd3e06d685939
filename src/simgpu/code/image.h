/* image.h - building a sim_image, for the readers of its formats (ptx.c, cubin.c, fatbin.c).
 *
 * A reader adds what it finds; image_finish() sorts both tables by name, which is what finding relies on. */
#pragma once

#include "simgpu/code/module.h"

struct sim_image *image_new(enum sim_image_kind kind);

/* Add a row, zero but for its name. The pointer is good until the next row. NULL when memory is short. */
struct sim_kernel_image *image_add_kernel(struct sim_image *image, const char *name, size_t name_bytes);
struct sim_global *image_add_global(struct sim_image *image, const char *name, size_t name_bytes);

/* Append a parameter that lies behind the kernel's last one. CUDA_ERROR_INVALID_IMAGE when there are too
 * many. */
CUresult image_add_parameter(struct sim_kernel_image *kernel, uint32_t size_bytes, uint32_t alignment_bytes);

/* False when two kernels have the same name. */
bool image_finish(struct sim_image *image);

/* Set `error` and return `result`. */
CUresult image_fail(struct error *error, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The readers, one a format. They may read all `bytes`, and keep none of them. */
CUresult ptx_parse(const char *text, size_t bytes, unsigned architecture, struct sim_image **parsed,
                   struct error *error);
CUresult cubin_parse(const uint8_t *image, size_t limit_bytes, unsigned architecture,
                     struct sim_image **parsed, struct error *error);
CUresult fatbin_parse(const uint8_t *image, size_t limit_bytes, unsigned architecture,
                      struct sim_image **parsed, struct error *error);

/* Whether a cubin for `code` runs on `architecture`: the same generation, and not a newer one. */
static inline bool image_code_runs(unsigned code, unsigned architecture)
{
    return code / 10 == architecture / 10 && code <= architecture;
}
