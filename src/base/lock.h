/* lock.h - a lock between threads of one process, for sections of a few dozen instructions on a hot path.
 *
 * Costs one locked instruction where nobody else is about: pthread_mutex_t takes a second to leave. Zeroed
 * memory is a free lock, so one in memory that fork wipes is free in the child. Not recursive, not fair. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lock {
    _Atomic uint32_t taken;   /* 0 or 1; what waiters sleep on */
    _Atomic uint32_t waiters; /* threads in lock_wait() */
};

/* Whether any thread has it: for invariants (base/check.h). */
static inline bool lock_is_taken(struct lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) != 0;
}

void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

static inline void lock_take(struct lock *lock)
{
    uint32_t is_free = 0;
    /* Acquire: with the release in lock_leave(), by whoever had it last. */
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->taken, &is_free, 1,
                                                                  memory_order_acquire, memory_order_relaxed),
                         false))
        lock_wait(lock);
}

static inline void lock_leave(struct lock *lock)
{
    atomic_store_explicit(&lock->taken, 0, memory_order_release); /* lock_take() */
    /* The processor may read this before others see the store. A thread that begins to wait in between is
     * then woken by nobody, and wakes by itself: lock_wait() sleeps for a bounded time. */
    if (__builtin_expect(atomic_load_explicit(&lock->waiters, memory_order_relaxed) != 0, false))
        lock_wake(lock);
}
