/* chunk.h - one chunk of an arena (arena.h): a sealed file whose pages are all allocated and zero.
 *
 * The chunk uses huge pages where the kernel gives them to shared memory that asks (shmem_enabled: advise), because
 * page-locking and copying then touch a five-hundredth of the pages. It never uses those that an administrator reserved
 * (MFD_HUGETLB): they are meant for somebody, and no memory cgroup counts them. */
#pragma once

#include <stdint.h>

/* Make a chunk, near that NUMA node if the node has room for it; node below 0: anywhere. Returns a descriptor or a
 * negative errno. */
int chunk_make(uint64_t bytes, int numa_node);
