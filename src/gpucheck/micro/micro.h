/* micro.h - micro-checks: one question each about the driver, answered in seconds. Together they say whether memory
 * may leave this card at all, and what GPU Slice has to wait for.
 *
 * An answer is a figure. It is neither good nor bad by itself: beliefs.def says what is expected, and what follows
 * where it is otherwise. Where the question cannot be put, could_not_try() says why. */
#pragma once

#include "gpucheck/check.h"

#define MICRO_PIECE_BYTES (2 * MIB) /* one piece of memory that the GPU can map */

static inline const char *yes_or_no(bool yes)
{
    return yes ? "yes" : "no";
}

/* How cuMemCreate is asked for plain memory of device 0. */
CUmemAllocationProp micro_plain(void);

/* Memory of ours at an address that stays while what is behind it changes. */
struct micro_memory {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};
/* Reserve an address, and map new memory there; not_run() where the GPU has no virtual memory management. */
void micro_map(struct micro_memory *memory, size_t bytes);
/* Put new memory in the place of the old. */
void micro_remap(struct micro_memory *memory);

/* Start a kernel of MICRO_BUSY_MS that uses no memory. */
#define MICRO_BUSY_MS 200
void micro_start_busy(CUstream stream);
void micro_start_spin(unsigned milliseconds, CUstream stream);
/* Whether work is left in the stream, as its own query tells. */
bool micro_is_busy(CUstream stream);

/* Whether a call waits for the work that was just put into `stream`: begin, call, end. Answers "yes", "no", or NULL
 * if nobody can say, as the work had ended before. */
struct micro_race {
    CUstream stream;
    double begin_s;
    bool was_busy;
};
struct micro_race micro_race_begin(CUstream stream);
const char *micro_race_end(const struct micro_race *race);
