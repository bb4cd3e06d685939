#include "intercept/memory/engine/swap/move/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"

/* Addresses for all chunks that the arena may ever have. */
#define ADDRESSES (UINT64_C(4) << 40)
#define ADDRESSES_LEAST (UINT64_C(64) << 30)
#define ARENA_CHUNKS_MAX 65536u
#define CU_MEMHOSTREGISTER_PORTABLE 1u /* cuda.h 13.0 */

static void *reserve_pages(uint64_t bytes, int protection)
{
    void *pages = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    madvise(pages, bytes, MADV_DONTFORK); /* a forked child holds nothing */
    return pages;
}

/* Chunks follow each other, so addresses for all of them are reserved first: as many as can be had, from an address
 * on where huge pages can be mapped. */
static bool reserve(struct arena *arena)
{
    if (!arena->taken)
        arena->taken = reserve_pages(ADDRESSES / ARENA_GRAIN_BYTES / 8, PROT_READ | PROT_WRITE);
    if (!arena->chunks)
        arena->chunks = reserve_pages(ARENA_CHUNKS_MAX * sizeof(struct arena_chunk), PROT_READ | PROT_WRITE);
    if (!arena->locked_by)
        arena->locked_by =
            reserve_pages(ADDRESSES / ARENA_PIECE_BYTES * sizeof(CUcontext), PROT_READ | PROT_WRITE);
    if (!arena->taken || !arena->chunks || !arena->locked_by)
        return false;
    for (uint64_t bytes = ADDRESSES; !arena->base && bytes >= ADDRESSES_LEAST; bytes /= 2) {
        unsigned char *pages = reserve_pages(bytes, PROT_NONE);
        arena->base = pages ? pages + (-(uintptr_t)pages & (ARENA_GRAIN_BYTES - 1)) : NULL;
        arena->reserved_bytes = bytes - ARENA_GRAIN_BYTES;
    }
    return arena->base != NULL;
}

/* --- Chunks ---------------------------------------------------------------------------------------- */

int arena_take_chunk(struct arena *arena, int fd, uint64_t bytes)
{
    if ((!arena->base && !reserve(arena)) || bytes % ARENA_PIECE_BYTES ||
        bytes > arena->reserved_bytes - arena->ready_bytes || arena->chunk_count == ARENA_CHUNKS_MAX)
        return -ENOMEM;
    unsigned char *place = arena->base + arena->ready_bytes;
    void *chunk = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (chunk == MAP_FAILED)
        return -errno;
    madvise(chunk, bytes, MADV_DONTFORK);
    madvise(chunk, bytes, MADV_HUGEPAGE);
    arena->chunks[arena->chunk_count++] = (struct arena_chunk){.begin = arena->ready_bytes, .bytes = bytes};
    arena->ready_bytes += bytes;
    return 0;
}

bool arena_give_back_chunk(struct arena *arena)
{
    struct arena_chunk *last = &arena->chunks[arena->chunk_count - 1];
    unsigned char *pages = arena->base + last->begin;
    GS_CHECK(!arena_locker(arena, last->begin, last->begin + last->bytes));
    if (mmap(pages, last->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return false;
    madvise(pages, last->bytes, MADV_DONTFORK);
    arena->ready_bytes -= last->bytes;
    arena->chunk_count--;
    arena->search_from = 0;
    return true;
}

/* A file whose memory is allocated, not only promised. By the system calls, since glibc's functions are of GLIBC_2.27
 * and later, or write to the file where the file system cannot allocate. */
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

static bool add_chunk(struct arena *arena)
{
    int fd = make_chunk();
    if (fd < 0)
        return false;
    int result = arena_take_chunk(arena, fd, ARENA_CHUNK_BYTES);
    close(fd);
    return result == 0;
}

bool arena_has_room(struct arena *arena, uint64_t bytes)
{
    int saved_errno = errno;
    uint64_t wanted = arena->taken_bytes + bytes;
    bool fits = !arena->limit_bytes || wanted <= arena->limit_bytes;
    while (fits && arena->ready_bytes < wanted)
        fits = !arena->is_given && add_chunk(arena);
    GS_CHECK(arena->ready_bytes <= arena->reserved_bytes);
    errno = saved_errno;
    return fits;
}

/* --- Page-locking ---------------------------------------------------------------------------------- */

static CUcontext *locker_of(const struct arena *arena, uint64_t piece)
{
    return &arena->locked_by[piece / ARENA_PIECE_BYTES];
}

static uint64_t piece_of(uint64_t place)
{
    return place - place % ARENA_PIECE_BYTES;
}

uint64_t arena_in_one_piece(uint64_t place, uint64_t bytes)
{
    uint64_t left = piece_of(place) + ARENA_PIECE_BYTES - place;
    return bytes < left ? bytes : left;
}

bool arena_find_unlocked(const struct arena *arena, uint64_t begin, uint64_t end, uint64_t *piece)
{
    GS_CHECK(end <= arena->ready_bytes);
    for (uint64_t at = piece_of(begin); at < end; at += ARENA_PIECE_BYTES)
        if (!*locker_of(arena, at)) {
            *piece = at;
            return true;
        }
    return false;
}

/* Whether the driver would answer the same another time: it does not lack memory, nor is its context broken. Two answers
 * may be about a single piece, where others were page-locked before. */
static bool is_for_good(const struct arena *arena, CUresult result)
{
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_OPERATING_SYSTEM)
        return !atomic_load_explicit(&arena->was_locked, memory_order_relaxed);
    return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED;
}

bool arena_lock_piece(struct arena *arena, uint64_t piece)
{
    static atomic_bool said;
    if (atomic_load_explicit(&arena->is_unlockable, memory_order_relaxed))
        return false;
    CUresult result =
        real(cuMemHostRegister_v2) && real(cuMemHostUnregister)
            ? real(cuMemHostRegister_v2)(arena->base + piece, ARENA_PIECE_BYTES, CU_MEMHOSTREGISTER_PORTABLE)
            : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&arena->was_locked, true, memory_order_relaxed);
    if (!is_for_good(arena, result))
        return result == CUDA_SUCCESS;
    atomic_store_explicit(&arena->is_unlockable, true, memory_order_relaxed);
    report_once(&said,
                "the driver page-locks no host memory here (it answers error %d), as with confidential "
                "computing and on "
                "some kinds of WSL: memory leaves the GPU and comes back all the same, but more slowly",
                (int)result);
    return false;
}

bool arena_unlock_piece(const struct arena *arena, uint64_t piece)
{
    return real(cuMemHostUnregister)(arena->base + piece) == CUDA_SUCCESS;
}

void arena_note_locked(struct arena *arena, uint64_t piece, CUcontext context)
{
    *locker_of(arena, piece) = context;
}

CUcontext arena_locker(const struct arena *arena, uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin; at < end; at += ARENA_PIECE_BYTES)
        if (*locker_of(arena, at))
            return *locker_of(arena, at);
    return NULL;
}

void arena_forget_context(struct arena *arena, CUcontext context)
{
    for (uint64_t at = 0; at < arena->ready_bytes; at += ARENA_PIECE_BYTES)
        if (*locker_of(arena, at) == context)
            *locker_of(arena, at) = NULL;
}

/* --- Places ---------------------------------------------------------------------------------------- */

static bool is_taken(const struct arena *arena, uint64_t grain)
{
    return arena->taken[grain / 64] >> (grain % 64) & 1;
}

/* The first of `count` free grains in a row in [from, to); `to` if there are none. */
static uint64_t find_free(const struct arena *arena, uint64_t from, uint64_t to, uint64_t count)
{
    uint64_t run = 0;
    for (uint64_t grain = from; grain < to; grain++) {
        run = is_taken(arena, grain) ? 0 : run + 1;
        if (run == count)
            return grain + 1 - count;
    }
    return to;
}

static uint64_t grains_of(uint64_t bytes)
{
    return (bytes + ARENA_GRAIN_BYTES - 1) / ARENA_GRAIN_BYTES;
}

static void mark(struct arena *arena, uint64_t first, uint64_t count, bool taken)
{
    for (uint64_t grain = first; grain < first + count; grain++) {
        GS_CHECK(is_taken(arena, grain) != taken);
        arena->taken[grain / 64] ^= UINT64_C(1) << (grain % 64);
    }
}

uint64_t arena_take(struct arena *arena, uint64_t bytes)
{
    uint64_t count = grains_of(bytes), end = arena->ready_bytes / ARENA_GRAIN_BYTES;
    uint64_t first = find_free(arena, arena->search_from, end, count);
    if (first == end)
        first = find_free(arena, 0, end, count);
    if (first == end)
        return ARENA_NOWHERE;
    mark(arena, first, count, true);
    arena->search_from = first + count;
    arena->taken_bytes += count * ARENA_GRAIN_BYTES;
    return first * ARENA_GRAIN_BYTES;
}

void arena_give_back(struct arena *arena, uint64_t place, uint64_t bytes)
{
    uint64_t count = grains_of(bytes);
    mark(arena, place / ARENA_GRAIN_BYTES, count, false);
    arena->taken_bytes -= count * ARENA_GRAIN_BYTES;
    if (arena->taken_bytes == 0)
        arena->search_from = 0;
}
