/* ranges.h - which range of addresses an address lies in: the range map.
 *
 * range   [begin, begin + bytes) of the device's addresses, with the kind of the record that stands for it
 *
 * Ranges never overlap: a range that is entered replaces those that it touches, since these were freed without our
 * noticing. They are kept in a treap: a search tree by `begin`, balanced by a hash of `begin`. Entering, removing and
 * finding take some 2 log2(n) steps.
 *
 * Memory comes from mmap, as in records.h. Zeroed memory is an empty map. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

struct range {
    uint64_t begin, bytes;
    unsigned kind; /* enum record_kind */
};

struct range_node;

struct ranges {
    struct lock lock;
    struct range_node *nodes; /* [0] is not used */
    uint32_t capacity;        /* of `nodes` */
    uint32_t used;            /* nodes from this index on were never used */
    /* spare: the first of the nodes that were given back; they are a list, linked by `left`. */
    uint32_t root, spare;
};

/* Enter a range. False, with nothing changed, without memory for it. */
bool ranges_put(struct ranges *ranges, struct range range);

/* Remove the range of this kind that begins there, if there is one. */
void ranges_remove(struct ranges *ranges, uint64_t begin, unsigned kind);

/* Find the range around `address`; find the first range that begins at `address` or above. False if there is none. */
bool ranges_find(struct ranges *ranges, uint64_t address, struct range *found);
bool ranges_next(struct ranges *ranges, uint64_t address, struct range *found);
