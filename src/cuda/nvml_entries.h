/* nvml_entries.h - how long the entries are that an NVML writes into a list of processes.
 *
 * The same function's entries differ between drivers: those of nvmlDeviceGetComputeRunningProcesses_v3 have 32 bytes from
 * 535.43 to 535.86 and 24 in others. All begin alike (nvml.h). So there is room for the longest, filled with a byte
 * that no entry ends in, and where the writing ended says how long they are:
 *
 *   void *entries = malloc(room * NVML_ENTRY_BYTES_MOST);
 *   nvml_entries_prepare(entries, room);
 *   count = room;
 *   if (list(device, &count, entries) == NVML_SUCCESS)
 *       bytes = nvml_entries_length(entries, room, count);
 */
#pragma once

#include <stddef.h>

#include "cuda/nvml.h"

#define NVML_ENTRY_BYTES_MOST sizeof(nvmlProcessDetail_v1_t)

void nvml_entries_prepare(void *entries, unsigned room);

/* From one of `count` entries to the next; 0 when that is none of the lengths that are known, or there are none. */
size_t nvml_entries_length(const void *entries, unsigned room, unsigned count);
