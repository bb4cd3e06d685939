/* peer_copies.h - copies between the memory of two cards that cannot reach each other, and inside a card that the one whose
 * context is current cannot reach.
 *
 * The driver carries them out for memory of cuMemAlloc, whichever way a program asks. Of memory that is mapped to
 * addresses it knows the cards only by what may be reached, so there the copy must name both contexts
 * (cuMemcpyPeer; PyTorch's allocator does so for its expandable segments). An engine that puts such memory in place of
 * cuMemAlloc's registers a function that tells. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/driver.h"
#include "cuda/driver_more.h"

struct peer_copy {
    CUcontext to, from;
};

/* Whether a copy between these addresses has to name contexts, and which. NULL: none has to. */
typedef bool peer_copies_finder(CUdeviceptr to, CUdeviceptr from, struct peer_copy *found);
extern peer_copies_finder *_Atomic peer_copies_find;

static inline bool peer_copies_is_one(CUdeviceptr to, CUdeviceptr from, struct peer_copy *found)
{
    peer_copies_finder *find = atomic_load_explicit(&peer_copies_find, memory_order_relaxed);
    return __builtin_expect(find != NULL, false) && find(to, from, found);
}

static inline bool peer_copies_are_possible(void)
{
    return __builtin_expect(atomic_load_explicit(&peer_copies_find, memory_order_relaxed) != NULL, false);
}

/* Whether the box (NULL: none) is such a copy; it is then given with its contexts. */
bool peer_copies_name_contexts(const CUDA_MEMCPY3D *copy, CUDA_MEMCPY3D_PEER *box);

/* For a row of COPIES_BOXES: call the driver, by contexts for copies that have to name them. In a batch with such a copy, each
 * is a call by itself. */
#define SUBMITS(symbol, form, stream, ...)
#define COPIES_BOXES(symbol, form, stream, ...) CUresult peer_copies_##symbol(__VA_ARGS__);
#include "intercept/submit/submit.def"
