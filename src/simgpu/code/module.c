/* module.c - telling images apart. */
#include "simgpu/code/module.h"

#include <string.h>

#include "simgpu/code/image.h"

#define ELF_MAGIC "\177ELF"
#define FATBIN_MAGIC UINT32_C(0xba55ed50)
#define WRAPPER_MAGIC UINT32_C(0x466243b1)

/* What nvcc puts into a host program for each device image (crt/host_runtime.h: fatBinaryWrapper). */
struct wrapper {
    uint32_t magic, version;
    const uint8_t *fatbin;
    const void *linked;
};

/* Whether `image` begins with `magic`, reading no further than the first byte that differs: of text we only
 * know that it has a zero somewhere. */
static bool begins_with(const uint8_t *image, size_t limit_bytes, const void *magic, size_t magic_bytes)
{
    for (size_t i = 0; i < magic_bytes; i++)
        if (i >= limit_bytes || image[i] != ((const uint8_t *)magic)[i])
            return false;
    return true;
}

CUresult sim_image_parse(const void *image, size_t limit_bytes, unsigned architecture,
                         struct sim_image **parsed, struct error *error)
{
    static const uint32_t fatbin_magic = FATBIN_MAGIC, wrapper_magic = WRAPPER_MAGIC;
    if (!image || !parsed)
        return image_fail(error, CUDA_ERROR_INVALID_VALUE, "no image was given");
    if (limit_bytes == SIM_IMAGE_UNKNOWN_BYTES &&
        begins_with(image, limit_bytes, &wrapper_magic, sizeof(wrapper_magic))) {
        struct wrapper wrapper;
        memcpy(&wrapper, image, sizeof(wrapper));
        if (!wrapper.fatbin)
            return image_fail(error, CUDA_ERROR_INVALID_IMAGE, "a fatbin wrapper without a fatbin");
        image = wrapper.fatbin;
        if (!begins_with(image, limit_bytes, &fatbin_magic, sizeof(fatbin_magic)))
            return image_fail(error, CUDA_ERROR_INVALID_IMAGE,
                              "a fatbin wrapper that does not point at a fatbin");
    }
    if (begins_with(image, limit_bytes, &fatbin_magic, sizeof(fatbin_magic)))
        return fatbin_parse(image, limit_bytes, architecture, parsed, error);
    if (begins_with(image, limit_bytes, ELF_MAGIC, 4))
        return cubin_parse(image, limit_bytes, architecture, parsed, error);
    return ptx_parse(image, strnlen(image, limit_bytes), architecture, parsed, error);
}
