/* heap.h - a heap of segments that come from the driver, with blocks that are split and joined: what PyTorch's, RMM's and XLA's
 * allocators have in common. How large segments are, when a rest is split off, and where they come from is the framework's.
 *
 * segment  memory that `take` got from the driver in one go
 * block    a part of it that is in use, or free; neighbours that are free are one block */
#pragma once

#include "gallery.h"

#define BLOCKS_MOST 4096

struct heap;

struct heap_rules {
    size_t (*round)(size_t bytes);
    /* What to ask the driver for, so that a block of `bytes` fits. NULL: there are no more segments. */
    CUresult (*take)(struct heap *heap, size_t bytes);
    /* Whether `rest` bytes behind a block of `bytes` become a block of their own. */
    bool (*splits)(const struct heap *heap, size_t bytes, size_t rest);
    /* A whole segment goes back to the driver. NULL: they stay until the heap ends. */
    void (*give)(struct heap *heap, CUdeviceptr at, size_t bytes);
    bool
        joins_segments; /* neighbours join though they came one after the other: they are of one range of addresses */
};

struct block {
    CUdeviceptr at;
    size_t bytes;
    unsigned segment; /* which take() it came of */
    bool is_used;
    uint64_t freed_at; /* by the heap's clock of allocations */
};

struct heap {
    const struct heap_rules *rules;
    void *own; /* the framework's */
    unsigned count, segments;
    uint64_t clock;
    struct block blocks[BLOCKS_MOST]; /* by segment, and by address in it */
};

/* The best block, by a new segment if there is none; what take() answered otherwise. */
CUresult heap_alloc(struct heap *heap, size_t bytes, CUdeviceptr *at);
void heap_free(struct heap *heap, CUdeviceptr at);
/* For take(): a new segment, of which all is free. */
void heap_add(struct heap *heap, CUdeviceptr at, size_t bytes);
/* Segments of which nothing is used go back, if they were freed before `clock`; returns how many bytes did. */
size_t heap_give_back(struct heap *heap, uint64_t freed_before);
/* A part of a free block is no longer the heap's; the caller gives it back. */
void heap_remove(struct heap *heap, CUdeviceptr at, size_t bytes);
/* Free bytes that end at the address, where segments join. */
size_t heap_free_before(const struct heap *heap, CUdeviceptr at);
bool heap_segment_is_free(const struct heap *heap, unsigned block);
