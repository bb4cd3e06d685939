/* mappings.h - where the program has mapped the physical memory that it made itself (cuMemCreate), and who may reach
 * it there.
 *
 * mapping     a place where the program has mapped such memory; several may show the same memory
 * reserved    addresses that the program has reserved: while the process is evicted, only we know where it may map
 *
 * All of this is called under the engine's lock. */
#pragma once

#include "intercept/memory/engine/swap/state.h"

/* The mapping with this index + 1; NULL for 0. */
struct mapping *mapping_at(uint32_t number);

/* The mapping around an address; NULL if there is none. */
struct mapping *mapping_find(uint64_t address);
const struct mapping *mapping_look_up(uint64_t address); /* also before there ever was a mapping */
struct extent *mapping_extent(const struct mapping *mapping);

/* Whether any mapping lies in [address, address + bytes), or reaches into it; and whether the range consists of whole
 * mappings. */
bool mapping_touches(uint64_t address, uint64_t bytes);
bool mapping_is_whole(uint64_t address, uint64_t bytes);

/* Enter a mapping; false without memory for it. Remove one; returns the extent that it showed. */
bool mapping_add(struct extent *extent, uint64_t address, uint64_t bytes);
struct extent *mapping_drop(struct mapping *mapping);

/* What a location may do with a mapping; NULL: the program has not said. Remember what locations may do with all
 * mappings in a range. */
const CUmemAccessDesc *mapping_access(const struct mapping *mapping, CUmemLocation location);
void mapping_remember_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access, size_t count);

/* Map an extent's physical memory at all its mappings, which are to be opened (access.h), or unmap it from all of them.
 * All, or nothing has changed. */
CUresult mapping_map_all(struct extent *extent);
CUresult mapping_unmap_all(struct extent *extent);

/* Find the address to copy from and to while an extent moves: one of the program's mappings, or one of our own, which
 * mapping_close() removes. */
CUresult mapping_open(struct extent *extent);
void mapping_close(struct extent *extent);
