/* chunk.h - one chunk of an arena (arena.h): a sealed file of memory that is there, all zero.
 *
 * Huge pages are taken where the kernel gives them to shared memory that asks (shmem_enabled: advise), since page-locking and
 * copying then touch a five-hundredth of the pages; never those that an administrator reserved (MFD_HUGETLB), which are
 * somebody's, and which no memory cgroup counts. */
#pragma once

#include <stdint.h>

/* A new one, near that NUMA node if it has room for it; below 0: anywhere. A descriptor or a negative errno. */
int chunk_make(uint64_t bytes, int numa_node);
