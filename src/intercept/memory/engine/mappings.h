/* mappings.h - where the program has mapped the physical memory that it made itself (cuMemCreate), and who may reach it there.
 *
 * mapping     a place where the program has mapped such memory; several may show the same memory
 * reserved    addresses that the program reserved: while the process is evicted, nobody else knows where it may map
 *
 * All of this is called under the engine's lock. */
#pragma once

#include "intercept/memory/engine/state.h"

/* From an index + 1. */
struct mapping *mapping_at(uint32_t number);

/* The mapping around an address; NULL: none. */
struct mapping *mapping_find(uint64_t address);
const struct mapping *mapping_look_up(uint64_t address); /* where there may never have been any */
struct extent *mapping_extent(const struct mapping *mapping);

/* Whether there is any mapping in [address, address + bytes); and whether that is made of whole ones. */
bool mapping_touches(uint64_t address, uint64_t bytes);
bool mapping_is_whole(uint64_t address, uint64_t bytes);

/* Enter one; false without memory for it. And away with one: the extent that it was of. */
bool mapping_add(struct extent *extent, uint64_t address, uint64_t bytes);
struct extent *mapping_drop(struct mapping *mapping);

/* Who may reach it; NULL: it was not said. Remember it for all that lie in a range. */
const CUmemAccessDesc *mapping_access(const struct mapping *mapping, CUmemLocation location);
void mapping_remember_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access, size_t count);

/* Map an extent's physical memory where it belongs, or nowhere any more. */
CUresult mapping_map_all(struct extent *extent);
CUresult mapping_unmap_all(struct extent *extent);

/* Where it can be copied from and to, for as long as it moves: a mapping of the program's, or one of our own, which
 * mapping_close() takes away. */
CUresult mapping_open(struct extent *extent);
void mapping_close(struct extent *extent);
