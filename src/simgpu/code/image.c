/* image.c - the tables of what is in an image. */
#include "simgpu/code/image.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUresult image_fail(struct error *error, CUresult result, const char *format, ...)
{
    if (error) {
        va_list arguments;
        error->status = result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EINVAL;
        error->code = NULL;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
    }
    return result;
}

struct sim_image *image_new(enum sim_image_kind kind)
{
    struct sim_image *image = calloc(1, sizeof(*image));
    if (image)
        image->kind = kind;
    return image;
}

/* Make room for one more in a table that has `count`: it is full whenever that is a power of two, or 0. */
static void *grown(void *table, uint32_t count, size_t row_bytes)
{
    if (count & (count - 1))
        return table;
    if (count >= UINT32_MAX / 2)
        return NULL;
    return reallocarray(table, count ? (size_t)count * 2 : 1, row_bytes);
}

struct sim_kernel_image *image_add_kernel(struct sim_image *image, const char *name, size_t name_bytes)
{
    struct sim_kernel_image *kernels =
        grown(image->kernels, image->kernel_count, sizeof(struct sim_kernel_image));
    if (!kernels)
        return NULL;
    image->kernels = kernels;
    struct sim_kernel_image kernel = {.name = strndup(name, name_bytes)};
    if (!kernel.name)
        return NULL;
    kernels[image->kernel_count] = kernel;
    return &kernels[image->kernel_count++];
}

struct sim_global *image_add_global(struct sim_image *image, const char *name, size_t name_bytes)
{
    struct sim_global *globals = grown(image->globals, image->global_count, sizeof(struct sim_global));
    if (!globals)
        return NULL;
    image->globals = globals;
    struct sim_global global = {.name = strndup(name, name_bytes), .alignment_bytes = 1};
    if (!global.name)
        return NULL;
    globals[image->global_count] = global;
    return &globals[image->global_count++];
}

CUresult image_add_parameter(struct sim_kernel_image *kernel, uint32_t size_bytes, uint32_t alignment_bytes)
{
    uint64_t offset = kernel->parameter_bytes;
    offset = (offset + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
    if (kernel->parameter_count == SIM_IMAGE_PARAMETERS || offset + size_bytes > SIM_IMAGE_PARAMETER_BYTES)
        return CUDA_ERROR_INVALID_IMAGE;
    struct sim_parameter *parameters =
        grown(kernel->parameters, kernel->parameter_count, sizeof(struct sim_parameter));
    if (!parameters)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->parameters = parameters;
    parameters[kernel->parameter_count++] = (struct sim_parameter){(uint32_t)offset, size_bytes};
    kernel->parameter_bytes = (uint32_t)offset + size_bytes;
    return CUDA_SUCCESS;
}

/* Both tables' rows begin with their name. */
_Static_assert(offsetof(struct sim_kernel_image, name) == 0, "the name is first");
_Static_assert(offsetof(struct sim_global, name) == 0, "the name is first");

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int compare_name_to_row(const void *name, const void *row)
{
    return strcmp(name, *(char *const *)row);
}

bool image_finish(struct sim_image *image)
{
    if (image->global_count)
        qsort(image->globals, image->global_count, sizeof(struct sim_global), compare_names);
    if (image->kernel_count)
        qsort(image->kernels, image->kernel_count, sizeof(struct sim_kernel_image), compare_names);
    for (uint32_t i = 1; i < image->kernel_count; i++)
        if (strcmp(image->kernels[i - 1].name, image->kernels[i].name) == 0)
            return false;
    return true;
}

const struct sim_kernel_image *sim_image_kernel(const struct sim_image *image, const char *name)
{
    if (!image->kernel_count)
        return NULL;
    return bsearch(name, image->kernels, image->kernel_count, sizeof(struct sim_kernel_image),
                   compare_name_to_row);
}

const struct sim_global *sim_image_global(const struct sim_image *image, const char *name)
{
    if (!image->global_count)
        return NULL;
    return bsearch(name, image->globals, image->global_count, sizeof(struct sim_global), compare_name_to_row);
}

void sim_image_free(struct sim_image *image)
{
    if (!image)
        return;
    for (uint32_t i = 0; i < image->kernel_count; i++) {
        free(image->kernels[i].name);
        free(image->kernels[i].parameters);
    }
    for (uint32_t i = 0; i < image->global_count; i++) {
        free(image->globals[i].name);
        free(image->globals[i].data);
    }
    free(image->kernels);
    free(image->globals);
    free(image);
}
