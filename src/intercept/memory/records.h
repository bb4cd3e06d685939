/* records.h - what this process holds: what was charged for each pointer, handle and context.
 *
 * record       one thing that the program got; its kind and its key name it
 * charged      a record for which `bytes` on ledger GPU `gpu` were charged
 * hold         a record that keeps physical memory of cuMemCreate, which has a record of its own
 * shard        a part of the table with a lock of its own, so that threads seldom meet
 * range map    the records that stand for a range of addresses, found by any address inside (ranges.h)
 *
 * A free takes its record out before it asks the driver, so that another allocation that gets the same address
 * meanwhile never meets that record. If the driver refuses, the free puts the record back. When the driver hands out
 * an address that still has a record, that memory was freed without our noticing: the new record displaces the old
 * one, and the caller gives back the old one's bytes.
 *
 * Memory comes from mmap, never from malloc, since hooks run inside other people's allocators. Zeroed memory is an
 * empty table. Nothing here calls the driver or the ledger. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "intercept/memory/ranges.h"

enum record_kind {
    RECORD_FREE, /* an empty place in the table */

    /* These were charged (`charged`). */
    RECORD_POINTER,   /* linear, pitched or managed memory; key: its address */
    RECORD_CONTEXT,   /* a context and its cost; key: the context */
    RECORD_PHYSICAL,  /* physical memory of cuMemCreate; key: a number of ours */
    RECORD_ARRAY,     /* an array or a mipmapped one; key: its handle */
    RECORD_EXTERNAL,  /* memory of another API; key: its handle */
    RECORD_IPC,       /* memory of another process; key: its address here */
    RECORD_LIMIT,     /* what a context's limits take beyond the driver's defaults; key: hook_limit.c */
    RECORD_ELSEWHERE, /* managed memory sent to a GPU that it was not charged on; key: charge_elsewhere.c */
    RECORD_CHARGED_LAST = RECORD_ELSEWHERE,

    /* These keep physical memory (`hold`). */
    RECORD_HANDLE,  /* a handle to it; key: the handle */
    RECORD_MAPPING, /* a mapping of it; key: its address */
    RECORD_TILE,    /* a part of a sparse array that it is mapped into; key: hash of array and part */
    RECORD_BINDING, /* a multicast object that it is bound to; key: hook_multicast.c */

    RECORD_EXEC, /* what an executable graph allocates on one device; key: hook_graph.c: `exec` */
};

static inline bool record_is_charged(unsigned kind)
{
    return kind != RECORD_FREE && kind <= RECORD_CHARGED_LAST;
}

struct record {
    uint64_t key;
    uint8_t kind;  /* enum record_kind: says which member of the union holds */
    uint8_t gpu;   /* index in the policy */
    uint8_t flags; /* RECORD_... below */
    uint8_t joint; /* 0: `bytes` are charged to this process; else to the joint place of this index + 1 */
    union {
        /* How often it was opened, attached to or retained; for physical memory, how many holds keep it. The record
         * ends with the last. */
        uint32_t references;
        /* RECORD_LIMIT: the limit as the driver had set it. */
        uint32_t usual;
    };
    union {
        struct {
            uint64_t bytes;
            union {
                /* The context that it goes with. For a context: itself; for a green context: the primary one. */
                uint64_t context;
                /* RECORD_PHYSICAL: the name of the imported memory, or 0. */
                uint64_t name;
            };
        } charged;
        struct {
            uint64_t physical; /* key of the RECORD_PHYSICAL */
            union {
                uint64_t length; /* RECORD_MAPPING */
                uint64_t array;  /* RECORD_TILE */
            };
        } hold;
        struct {
            uint64_t bytes; /* what a launch needs */
            int device;     /* on which of CUDA's devices it needs that */
            unsigned next;  /* the graph's next device, plus 1; 0: there is none */
        } exec;
    };
};
_Static_assert(sizeof(struct record) == 32, "two records a cache line");

enum {
    RECORD_HIDDEN = 1,   /* NVML does not show these bytes for the process */
    RECORD_IMPORTED = 2, /* physical memory of another process: charged by the most of it that was mapped */
    RECORD_MULTICAST =
        4, /* a multicast object or a logical endpoint: it takes no memory, and keeps what is bound to it */
    RECORD_WHOLE = 8,      /* charged in whole units: record_whole() */
    RECORD_IN_RANGES = 16, /* in the range map: a pointer, or a mapping */
    RECORD_MOVES = 32,     /* the engine can take it off the card */
    /* A descriptor of it was given out or taken in, and may keep the memory when everything else has let go of it. */
    RECORD_SHARED = 64,
    /* The program has set the pointer to SYNC_MEMOPS, and the driver does not know (synchronous.h). */
    RECORD_SYNCHRONOUS = 128,
};

#define RECORD_UNIT_BYTES UINT64_C(512)
#define RECORD_EXTENT_BYTES (UINT64_C(2) << 20)

/* What linear memory of `bytes` takes: whole units of the driver; where the engine moves it, large memory has extents of its
 * own (engine/swap/extents/extents.h). */
static inline uint64_t record_whole(uint64_t bytes, bool moves)
{
    uint64_t unit = moves && bytes > RECORD_EXTENT_BYTES / 2 ? RECORD_EXTENT_BYTES : RECORD_UNIT_BYTES;
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) & ~(unit - 1);
}

/* What a charged record is charged: at least the bytes that it stands for. */
static inline uint64_t record_charge(const struct record *record)
{
    return record->flags & RECORD_WHOLE ? record_whole(record->charged.bytes, record->flags & RECORD_MOVES)
                                        : record->charged.bytes;
}

#define RECORD_SHARDS 32

struct record_shard {
    _Alignas(64) struct lock lock;
    struct record *places;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t count;
};

struct records {
    struct record_shard shards[RECORD_SHARDS];
    struct ranges ranges; /* changed under the lock of a record's shard */
};

/* Add a record. A record of the same kind and key is displaced and stored in `*displaced`, whose kind is RECORD_FREE
 * if there was none. False, with nothing changed, without memory for it. */
bool records_put(struct records *records, const struct record *record, struct record *displaced);

/* Put back a record that was taken out, unless its key has been taken again. False if it was not put back. */
bool records_restore(struct records *records, const struct record *record);

/* Take a record out. False when there is none. */
bool records_take(struct records *records, enum record_kind kind, uint64_t key, struct record *taken);

/* Copy a record. False when there is none. */
bool records_find(struct records *records, enum record_kind kind, uint64_t key, struct record *found);

/* Copy the record of the pointer or mapping whose range is around `address`; of the first that begins in [begin,
 * end). False if there is none in the range map. */
bool records_find_around(struct records *records, uint64_t address, struct record *found);
bool records_find_between(struct records *records, uint64_t begin, uint64_t end, struct record *found);

/* Add `change` to a record's references, and take the record out when none are left. `*after` is the record as it is
 * then. False if there is no such record. */
bool records_count(struct records *records, enum record_kind kind, uint64_t key, int change,
                   struct record *after);

/* Undo a records_count() by -1 that gave `after`. */
void records_count_back(struct records *records, const struct record *after);

/* Raise a charged record to `bytes`, if it has fewer. Returns by how much it grew; 0 also if there is no such
 * record. */
uint64_t records_grow(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes);

/* Mark a record of exactly `bytes` that is charged to this process alone as charged to this joint place. False if
 * there is no such record (any more). */
bool records_make_joint(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes,
                        uint8_t joint);

/* Set these flags of a record, or clear them. False if there is no such record. */
bool records_set_flags(struct records *records, enum record_kind kind, uint64_t key, uint8_t flags,
                       bool are_set);

/* Mark all records as charged to this process. */
void records_leave_joint(struct records *records);

/* Take out all records for which `match` is true, and call `taken` for each. Both are called under the shard's lock
 * only, and must not call back into this file. */
void records_sweep(struct records *records, bool (*match)(const struct record *, void *),
                   void (*taken)(const struct record *, void *), void *argument);

/* Call `see` for every record, under the same rule. */
void records_each(struct records *records, void (*see)(const struct record *, void *), void *argument);
