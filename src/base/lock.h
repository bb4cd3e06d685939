/* lock.h - a lock between threads of one process, for sections of a few dozen instructions on a hot path.
 *
 * Without contention it costs one locked instruction, where pthread_mutex_t needs a second one to unlock. Zeroed
 * memory is a free lock, so a lock in memory that fork wipes is free in the child. Not recursive, not fair. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lock {
    _Atomic uint32_t taken;   /* 0 or 1; what waiters sleep on */
    _Atomic uint32_t waiters; /* threads in lock_wait() */
};

/* Whether any thread holds it: for invariants (base/check.h). */
static inline bool lock_is_taken(struct lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) != 0;
}

void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

static inline void lock_take(struct lock *lock)
{
    uint32_t is_free = 0;
    /* Acquire: pairs with the release in lock_leave() of the last holder. */
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->taken, &is_free, 1,
                                                                  memory_order_acquire, memory_order_relaxed),
                         false))
        lock_wait(lock);
}

static inline void lock_leave(struct lock *lock)
{
    atomic_store_explicit(&lock->taken, 0, memory_order_release); /* lock_take() */
    /* The processor may do this load before others see the store above. A thread that begins to wait in between is
     * not woken, but its sleep in lock_wait() is bounded. */
    if (__builtin_expect(atomic_load_explicit(&lock->waiters, memory_order_relaxed) != 0, false))
        lock_wake(lock);
}
