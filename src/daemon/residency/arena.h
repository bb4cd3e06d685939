/* arena.h - host memory for GPU memory that leaves the card, chunk by chunk.
 *
 * chunk   a sealed memfd whose pages are all allocated and zero. A helper thread makes it, one process gets it, and no
 *         other process gets it after that. The kernel charges it to the daemon's memory cgroup. The daemon keeps a
 *         descriptor of it, and has it freed when its process has gone, or when nobody has it any more (moves_chunks.c)
 *
 * Before each chunk the helper checks that the machine and the cgroup have that much to spare. It does not make a chunk
 * that would take memory away from others. A chunk that is made ahead of need must leave them more, and is made by one
 * thread; one that is needed now, by several. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/host_memory.h"

struct daemon;

#define ARENA_CHUNK_SMALL HOST_MEMORY_LEAST_BYTES
#define ARENA_CHUNK_LARGE (UINT64_C(256) << 20)

/* The size of the next chunk for a process that lacks this many bytes: a multiple of the small one, up to the large
 * one. */
uint64_t arena_chunk_bytes(uint64_t lacking_bytes);
/* The sizes of all its next chunks together. */
uint64_t arena_chunks_bytes(uint64_t lacking_bytes);

/* Called in the loop's thread. `fd`: the chunk, which is closed when this returns; or a negative errno, and `why`. */
typedef void arena_made(void *argument, int fd, uint64_t bytes, const char *why);
struct arena_wish {
    uint64_t bytes;     /* of the chunk */
    uint64_t all_bytes; /* there has to be room for so much, which the session still lacks */
    bool is_ahead;      /* nothing waits for it */
    uint64_t payer;     /* for whom (user_time_key()): the helper takes turns */
    /* Make it near the GPU with this PCI address, so that the link to it crosses no other processor; "": anywhere. */
    const char *pci_address;
};
void arena_make(struct daemon *daemon, const struct arena_wish *wish, arena_made *made, void *argument);

/* Have the helper free the chunk, before it makes another. `own_fd`, of chunk_keep(), is taken over. */
void arena_end_chunk(struct daemon *daemon, int own_fd, uint64_t payer);

/* Find out whether the machine and the cgroup still have something to spare. `looked` is called in the loop's thread.
 * False: out of memory, and it is not called. */
typedef void arena_looked(struct daemon *daemon, bool is_short);
bool arena_look(struct daemon *daemon, arena_looked *looked);

/* The most host memory that all sessions together may have; and what the machine has, however much they may. */
uint64_t arena_bound_bytes(const struct daemon *daemon);
uint64_t arena_machine_bytes(const struct daemon *daemon);

int arena_start(struct daemon *daemon, struct error *error);
void arena_stop(struct daemon *daemon);
