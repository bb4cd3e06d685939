/* runtime_forms.c - allocates by the CUDA runtime in the way it is told, as often as it is given, and says
 * what came of it: one line a time, "RESULT FREE_BYTES".
 *
 * usage: runtime_forms FORM BYTES TIMES; FORM is linear, pitch, box, managed, async, pinned, count */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/runtime_prototypes.h"

static cudaError_t allocate(const char *form, size_t bytes)
{
    void *pointer;
    size_t pitch;
    int count;
    struct cudaPitchedPtr box;
    if (strcmp(form, "linear") == 0)
        return cudaMalloc(&pointer, bytes);
    if (strcmp(form, "pitch") == 0)
        return cudaMallocPitch(&pointer, &pitch, 4096, bytes / 4096);
    if (strcmp(form, "box") == 0)
        return cudaMalloc3D(&box, (struct cudaExtent){4096, 4, bytes / 4096 / 4});
    if (strcmp(form, "managed") == 0)
        return cudaMallocManaged(&pointer, bytes, cudaMemAttachGlobal);
    if (strcmp(form, "async") == 0)
        return cudaMallocAsync(&pointer, bytes, NULL);
    if (strcmp(form, "pinned") == 0)
        return cudaMallocHost(&pointer, bytes);
    if (strcmp(form, "count") == 0)
        return cudaGetDeviceCount(&count);
    fprintf(stderr, "runtime_forms: %s is no form\n", form);
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: runtime_forms FORM BYTES TIMES\n");
        return 2;
    }
    for (int times = atoi(argv[3]); times > 0; times--) {
        size_t free_bytes = 0, total_bytes;
        cudaError_t error = allocate(argv[1], strtoull(argv[2], NULL, 10));
        cudaMemGetInfo(&free_bytes, &total_bytes);
        printf("%s %zu\n", cudaGetErrorName(error), free_bytes);
    }
    return 0;
}
