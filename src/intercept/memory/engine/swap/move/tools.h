/* tools.h - the streams and events that the swap engine moves memory with: made with each context, and kept as long as it.
 *
 * The driver reuses handles. A stream that is made for each move might get the handle of one that the program has
 * destroyed. A program that uses its dead handle once more would then be answered as if its stream lived. What is
 * made with the context comes before all that the program makes there. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

struct digest;
struct digest_part;

/* How much went how fast, by the GPU's own clock. */
struct pace {
    uint64_t bytes;
    double ns;
};

struct digester {
    CUmodule module; /* NULL: not loaded */
    CUfunction function;
    struct digest_part *parts; /* of one launch; NULL: no memory yet */
    struct digest *sums;       /* of each part */
    uint32_t count;            /* of parts that wait for the next launch */
    uint64_t bytes;            /* in them */
    struct pace pace;          /* in this move */
};

/* What the moves of a context have shown: a digest that takes longer than the copy that it may save is not worth it. */
struct digests_worth {
    struct pace copies;     /* of the last move out that copied something */
    unsigned slow_moves;    /* in a row, in which digests took longer than copies of as much */
    unsigned moves_without; /* how many moves out take no digests before they are tried again */
};

#define SWAP_CONTEXTS_MAX 64u

struct swap_tools {
    CUcontext context; /* NULL: an unused place */
    CUdevice device;   /* of the context */
    CUstream copies, digests;
    CUevent begun[2], done[2]; /* of a batch's copies; batches take turns (move.h) */
    CUevent digests_begun, digests_done;
    struct digester digester;
    struct pace pace; /* of copies out in this move */
    struct digests_worth worth;
};

/* Under the engine's lock: find those of the current context. What does not exist yet is made; so is what the program
 * has destroyed by an old handle. After a failure some of it is missing. */
CUresult tools_find(CUcontext current, struct swap_tools **tools);

/* A context is gone, with what was made in it. */
void tools_forget_context(CUcontext context);
