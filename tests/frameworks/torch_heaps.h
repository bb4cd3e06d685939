/* torch_heaps.h - PyTorch's native caching allocator, on cudaMalloc: one heap for tensors of at most 1 MiB, in segments of 2 MiB,
 * and one for larger ones, in segments of 20 MiB, or as large as the tensor where that has 10 MiB or more. A graph's private pool
 * is another pair. */
#pragma once

#include "heap.h"

struct torch_heaps {
    struct heap small, large;
};

void torch_heaps_begin(struct torch_heaps *heaps);
CUresult torch_alloc(struct torch_heaps *heaps, struct tensor *tensor);
void torch_free(struct torch_heaps *heaps, struct tensor *tensor);
/* torch.cuda.empty_cache(): of every pair of heaps. */
void torch_empty_cache(void);
/* A capture begins or ends: in between nothing goes back to the driver, as that would wait for work. */
void torch_capture(bool begins);
/* The segment of the tensor was given to others, who may use all of it; returns where it begins. */
CUdeviceptr torch_export(const struct tensor *tensor);
