#include "daemon/residency/chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define MPOL_PREFERRED 1 /* linux/mempolicy.h */
#define NUMA_NODES_MAX 1024

static int make_file(void)
{
    int fd = memfd_create("gpuslice-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("gpuslice-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

/* Say where its pages should come from. This never fails a chunk: without the kernel's help they come from anywhere. */
static void prefer_node(void *pages, uint64_t bytes, int numa_node)
{
    enum { WORD_BITS = sizeof(unsigned long) * CHAR_BIT };
    unsigned long nodes[NUMA_NODES_MAX / WORD_BITS] = {0};
    if (numa_node < 0 || numa_node >= NUMA_NODES_MAX)
        return;
    nodes[numa_node / WORD_BITS] = 1UL << (numa_node % WORD_BITS);
    syscall(SYS_mbind, pages, bytes, MPOL_PREFERRED, nodes, (unsigned long)NUMA_NODES_MAX, 0U);
}

/* Have every page allocated here, where nobody waits for it. First by madvise(), because what fallocate() makes is
 * never a huge page. */
static int populate(int fd, unsigned char *pages, uint64_t bytes)
{
    if (madvise(pages, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return errno == EFAULT ? -ENOMEM : -errno; /* the fault would be SIGBUS */
    if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
        return -errno;
    for (uint64_t at = 0; at < bytes; at += 4096)
        *(volatile unsigned char *)(pages + at) = 0;
    return 0;
}

static int fill(int fd, uint64_t bytes, int numa_node)
{
    if (ftruncate(fd, (off_t)bytes) < 0)
        return -errno;
    unsigned char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED)
        return -errno;
    madvise(pages, bytes, MADV_HUGEPAGE);
    prefer_node(pages, bytes, numa_node);
    int result = populate(fd, pages, bytes);
    munmap(pages, bytes);
    return result;
}

int chunk_make(uint64_t bytes, int numa_node)
{
    cleanup_close int fd = make_file();
    int result = fd < 0 ? -errno : fill(fd, bytes, numa_node);
    if (result == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        result = -errno;
    return result < 0 ? result : steal_fd(&fd);
}
