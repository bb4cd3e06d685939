#include "intercept/memory/engine/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "intercept/resolve/real.h"

/* Addresses for all chunks that the arena may ever have. */
#define ADDRESSES (UINT64_C(4) << 40)
#define CU_MEMHOSTREGISTER_PORTABLE 1u /* cuda.h 13.0 */
#define ADDRESSES_LEAST (UINT64_C(64) << 30)

/* Chunks follow each other, so their addresses are reserved at first: as many as can be had. */
static bool reserve(struct arena *arena)
{
    for (uint64_t bytes = ADDRESSES; !arena->base && bytes >= ADDRESSES_LEAST; bytes /= 2) {
        void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            continue;
        madvise(base, bytes, MADV_DONTFORK); /* a forked child holds nothing */
        arena->base = base;
        arena->reserved_bytes = bytes;
    }
    return arena->base != NULL;
}

/* A file of memory that is there, not only promised. By the system calls: the functions are GLIBC_2.27 and younger, or
 * write where the file system cannot. */
static int make_chunk(void)
{
    int fd = (int)syscall(SYS_memfd_create, "gpuslice-arena", MFD_CLOEXEC);
    if (fd >= 0 && (ftruncate(fd, (off_t)ARENA_CHUNK_BYTES) < 0 ||
                    syscall(SYS_fallocate, fd, 0, (off_t)0, (off_t)ARENA_CHUNK_BYTES) < 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int arena_take(struct arena *arena, int fd, uint64_t bytes)
{
    if (!arena->base && !reserve(arena))
        return -ENOMEM;
    if (bytes > arena->reserved_bytes - arena->ready_bytes)
        return -ENOMEM;
    unsigned char *place = arena->base + arena->ready_bytes;
    void *chunk = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (chunk == MAP_FAILED)
        return -errno;
    madvise(chunk, bytes, MADV_DONTFORK);
    /* Page-locked memory is copied at the speed of the link; without, copies are right all the same. */
    if (real(cuMemHostRegister_v2))
        real(cuMemHostRegister_v2)(chunk, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    arena->ready_bytes += bytes;
    return 0;
}

static bool add_chunk(struct arena *arena)
{
    int fd = make_chunk();
    if (fd < 0)
        return false;
    int result = arena_take(arena, fd, ARENA_CHUNK_BYTES);
    close(fd);
    return result == 0;
}

bool arena_grow(struct arena *arena, uint64_t bytes)
{
    int saved_errno = errno;
    bool fits = (!arena->limit_bytes || bytes <= arena->limit_bytes) && (arena->base || reserve(arena)) &&
                bytes <= arena->reserved_bytes;
    while (fits && arena->ready_bytes < bytes)
        fits = !arena->is_given && add_chunk(arena);
    GS_CHECK(arena->ready_bytes <= arena->reserved_bytes);
    errno = saved_errno;
    return fits;
}
