/* tools.h - what the swap engine moves memory by, in each context: made with the context, and there as long as it.
 *
 * The driver gives out handles again. A stream that is made for each move would have that of one which the program has
 * destroyed, and a program that uses its own once more would be answered as if that lived. What comes with the context comes
 * before all that the program makes there. */
#pragma once

#include "cuda/driver.h"

#define SWAP_CONTEXTS_MAX 64u

struct swap_tools {
    CUcontext context; /* NULL: an unused place */
    CUstream copies, digests;
    CUevent done[2];   /* a batch's copies, of every other one (move.h) */
    CUfunction digest; /* the kernel of digests; NULL: not loaded yet (clean.h) */
};

/* Under the engine's lock: those of the current context. What is not there yet is made, or made anew where the program has
 * destroyed it by a handle of before. Without success some of it is missing. */
CUresult tools_find(CUcontext current, struct swap_tools **tools);

/* A context has gone, with what was made in it. */
void tools_forget_context(CUcontext context);
