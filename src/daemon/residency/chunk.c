#include "daemon/residency/chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/host_nodes.h"
#include "daemon/loop/log.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define MPOL_PREFERRED 1 /* linux/mempolicy.h */
#define MPOL_BIND 2
/* What a node must have beside a chunk that is bound to it alone: the kernel finds such a chunk no other place. */
#define NEAR_SPARE_BYTES (UINT64_C(1) << 30)

#define PART_GRAIN_BYTES (UINT64_C(2) << 20)  /* of a huge page */
#define PART_LEAST_BYTES (UINT64_C(16) << 20) /* less is done before another thread has begun */

static int make_file(void)
{
    int fd = memfd_create("gpuslice-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("gpuslice-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

/* Say where its pages should come from. This never fails a chunk: without the kernel's help they come from anywhere. A
 * preference goes over to any other node when its own is full, so where others are no place for the chunk it is bound. */
static void choose_nodes(void *pages, uint64_t bytes, const char *sysfs, int numa_node)
{
    _Static_assert(sizeof(unsigned long) == sizeof(uint64_t),
                   "the kernel's words are as long as GPU Slice's");
    struct host_nodes nodes;
    host_nodes_read(sysfs, &nodes);
    bool is_near = numa_node >= 0 && numa_node < (int)HOST_NODES_MAX;
    if (nodes.has_others)
        is_near =
            host_nodes_has(&nodes, numa_node) && host_node_room(sysfs, numa_node) >= bytes + NEAR_SPARE_BYTES;
    if (is_near) {
        memset(nodes.home, 0, sizeof(nodes.home));
        nodes.home[numa_node / 64] = UINT64_C(1) << (numa_node % 64);
    }
    if (is_near || nodes.has_others)
        syscall(SYS_mbind, pages, bytes, nodes.has_others ? MPOL_BIND : MPOL_PREFERRED, nodes.home,
                (unsigned long)HOST_NODES_MAX, 0U);
}

/* A part of the chunk, and the thread that has its pages allocated. */
struct part {
    unsigned char *pages;
    uint64_t bytes;
    pthread_t thread;
    bool has_thread;
    int result; /* 0 or a negative errno */
};

static void *populate_part(void *argument)
{
    struct part *part = argument;
    if (madvise(part->pages, part->bytes, MADV_POPULATE_WRITE) < 0)
        part->result = errno == EFAULT ? -ENOMEM : -errno; /* the fault would be SIGBUS */
    return NULL;
}

/* How many parts to share the chunk among. */
static unsigned part_count(uint64_t bytes, unsigned most_threads)
{
    cpu_set_t cpus;
    uint64_t count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint64_t)CPU_COUNT(&cpus) : 1;
    count = count < most_threads ? count : most_threads;
    count = count < CHUNK_THREADS_MOST ? count : CHUNK_THREADS_MOST;
    count = count < bytes / PART_LEAST_BYTES ? count : bytes / PART_LEAST_BYTES;
    return count ? (unsigned)count : 1;
}

/* Have all parts populated: the last one, and those for which there is no thread, by this thread. */
static int populate_parts(unsigned char *pages, uint64_t bytes, unsigned count)
{
    struct part parts[CHUNK_THREADS_MOST] = {0};
    uint64_t each = bytes / count / PART_GRAIN_BYTES * PART_GRAIN_BYTES;
    int result = 0;
    for (unsigned i = 0; i < count; i++) {
        parts[i].pages = pages + i * each;
        parts[i].bytes = i + 1 < count ? each : bytes - i * each;
        parts[i].has_thread =
            i + 1 < count && pthread_create(&parts[i].thread, NULL, populate_part, &parts[i]) == 0;
        if (!parts[i].has_thread)
            populate_part(&parts[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        if (parts[i].has_thread)
            pthread_join(parts[i].thread, NULL);
        result = result ? result : parts[i].result;
    }
    return result;
}

/* Have every page allocated here, where nobody waits for it. First by madvise(), because what fallocate() makes is
 * never a huge page. */
static int populate(int fd, unsigned char *pages, uint64_t bytes, unsigned most_threads)
{
    int result = populate_parts(pages, bytes, part_count(bytes, most_threads));
    if (result != -EINVAL)
        return result;
    if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
        return -errno;
    for (uint64_t at = 0; at < bytes; at += 4096)
        *(volatile unsigned char *)(pages + at) = 0;
    return 0;
}

static int fill(int fd, uint64_t bytes, const char *sysfs, int numa_node, unsigned most_threads)
{
    if (ftruncate(fd, (off_t)bytes) < 0)
        return -errno;
    unsigned char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED)
        return -errno;
    madvise(pages, bytes, MADV_HUGEPAGE);
    choose_nodes(pages, bytes, sysfs, numa_node);
    int result = populate(fd, pages, bytes, most_threads);
    munmap(pages, bytes);
    return result;
}

int chunk_make(uint64_t bytes, const char *sysfs, int numa_node, unsigned most_threads)
{
    cleanup_close int fd = make_file();
    int result = fd < 0 ? -errno : fill(fd, bytes, sysfs, numa_node, most_threads);
    if (result == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL) < 0)
        result = -errno;
    /* The kernel does not count what memfd_create() opened among the files that are open for writing. */
    return result < 0 ? result : chunk_keep(fd);
}

/* --- The daemon's own descriptor ------------------------------------------------------------------- */

int chunk_keep(int fd)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own_fd = open(path, O_RDWR | O_CLOEXEC);
    return own_fd < 0 ? -errno : own_fd;
}

/* The kernel gives a write lease to who has the file's only open description, which mappings and messages hold as well
 * (fcntl(2)). Who opens the file after that waits, and the daemon is sent a signal: one that it does not notice. */
bool chunk_is_unused(int own_fd)
{
    static bool said;
    fcntl(own_fd, F_SETSIG, SIGURG);
    if (fcntl(own_fd, F_SETLEASE, F_WRLCK) == 0)
        return true;
    if (errno != EAGAIN && !said) {
        said = true;
        log_warning("the kernel does not tell which process still has host memory (%s): the memory counts "
                    "until its process ends; set fs.leases-enable = 1",
                    strerror(errno));
    }
    return false;
}

void chunk_end(int own_fd)
{
    while (ftruncate(own_fd, 0) < 0 && errno == EINTR)
        continue;
    close(own_fd);
}
