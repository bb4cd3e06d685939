/* workload.h - what a training program does with its allocator: weights that stay, activations that come and go. */
#pragma once

#include "gallery.h"

struct allocator {
    /* Memory for tensor->bytes, at tensor->at; CUDA_ERROR_OUT_OF_MEMORY when all that can be tried is of no use. */
    CUresult (*alloc)(struct tensor *tensor);
    void (*free)(struct tensor *tensor);
    void (*empty)(void); /* what it keeps for later goes back to the driver; NULL: it never does */
};

/* Of cuMemAlloc, in whole blocks of 2 MiB. */
CUresult linear_alloc(struct tensor *tensor);
void linear_free(struct tensor *tensor);

/* Waits at "full", "half" and "empty". All memory is freed, and what can be emptied is. */
void train(const struct allocator *allocator);

/* The parts, for programs that do more: until so many bytes are had, or there is no more. */
#define TENSORS_MOST 512
struct tensors {
    unsigned count;
    size_t bytes;
    struct tensor list[TENSORS_MOST];
};
void tensors_grow(struct tensors *tensors, const struct allocator *allocator, size_t until_bytes);
void tensors_check(const struct tensors *tensors);
/* Every `step`th is freed; 1: all are. */
void tensors_drop(struct tensors *tensors, const struct allocator *allocator, unsigned step);
