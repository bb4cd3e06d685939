/* differ.h - a program that makes random driver calls, valid and invalid, and writes a line for each. The
 * same seed makes the same calls, so that its lines with and without the interceptor can be compared.
 *
 * row      an entry point, and what makes one call of it with random arguments
 * thing    what a call made (a context, memory, a pool...), known by its number instead of its address
 * actor    who calls: a thread, which has its own context stack
 * ask      the bytes of device memory that a call asks for, at most: a refusal is judged by it
 *
 * Actors take turns, so that the order of calls comes from the seed alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/nvml.h"
#include "cuda/prototypes.h"

enum kind {
    CONTEXT,
    STREAM,
    EVENT,
    MEMORY,
    HOST,
    POOL,
    HANDLE,
    ADDRESSES,
    MAPPING,
    ARRAY,
    MIPMAP,
    MODULE,
    LIBRARY,
    GREEN,
    EXTERNAL,
    GRAPH,
    EXEC,
    OPENED, /* memory of another process */
    KINDS,
};

#define NAMED_MOST 16

/* Things whose addresses somebody has kept; or that one is gone, or is more than there is room for here. */
struct named {
    unsigned count, numbers[NAMED_MOST];
    enum kind kinds[NAMED_MOST];
    bool has_gone;
};

struct thing {
    enum kind kind;
    bool alive;
    unsigned number;
    uint64_t value,
        bytes; /* of an array: what it takes beyond its elements; of a green context: its device */
    uint64_t rounding_bytes; /* what it is charged beyond what the simulated driver takes */
    uint64_t context;        /* goes with it */
    unsigned gpu;            /* of its context, or 0 */
    unsigned piece;          /* of the peer's memory */
    struct named named;      /* by a graph's nodes */
};

struct actor;

struct row {
    const char *symbol;
    void *linked; /* as the linker resolved it */
    unsigned weight;
    void (*call)(struct actor *);
};

#define GPUS 2   /* how many of the machine's are looked at */
#define CHILD 11 /* the actor that is a child of the initialised program */

struct actor {
    unsigned number;
    uint64_t random;
    const struct row *row;
    void *function; /* this call's way to the entry point */
    uint64_t ask;
    unsigned gpu;   /* on which GPU it asks; that of the current context, unless the row says so */
    bool own_limit; /* the driver may refuse this call for reasons of its own */
    char line[1024];
    size_t length;
    unsigned calls;
};

/* --- Chance ---------------------------------------------------------------------------------------- */
uint64_t chance(struct actor *actor, uint64_t below);
bool one_in(struct actor *actor, unsigned of);
/* A size: ordinary ones, the edges of blocks, 0, and ones that no card has. */
uint64_t some_bytes(struct actor *actor);

/* A GPU, or none; written to the line. */
CUdevice some_device(struct actor *actor);
/* The same, of a call that asks for memory there. */
CUdevice some_place(struct actor *actor);

/* Neither what every card here has nor what none has: whether it fits would be the card's affair. */
static inline bool is_in_between(uint64_t bytes)
{
    return bytes > UINT64_C(1) << 28 && bytes < UINT64_C(1) << 41;
}

/* --- Things ---------------------------------------------------------------------------------------- */
/* A value of this kind: mostly of a living thing, else of one that is gone, or 0. Written to the line. */
uint64_t pick(struct actor *actor, enum kind kind);
struct thing *find_living(enum kind kind, uint64_t value);
struct thing *add_thing(struct actor *actor, enum kind kind, uint64_t value, uint64_t bytes);
struct thing *random_living(struct actor *actor, enum kind kind);
void end_thing(enum kind kind, uint64_t value);
/* Note whose address it is; and whether all that was noted is there still. */
void name_address(struct named *named, uint64_t address);
bool is_named_there(const struct named *named);
/* A context is gone, with everything in it. */
void end_context(uint64_t context);
unsigned count_living(enum kind kind);
bool has_context(unsigned gpu);
/* Write where an address is, in terms of things. */
void put_address(struct actor *actor, uint64_t address);
uint64_t current_context(void);
unsigned current_gpu(void);
/* A stream to work on: one of the two default ones, or one that was made. */
CUstream some_stream(struct actor *actor);
/* Write how the capture that is open stands, if one is. */
void put_capture(struct actor *actor);

/* --- Lines ----------------------------------------------------------------------------------------- */
void put(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));
void put_result(struct actor *actor, CUresult result);
/* Whether an out-parameter of a failed call was left alone. */
#define UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)
void put_kept(struct actor *actor, uint64_t value);

/* Call this row's entry point, by whatever way it was looked up this time. */
#define CALL(actor, symbol) ((__typeof__(&symbol))(actor)->function)

extern const struct row memory_rows[], context_rows[], other_rows[], nvml_rows[], share_rows[],
    capture_rows[], peer_rows[], import_rows[];

/* Another process, that makes memory for this one to import: to be started before the driver is. */
bool start_peer(void);
void end_peer(void);
/* What it holds, but for the pieces that are opened here: charged once, however often that is. */
uint64_t peer_bytes(unsigned gpu, bool (*is_opened)(unsigned piece));
/* DIFFER_MOVES: differ.c. */
extern bool memory_moves;
extern void *nvml_library;
extern char *kernels_text;
