#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/lock.h"

#define THREADS 4
#define ROUNDS 200000L

static struct lock lock;
static long count; /* under `lock` */

static void *count_up(void *unused)
{
    for (long i = 0; i < ROUNDS; i++) {
        lock_take(&lock);
        count++;
        lock_leave(&lock);
    }
    return unused;
}

static void one_thread_at_a_time_has_it(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count, THREADS * ROUNDS);
    assert_int_equal(lock.taken, 0);
    assert_int_equal(lock.waiters, 0);
}

/* In lock_take() until it has it. */
static void *take_once(void *got)
{
    lock_take(&lock);
    atomic_store((atomic_bool *)got, true);
    lock_leave(&lock);
    return NULL;
}

static void a_sleeper_gets_it_once_it_is_left(void **state)
{
    pthread_t thread;
    static atomic_bool got;
    (void)state;
    lock_take(&lock);
    assert_int_equal(pthread_create(&thread, NULL, take_once, &got), 0);
    while (atomic_load(&lock.waiters) == 0)
        ;
    assert_false(atomic_load(&got));
    lock_leave(&lock);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&got));
}

/* Leaving does not wait for the store to be seen, so a wake-up may be missed: here it always is. */
static void a_missed_wakeup_delays_nobody_for_ever(void **state)
{
    pthread_t thread;
    static atomic_bool got;
    (void)state;
    lock_take(&lock);
    assert_int_equal(pthread_create(&thread, NULL, take_once, &got), 0);
    while (atomic_load(&lock.waiters) == 0)
        ;
    atomic_store(&lock.taken, 0); /* lock_leave() that saw no waiter */
    pthread_join(thread, NULL);
    assert_true(atomic_load(&got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_at_a_time_has_it),
        cmocka_unit_test(a_sleeper_gets_it_once_it_is_left),
        cmocka_unit_test(a_missed_wakeup_delays_nobody_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
