/* quiet.h - waits until no work may use memory that is about to leave its addresses.
 *
 * No driver promises that cuMemUnmap waits for a kernel that uses the memory, nor that any cuMemFree does: a kernel whose
 * memory goes away breaks its context. So nothing is unmapped before all that was given to the contexts that may reach it
 * is done. cuCtxRecordEvent tells (cuda.h 13.0: it captures all the activities of the context, and of its green ones):
 * it can be asked without holding anybody up. Drivers before 12.5 do not have it, and are waited in (cuCtxSynchronize).
 *
 * Either would invalidate an open capture. While a capture is open, what in_flight.h knows of the streams has to suffice.
 *
 * Called without locks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

#define QUIET_ALL_DEVICES UINT64_MAX
/* How long a free waits for work that may use the memory. Work that takes longer may wait for the thread that frees. */
#define QUIET_PATIENCE_NS UINT64_C(10000000000)

/* Wait until all is done that the contexts on `devices` (a bit for each, by ordinal) were given before this call, but no
 * longer than `patience_ns`, or a second while a capture is open, if nobody has waited so in vain before. CUDA_ERROR_NOT_READY: it is not known to be done. Any
 * other error: what the driver says of `own`, one of these contexts or NULL. */
CUresult quiet_wait(uint64_t devices, CUcontext own, uint64_t patience_ns);

/* An order of all that the current context was given before this call, if it is not done yet; else one without an
 * event. Without one also where none can be made. */
struct order;
void quiet_order(struct order *order);

/* The same for all contexts of a process whose gate is closed and whose work is done as far as its streams tell. A query
 * of a stream need not cover other threads' own default streams: cuda.h says that the legacy stream waits for those, and does
 * not say that its query does. True: it is done. */
bool quiet_is_drained(uint64_t patience_ns);
