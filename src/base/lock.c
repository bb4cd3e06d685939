#include "base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Tries before the first sleep: a critical section is shorter than a system call. */
#define LOOKS 100
/* The longest delay that a missed wake-up costs a thread (lock_leave()). */
#define SLEEP_NS 1000000

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static bool try(struct lock *lock)
{
    uint32_t is_free = 0;
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&lock->taken, &is_free, 1, memory_order_acquire,
                                                   memory_order_relaxed); /* lock_leave() */
}

void lock_wait(struct lock *lock)
{
    for (int look = 0; look < LOOKS; look++) {
        if (try(lock))
            return;
        pause_briefly();
    }
    int saved_errno = errno;
    const struct timespec longest = {.tv_nsec = SLEEP_NS};
    atomic_fetch_add_explicit(&lock->waiters, 1, memory_order_seq_cst);
    while (!try(lock))
        syscall(SYS_futex, &lock->taken, FUTEX_WAIT_PRIVATE, 1, &longest, NULL, 0);
    atomic_fetch_sub_explicit(&lock->waiters, 1, memory_order_relaxed);
    errno = saved_errno;
}

void lock_wake(struct lock *lock)
{
    int saved_errno = errno;
    syscall(SYS_futex, &lock->taken, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved_errno;
}
