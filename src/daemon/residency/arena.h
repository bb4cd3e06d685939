/* arena.h - host memory for GPU memory that leaves the card, chunk by chunk.
 *
 * chunk   a sealed memfd whose memory is there: made by a helper thread, zero, given to one process and to none after it.
 *         The kernel charges it to the daemon's memory cgroup, and frees it when its process has gone
 *
 * Before each chunk the helper looks whether the machine and the cgroup have so much to spare: a chunk that could only be
 * made by taking memory from somebody is not made. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/host_memory.h"

struct daemon;

#define ARENA_CHUNK_SMALL HOST_MEMORY_LEAST_BYTES
#define ARENA_CHUNK_LARGE (UINT64_C(256) << 20)

/* The size of the next chunk for who lacks so many bytes. */
uint64_t arena_chunk_bytes(uint64_t lacking_bytes);

/* Called in the loop's thread. `fd`: the chunk, closed when this returns; or a negative errno with `why`. */
typedef void arena_made(void *argument, int fd, uint64_t bytes, const char *why);
/* Make a chunk of `bytes`, if there is room for `all_bytes`, which its session still lacks: near the GPU of that PCI address
 * ("": anywhere), whose link then crosses no other processor. */
void arena_make(struct daemon *daemon, uint64_t bytes, uint64_t all_bytes, const char *pci_address,
                arena_made *made, void *argument);

/* The most that all sessions together may have. */
uint64_t arena_bound_bytes(const struct daemon *daemon);

int arena_start(struct daemon *daemon, struct error *error);
void arena_stop(struct daemon *daemon);
