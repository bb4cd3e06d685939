/* peer_copies.h - copies and memsets of memory that the card that would carry them out cannot reach.
 *
 * The driver carries them out for memory of cuMemAlloc, whichever card has it and whichever way a program asks. Of memory that
 * is mapped to addresses it knows the cards only by what may be reached: those of the stream, or of the current context. An
 * engine that puts such memory in place of cuMemAlloc's registers a function that tells where memory is. Then
 *
 *   between cards   the copy names both contexts (cuMemcpyPeer; PyTorch's allocator does so for its expandable segments)
 *   elsewhere       what has to do with one card alone is done in a context of that card (elsewhere.h)
 *
 * A call is described as the parameters of a graph's node (`work`), whichever call it is. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "cuda/driver_more.h"

struct peer_place {
    CUcontext context;  /* one of the card that has the memory, and lives */
    CUdevice device;    /* that card */
    uint64_t reachable; /* by which devices: a bit for each, by ordinal */
};

/* Where memory of the engine is. False: the address is not the engine's, or no context of its card is known. */
typedef bool peer_places_finder(CUdeviceptr address, struct peer_place *place);
extern peer_places_finder *_Atomic peer_places_find;

static inline bool peer_copies_are_possible(void)
{
    return __builtin_expect(atomic_load_explicit(&peer_places_find, memory_order_relaxed) != NULL, false);
}

enum peer_way {
    PEER_AS_GIVEN, /* the driver can do it as the program asked */
    PEER_BETWEEN,  /* a copy that has to name contexts */
    PEER_ELSEWHERE /* what one context has to do */
};

/* Of the memory at each end. Both are the same where one context can do all of it. NULL: no memory of the engine's. */
struct peer_contexts {
    CUcontext to, from;
};

/* How to do `work` (a copy or a memset; nothing else is), where `asked` would carry it out (NULL: the current context). */
enum peer_way peer_copies_way(const CUgraphNodeParams *work, CUcontext asked, struct peer_contexts *contexts);

/* The copy of `work`, with the contexts. */
CUDA_MEMCPY3D_PEER peer_copies_box(const CUgraphNodeParams *work, const struct peer_contexts *contexts);

/* Do `work` in `stream`, or in its order. False: the driver is to do it as the program asked, or to refuse it; then nothing was
 * done. `is_sync`: the call has no stream, and returns once it is done, as far as the driver does. */
bool peer_copies_do(const CUgraphNodeParams *work, CUstream stream, bool is_sync, CUresult *result);

/* For a row of REACHES: call the driver, or do in its place what it could not. In a batch with such a copy, each is a call by
 * itself. */
#define SUBMITS(symbol, form, stream, ...)
#define REACHES(symbol, form, stream, kind, ...) CUresult peer_copies_##symbol(__VA_ARGS__);
#include "intercept/submit/submit.def"
