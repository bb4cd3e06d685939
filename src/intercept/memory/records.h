/* records.h - what this process holds: what was charged for which pointer, handle and context.
 *
 * record   one charged thing: its kind and key name it, `bytes` on ledger GPU `gpu` were charged for it
 * shard    a part of the table with a lock of its own, so that threads seldom meet
 *
 * A free takes its record out before it asks the driver, so that an allocation that gets the same address
 * meanwhile never meets it, and puts it back if the driver refuses. An address that the driver hands out
 * again was freed behind our back: putting its record displaces the old one, whose bytes the caller then
 * gives back.
 *
 * Memory comes from mmap, never from malloc: hooks run inside other people's allocators. Zeroed memory is an
 * empty table. Nothing here calls the driver or the ledger. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

enum record_kind {
    RECORD_FREE, /* an empty place in the table */
    /* These were charged. */
    RECORD_POINTER,    /* linear, pitched or managed memory; key: its address; owner: its context */
    RECORD_CONTEXT,    /* a context and its cost; key: the context; owner: itself, of a green context the
                          primary one; references: of cuCtxAttach
                          and cuDevicePrimaryCtxRetain */
    RECORD_ALLOCATION, /* physical memory of cuMemCreate; key: a number of ours; references: handles,
                          mappings and what else holds it */
    RECORD_ARRAY,      /* an array or a mipmapped one; key: its handle; owner: its context */
    RECORD_EXTERNAL,   /* memory of another API; key: its handle; owner: its context */
    RECORD_IPC,        /* memory of another process; key: its address here; references: how often opened;
                          owner: its context */
    RECORD_LIMIT, /* what a context's limits take beyond the usual; key: hook_limit.c; owner: its context */
    RECORD_CHARGED_LAST = RECORD_LIMIT,
    /* These charge nothing. */
    RECORD_HANDLE,  /* a handle to an allocation; key: the handle; owner: the allocation's number */
    RECORD_MAPPING, /* a mapping of one; key: its address; bytes: its length; owner: as above */
    RECORD_TILE,    /* one mapped into a part of a sparse array; key: hash of array and part; bytes: the
                       array; owner: as above */
    RECORD_BINDING, /* one bound to a multicast object; key: hook_multicast.c; bytes: its length; owner: as
                       above */
    RECORD_EXEC,    /* an executable graph that allocates; key: its handle; bytes: what it needs; owner: on
                       which of CUDA's devices */
};

static inline bool record_is_charged(unsigned kind)
{
    return kind != RECORD_FREE && kind <= RECORD_CHARGED_LAST;
}

struct record {
    uint64_t key;
    uint64_t bytes;
    uint64_t owner;
    uint32_t references;
    uint8_t gpu;   /* index in the policy */
    uint8_t kind;  /* enum record_kind */
    uint8_t flags; /* RECORD_... below */
    uint8_t share; /* 0: `bytes` are charged to this process; else to the session's share of this index + 1 */
};
#define RECORD_HIDDEN 1 /* NVML does not show these bytes for the process */
#define RECORD_IMPORTED                                                                                      \
    2 /* an allocation of another process: charged by its longest mapping; owner: its name, or 0 */
#define RECORD_MULTICAST                                                                                     \
    4 /* an allocation that is a multicast object: it takes nothing, and holds what is bound to it */

#define RECORD_DEVICES 8 /* an executable graph that allocates on several devices */

#define RECORD_SHARDS 32

struct record_shard {
    _Alignas(64) struct lock turn;
    struct record *places;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t count;
};

struct records {
    struct record_shard shards[RECORD_SHARDS];
};

/* Add a record. One of the same kind and key is displaced: it is stored in `*displaced`, whose kind is
 * RECORD_FREE when there was none. False, with nothing changed, when there is no memory for it. */
bool records_put(struct records *records, const struct record *record, struct record *displaced);

/* Put back what was taken out, unless its key has been taken again. False if it was not put back. */
bool records_restore(struct records *records, const struct record *record);

/* Take a record out. False when there is none. */
bool records_take(struct records *records, enum record_kind kind, uint64_t key, struct record *taken);

/* Copy a record. False when there is none. */
bool records_find(struct records *records, enum record_kind kind, uint64_t key, struct record *found);

/* Add `change` to a record's references, and take it out when none are left; `*after` is the record as it is
 * then. False when there is none. */
bool records_count(struct records *records, enum record_kind kind, uint64_t key, int change,
                   struct record *after);

/* Let a record stand for `bytes`, if those are more. Returns by how much; 0 also where there is none. */
uint64_t records_grow(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes);

/* Let a record of `bytes` that has no share have this one. False when there is none such (any more). */
bool records_make_joint(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes,
                   uint8_t share);

/* Let all records have no share. */
void records_leave_joint(struct records *records);

/* Take out all records for which `match` says so, calling `taken` for each, under no lock but the shard's
 * own: neither may come back here. */
void records_sweep(struct records *records, bool (*match)(const struct record *, void *),
                   void (*taken)(const struct record *, void *), void *argument);

/* Call `see` for every record, under the same rule. */
void records_each(struct records *records, void (*see)(const struct record *, void *), void *argument);
