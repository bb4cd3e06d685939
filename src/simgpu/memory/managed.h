/* managed.h - managed memory: where its pages are, and where a program wants them.
 *
 * Host and kernels see the same bytes at once, so nothing is copied: a move only takes time and changes where
 * the page is said to be. Pages begin on the host, where programs fill them, and move when they are prefetched,
 * or touched by the GPU's work or a copy. We do not see what the program's own instructions touch, so pages
 * stay where the GPU had them last. Managed memory stays charged to its GPU wherever its pages are; with the
 * constant PAGING it is not charged at all, and takes of a GPU what it has there.
 *
 * place   one bit of a set: bit 0 the host, bit 1 + ordinal a device; a page is nowhere after a discard
 * pages   some of one allocation of which the same is known */
#pragma once

#include "simgpu/driver/sim.h"
#include "simgpu/memory/memory.h"

#define MANAGED_CPU (-1)     /* CU_DEVICE_CPU */
#define MANAGED_NOWHERE (-2) /* CU_DEVICE_INVALID */
#define MANAGED_ON_HOST 1u

struct managed_pages {
    CUmemLocation preferred, prefetched; /* type NONE: none */
    uint32_t accessed_by, resident;      /* sets of places */
    uint64_t used_at; /* the age (paging.h) of the GPU on which they are, when it last used them */
    bool is_read_mostly;
};
extern const struct managed_pages managed_untouched;

/* --- Ranges of allocations side by side: INVALID_VALUE if empty or not all managed memory ---------- */

CUresult managed_check(uint64_t address, uint64_t bytes);

/* Call `change` for all pages of the range, in pieces of `bytes`. */
CUresult managed_change(uint64_t address, uint64_t bytes,
                        void (*change)(struct managed_pages *pages, uint64_t bytes, void *what), void *what);

/* In `change`: the pages are at these places from now on. Returns how many bytes had to leave a GPU for them. */
uint64_t managed_settle(struct managed_pages *pages, uint64_t bytes, uint32_t places);
/* Where they are now: what a full GPU has thrown out is on the host. */
uint32_t managed_places(const struct managed_pages *pages, uint64_t bytes);
/* An allocation, or those of a context, are freed. */
void managed_gone(const struct memory_allocation *allocation);
void managed_gone_context(CUcontext context);

/* What is true of all pages of a range. */
CUresult managed_ask(uint64_t address, uint64_t bytes, struct managed_pages *common);

/* --- Touching -------------------------------------------------------------------------------------- */

/* What one piece of work has to wait for. */
struct managed_faults {
    uint64_t in_bytes, out_bytes; /* over the link, to a device and from one */
    uint64_t in_count, out_count; /* faults, by the same ways */
    uint64_t remote_bytes;        /* used over the link, where they stay */
};

/* Add what happens when the host (MANAGED_CPU) or a device touches the range. Pages that are elsewhere fault,
 * in whole 64 KiB, one fault for each 2 MiB of a stretch: a block of the driver's fault handler. They move,
 * or get one more copy where they are read-mostly and only read; those that are nowhere begin there. A device
 * uses from afar what is advised to be ACCESSED_BY it, or is at its preferred location. Memory that is not
 * managed is left alone. */
void managed_touch(uint64_t address, uint64_t bytes, CUdevice toucher, bool writes,
                   struct managed_faults *faults);
/* The same, written to, from an address to the end of its allocation. */
void managed_touch_rest(uint64_t address, CUdevice toucher, struct managed_faults *faults);

/* Let the stream take the time of moves and faults (FAKECUDA_PAGE_FAULT_NS each), before what comes next. */
void managed_submit(CUcontext context, CUstream stream, const struct managed_faults *faults);

/* Whether the address is of managed memory whose page is on the host. */
bool managed_is_on_host(uint64_t address);

/* --- Locations ------------------------------------------------------------------------------------- */

/* Check a location and make it what is told of it later: the machine shows one NUMA node. */
CUresult managed_location_read(CUmemLocation *location);
bool managed_same_location(CUmemLocation one, CUmemLocation other);
uint32_t managed_place(CUmemLocation location);
/* An ordinal, or one of the two above, as a location; and back. */
CUmemLocation managed_location(CUdevice device);
CUdevice managed_device(CUmemLocation location);
