/* chunk.h - one chunk of an arena (arena.h): a sealed file whose pages are all allocated and zero.
 *
 * A program may say anything of a chunk, keep a descriptor or a mapping of it, and pass it on. So the daemon keeps a
 * descriptor of its own, by which the kernel says whether anybody else still has the chunk, and by which the daemon takes all
 * of its memory away.
 *
 * The chunk uses huge pages where the kernel gives them to shared memory that asks (shmem_enabled: advise), because
 * page-locking and copying then touch a five-hundredth of the pages. It never uses those that an administrator reserved
 * (MFD_HUGETLB): they are meant for somebody, and no memory cgroup counts them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The kernel clears each page as it allocates it, at some GB/s by one thread. Up to so many threads share a chunk. */
#define CHUNK_THREADS_MOST 8u

/* Make a chunk, near that NUMA node if the node has room for it; node below 0: anywhere. Where the machine at `sysfs` ("/sys")
 * has nodes without CPUs, never there: that is memory of a GPU, or as slow (host_nodes.h). By at most `most_threads`
 * threads, as there are CPUs, and as is worth it. Returns a descriptor or a negative errno. */
int chunk_make(uint64_t bytes, const char *sysfs, int numa_node, unsigned most_threads);

/* Open the chunk once more, for the daemon alone. Returns that descriptor or a negative errno. */
int chunk_keep(int fd);
/* Whether nobody has the chunk but the daemon by `own_fd`: no descriptor anywhere, no mapping, and none on its way in a
 * socket. From then on nobody can open it until that is closed. False also where the kernel cannot tell (fs.leases-enable = 0). */
bool chunk_is_unused(int own_fd);
/* Free the chunk's memory, whoever has it, and close the descriptor. Who touches it afterwards gets SIGBUS, and it cannot grow
 * again. Takes as long as the kernel takes to free so much. */
void chunk_end(int own_fd);
