/* chunk.h - one chunk of an arena (arena.h): a sealed file whose pages are all allocated and zero.
 *
 * The chunk uses huge pages where the kernel gives them to shared memory that asks (shmem_enabled: advise), because
 * page-locking and copying then touch a five-hundredth of the pages. It never uses those that an administrator reserved
 * (MFD_HUGETLB): they are meant for somebody, and no memory cgroup counts them. */
#pragma once

#include <stdint.h>

/* The kernel clears each page as it allocates it, at some GB/s by one thread. Up to so many threads share a chunk. */
#define CHUNK_THREADS_MOST 8u

/* Make a chunk, near that NUMA node if the node has room for it; node below 0: anywhere. Where the machine at `sysfs` ("/sys")
 * has nodes without CPUs, never there: that is memory of a GPU, or as slow (host_nodes.h). By at most `most_threads`
 * threads, as there are CPUs, and as is worth it. Returns a descriptor or a negative errno. */
int chunk_make(uint64_t bytes, const char *sysfs, int numa_node, unsigned most_threads);
