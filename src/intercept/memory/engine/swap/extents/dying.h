/* dying.h - extents that the program has freed while work may still use them: they end once it does not.
 *
 * Whoever frees waits for that (quiet.h), but not for ever: the work may itself wait for the thread that frees. So an
 * extent that cannot end is left dying, and ends when somebody next finds that all is quiet. A shared extent is not left
 * dying: it is as good for the next small allocation. */
#pragma once

#include "intercept/memory/engine/swap/state.h"

/* An extent that is dying, as the thread knows it that has freed it. */
struct dying {
    uint64_t address, number; /* of the extent; number 0: nothing is dying */
    uint64_t devices;         /* that reach it: a bit for each */
    CUcontext context;
};

/* Under the engine's lock: nobody may use the extent from now on. With `*dying`, call dying_end() without the lock. */
void dying_begin(struct extent *extent, struct dying *dying);

/* End it, when no work uses it any more. CUDA_SUCCESS also if that was not in time: it ends later, or, if it is shared,
 * is used again. After any other answer it lives as before. */
CUresult dying_end(const struct dying *dying, uint64_t patience_ns);

/* End those that can end, and on request the empty shared extents, for which nobody waits. Returns whether any did. Called
 * without locks. */
bool dying_end_all(bool with_empty_ones, uint64_t patience_ns);

/* Under the engine's lock, in a process without work: end all. */
void dying_end_drained(void);
