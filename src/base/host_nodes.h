/* host_nodes.h - how much memory the host has for programs, and on which of its NUMA nodes.
 *
 * home node   a node with CPUs. Where memory has no CPUs, it is a GPU's that the kernel may use (Grace without CDMM),
 *             or slower than all other: none of it counts here
 *
 * `sysfs` is "/sys". A machine without nodes has home memory only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HOST_NODES_MAX 1024u
#define HOST_NODE_WORDS (HOST_NODES_MAX / 64)

struct host_nodes {
    uint64_t home[HOST_NODE_WORDS]; /* a bit for each home node with memory */
    bool has_others;                /* there are nodes with memory and without CPUs */
};

void host_nodes_read(const char *sysfs, struct host_nodes *nodes);
bool host_nodes_has(const struct host_nodes *nodes, int node);

/* What a node could give at once: what is free, and the file cache, which the kernel drops. 0 where it does not tell. */
uint64_t host_node_room(const char *sysfs, int node);

/* The memory of home nodes: in all, and what of it programs could have now. False where the kernel does not tell. */
bool host_memory_read(const char *sysfs, uint64_t *total_bytes, uint64_t *available_bytes);
