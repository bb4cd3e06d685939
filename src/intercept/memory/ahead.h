/* ahead.h - what the driver takes on its own account in one call, found by comparing the GPU's free memory before and after.
 *
 *   struct ahead ahead;
 *   ahead_begin(&ahead);
 *   CUresult result = real(cuModuleLoadData)(module, image);
 *   if (!ahead_end(&ahead)) ...    it does not fit: undo the call, and answer CUDA_ERROR_OUT_OF_MEMORY
 *
 * Other processes take and give back memory meanwhile. So what was found only counts until the daemon has compared what the card
 * shows for this process (ledger_count_ahead()); a process on its own has no daemon, and counts nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ahead {
    bool is_on;
    uint32_t gpu;
    size_t free_bytes;
    uint64_t found_bytes; /* by ahead_end() */
};

void ahead_begin(struct ahead *ahead);
/* False if what the driver took does not fit. Prints nothing. */
bool ahead_end(struct ahead *ahead);
