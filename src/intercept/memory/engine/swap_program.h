/* swap_program.h - physical memory that the program makes and maps itself (cuMemCreate), so that it can leave the card.
 *
 * handle      what the program has of such memory: a number of ours, which stays when the driver's handle does not
 * mapping     where the program has mapped it; several may show the same memory
 * reserved    addresses that the program reserved: while the process is evicted, nobody else knows where it may map
 *
 * Moving, it is an extent without an address. What was exported, imported, bound to a multicast object or mapped into an
 * array stays on the card: it is pinned, and what needs the driver's handle gets that. */
#pragma once

#include "intercept/memory/engine/engine.h"
#include "intercept/memory/engine/extents.h"

#define ACCESS_MAX 33u /* GPUs, and the host, that a mapping is open to */

struct mapping {
    uint64_t address, bytes;
    uint32_t extent; /* index */
    uint32_t next,
        previous; /* index + 1 of those of the same extent; of an unused one: the next unused one */
    uint32_t access_count;
    CUmemAccessDesc access[ACCESS_MAX];
};

struct program {
    struct mapping *table; /* of MAPPINGS_MAX; pages that nobody touches cost nothing */
    uint32_t end, spare;   /* as in struct extents */
    uint32_t made_count;   /* handles */
    struct ranges by_address, reserved;
};

extern const struct engine_vmm program_vmm;

/* cuMemCreate and cuMemRelease. */
bool program_can_move(const struct allocation *wanted);
CUresult program_create(const struct allocation *wanted);
CUresult program_release(CUmemGenericAllocationHandle handle);
bool program_is_handle(CUmemGenericAllocationHandle handle);

/* Under the engine's lock: the mapping around an address, and whether its physical memory is on the card. */
bool program_find(uint64_t address, uint64_t *base, uint64_t *bytes, CUdevice *device, bool *is_resident);

/* Under the engine's lock, for an extent that the program made: map its physical memory where it belongs, or nowhere any more. */
CUresult program_map_all(struct extent *extent);
CUresult program_unmap_all(struct extent *extent);

/* Under the engine's lock: where it can be copied from and to, for as long as it moves: a mapping of the program's, or one of our
 * own, which program_close() takes away. */
CUresult program_open(struct extent *extent);
void program_close(struct extent *extent);
