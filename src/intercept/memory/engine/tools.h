/* tools.h - the streams and events that the swap engine moves memory with: made with each context, and kept as long as it.
 *
 * The driver reuses handles. A stream that is made for each move might get the handle of one that the program has
 * destroyed. A program that uses its dead handle once more would then be answered as if its stream lived. What is
 * made with the context comes before all that the program makes there. */
#pragma once

#include "cuda/driver.h"
#include "intercept/memory/engine/digester.h"

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
