/* guard.h - locks that are given back whatever befalls the thread.
 *
 * A thread that another one cancels (pthread_cancel) ends at the next call that waits or writes, whatever it holds; so it
 * cannot be cancelled while it has one of these locks, or between guard_begin() and guard_end(). Both may be nested. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* How many of them the thread has begun, and what it was before the first. */
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

/* False: another thread has it. */
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
