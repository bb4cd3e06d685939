/* managed.h - managed memory: where its pages are, and where a program wants them.
 *
 * Host and kernels see the same bytes at once, so nothing is copied. What is known of a page is what the
 * program said of it: pages begin on the host, where programs fill them, and move only by being prefetched.
 * Faults are not seen, so neither are the moves that they cause on a card. Managed memory stays charged to
 * its GPU wherever its pages are.
 *
 * place   one bit of a set: bit 0 the host, bit 1 + ordinal a device; a page is nowhere after a discard
 * pages   some of one allocation of which the same is known */
#pragma once

#include "simgpu/sim.h"

#define MANAGED_CPU (-1)     /* CU_DEVICE_CPU */
#define MANAGED_NOWHERE (-2) /* CU_DEVICE_INVALID */
#define MANAGED_ON_HOST 1u

struct managed_pages {
    CUmemLocation preferred, prefetched; /* type NONE: none */
    uint32_t accessed_by, resident;      /* sets of places */
    bool is_read_mostly;
};
extern const struct managed_pages managed_untouched;

/* --- Ranges, of one or more allocations side by side: INVALID_VALUE if empty or not all managed memory.
 * ------- */

CUresult managed_check(uint64_t address, uint64_t bytes);

/* Call `change` for all pages of the range, in pieces of `bytes`. */
CUresult managed_change(uint64_t address, uint64_t bytes,
                        void (*change)(struct managed_pages *pages, uint64_t bytes, void *what), void *what);

/* What is so of all pages of a range. */
CUresult managed_ask(uint64_t address, uint64_t bytes, struct managed_pages *common);

/* --- Locations ------------------------------------------------------------------------------------- */

/* Checks one, and makes it what is told of it later: the machine shows one NUMA node. */
CUresult managed_location_read(CUmemLocation *location);
bool managed_same_location(CUmemLocation one, CUmemLocation other);
uint32_t managed_place(CUmemLocation location);
/* An ordinal, or one of the two above, as a location; and back. */
CUmemLocation managed_location(CUdevice device);
CUdevice managed_device(CUmemLocation location);
