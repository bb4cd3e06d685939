/* steps.c - preloaded into a program: stops or kills it at a chosen step of what it does.
 *
 * step   a call by which a thread of the chosen name (its beginning is enough) makes, maps, frees or hands over memory, moves
 *        much of it, or speaks to another process; in the middle of a large move there is one more
 *
 * STEPS_FILE names a file of a struct steps, which the test writes and reads while the program runs. The calls are made as
 * system calls of their own, so that nothing has to be looked up. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define LARGE_BYTES (UINT64_C(256) << 10)

struct steps {
    _Atomic uint32_t is_armed; /* steps are counted */
    _Atomic uint32_t at;       /* the signal is sent at this one; 0: at each */
    _Atomic uint32_t signal;
    _Atomic uint32_t count; /* so far */
    char thread[16];
    char what[16]; /* the last one */
};

static struct steps *steps;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("STEPS_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory =
        fd >= 0 ? mmap(NULL, sizeof(struct steps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory != MAP_FAILED)
        steps = memory;
}

static void step(const char *what)
{
    char name[16] = "";
    if (!steps || !atomic_load(&steps->is_armed) || prctl(PR_GET_NAME, name) < 0 ||
        strncmp(name, steps->thread, strlen(steps->thread)) != 0)
        return;
    strncpy(steps->what, what, sizeof(steps->what) - 1);
    uint32_t number = atomic_fetch_add(&steps->count, 1) + 1, at = atomic_load(&steps->at);
    if (at == 0 || at == number)
        kill(getpid(), (int)atomic_load(&steps->signal));
}

#define STEP(type, name, call, parameters, ...)                                                              \
    EXPORT type name parameters                                                                              \
    {                                                                                                        \
        step(#name);                                                                                         \
        return (type)syscall(call, __VA_ARGS__);                                                             \
    }

STEP(void *, mmap64, SYS_mmap, (void *at, size_t bytes, int protection, int flags, int fd, off64_t from), at,
     bytes, protection, flags, fd, from)
STEP(int, munmap, SYS_munmap, (void *at, size_t bytes), at, bytes)
STEP(int, mprotect, SYS_mprotect, (void *at, size_t bytes, int protection), at, bytes, protection)
STEP(int, madvise, SYS_madvise, (void *at, size_t bytes, int advice), at, bytes, advice)
STEP(int, memfd_create, SYS_memfd_create, (const char *name, unsigned flags), name, flags)
STEP(int, ftruncate64, SYS_ftruncate, (int fd, off64_t bytes), fd, bytes)
STEP(int, fallocate64, SYS_fallocate, (int fd, int mode, off64_t from, off64_t bytes), fd, mode, from, bytes)
STEP(int, close, SYS_close, (int fd), fd)
STEP(ssize_t, send, SYS_sendto, (int fd, const void *from, size_t bytes, int flags), fd, from, bytes, flags,
     NULL, 0)
STEP(ssize_t, sendmsg, SYS_sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
STEP(ssize_t, recv, SYS_recvfrom, (int fd, void *to, size_t bytes, int flags), fd, to, bytes, flags, NULL,
     NULL)
STEP(ssize_t, recvmsg, SYS_recvmsg, (int fd, struct msghdr *message, int flags), fd, message, flags)

EXPORT void *memmove(void *to, const void *from, size_t bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    if (target + bytes <= source || source + bytes <= target) {
        size_t half = bytes < LARGE_BYTES ? 0 : bytes / 2;
        memcpy(target, source, half);
        if (half)
            step("memmove");
        memcpy(target + half, source + half, bytes - half);
        return to;
    }
    for (size_t i = 0; i < bytes; i++) {
        size_t at = target < source ? i : bytes - 1 - i;
        ((volatile unsigned char *)target)[at] = source[at];
    }
    return to;
}
