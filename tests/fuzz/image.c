/* What programs load on the simulated GPU: PTX, cubins, fatbins. */
#include "fuzz.h"
#include "simgpu/code/module.h"

static void check_image(const struct sim_image *image)
{
    for (uint32_t i = 0; i < image->kernel_count; i++) {
        const struct sim_kernel_image *kernel = &image->kernels[i];
        fuzz_require(sim_image_kernel(image, kernel->name));
        fuzz_require(kernel->parameter_count <= SIM_IMAGE_PARAMETERS);
        fuzz_require(kernel->parameter_bytes <= SIM_IMAGE_PARAMETER_BYTES);
        for (uint32_t j = 0; j < kernel->parameter_count; j++)
            fuzz_require(kernel->parameters[j].offset_bytes + kernel->parameters[j].size_bytes <=
                         kernel->parameter_bytes);
    }
    for (uint32_t i = 0; i < image->global_count; i++) {
        const struct sim_global *global = &image->globals[i];
        fuzz_require(sim_image_global(image, global->name));
        for (uint64_t at = 0; global->data && at < global->size_bytes; at += 4096)
            fuzz_require(global->data[at] <= 255); /* is there */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* In memory of exactly its length, aligned as a program's image is. */
    uint8_t *copy = malloc(bytes ? bytes : 1);
    struct error error = {0};
    fuzz_require(copy);
    if (bytes)
        memcpy(copy, data, bytes);
    for (unsigned architecture = 75; architecture <= 90; architecture += 15) {
        struct sim_image *image = NULL;
        CUresult result = sim_image_parse(copy, bytes, architecture, &image, &error);
        fuzz_require((result == CUDA_SUCCESS) == (image != NULL));
        if (image)
            check_image(image);
        else
            fuzz_require(error.message[0]);
        sim_image_free(image);
    }
    free(copy);
    return 0;
}
