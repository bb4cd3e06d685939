/* guard.h - locks that a thread gives back even if it is cancelled.
 *
 * When a thread is cancelled (pthread_cancel), it ends at its next call that waits or writes, whatever locks it
 * holds. So a thread cannot be cancelled while it holds one of these locks, or between guard_begin() and guard_end().
 * Both may be nested. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* How many guards the thread has begun, and its cancel state before the first. */
extern __thread unsigned guard_depth;
extern __thread int guard_before;

static inline void guard_begin(void)
{
    if (guard_depth++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard_before);
}

static inline void guard_end(void)
{
    if (--guard_depth == 0)
        pthread_setcancelstate(guard_before, NULL);
}

static inline void guard_lock(pthread_mutex_t *mutex)
{
    guard_begin();
    pthread_mutex_lock(mutex);
}

/* False: another thread holds the lock. */
static inline bool guard_trylock(pthread_mutex_t *mutex)
{
    guard_begin();
    if (pthread_mutex_trylock(mutex) == 0)
        return true;
    guard_end();
    return false;
}

static inline void guard_unlock(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
    guard_end();
}
