#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../wrong.h"
#include "kube/node/tasks.h"

static char said[256];

static void say(const char *what)
{
    strncat(said, what, sizeof(said) - strlen(said) - 1);
}

/* One that says its name before and after it waits, maybe with a lock. */
struct speaker {
    const char *name, *lock;
    struct task *task;
};

static void speak(void *context)
{
    struct speaker *speaker = context;
    struct task_lock lock;
    if (speaker->lock)
        task_lock(&lock, speaker->lock);
    speaker->task = task_current();
    say(speaker->name);
    task_wait();
    say(speaker->name);
    if (speaker->lock)
        task_unlock(&lock);
}

static int begin(void **state)
{
    said[0] = '\0';
    return 0;
}

static void a_task_runs_until_it_waits(void **state)
{
    struct speaker a = {.name = "a"}, b = {.name = "b"};
    assert_null(task_current());
    assert_true(task_start(speak, &a));
    say("1");
    assert_true(task_start(speak, &b));
    say("2");
    task_wake(a.task);
    assert_null(task_current());
    task_wake(b.task);
    assert_string_equal(said, "a1b2ab");
}

static void threads_get_a_lock_in_turn(void **state)
{
    struct speaker a = {.name = "a", .lock = "x"}, b = {.name = "b", .lock = "x"},
                   c = {.name = "c", .lock = "x"}, other = {.name = "o", .lock = "y"};
    assert_true(task_start(speak, &a) && task_start(speak, &b) && task_start(speak, &other) &&
                task_start(speak, &c));
    assert_string_equal(said, "ao");
    task_wake(a.task);
    assert_string_equal(said, "aoab");
    task_wake(other.task);
    task_wake(b.task);
    task_wake(c.task);
    assert_string_equal(said, "aoabobcc");
}

static void start_another(void *context)
{
    struct speaker *inner = context;
    assert_true(task_start(speak, inner));
    say("|");
    task_wake(inner->task);
}

static void a_task_can_start_and_wake_another(void **state)
{
    struct speaker inner = {.name = "i"};
    assert_true(task_start(start_another, &inner));
    assert_string_equal(said, "i|i");
}

static void there_is_a_most_and_ended_ones_make_room(void **state)
{
    static struct speaker speakers[TASKS_MAX + 1];
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i <= TASKS_MAX; i++) {
            speakers[i] = (struct speaker){.name = ""};
            assert_int_equal(task_start(speak, &speakers[i]), i < TASKS_MAX);
        }
        for (unsigned i = 0; i < TASKS_MAX; i++)
            task_wake(speakers[i].task);
    }
}

static void wake_itself(void *context)
{
    task_wake(task_current());
}

static void give_back_another_ones_lock(void *context)
{
    struct task_lock lock = {.name = "lock"};
    task_unlock(&lock);
}

static void a_task_that_does_what_it_may_not_is_caught(void **state)
{
    struct task_lock lock;
    ASSERT_CAUGHT(task_wait());
    ASSERT_CAUGHT(task_lock(&lock, "lock"));
    ASSERT_CAUGHT(task_start(wake_itself, NULL));
    ASSERT_CAUGHT(task_start(give_back_another_ones_lock, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_task_runs_until_it_waits, begin),
        cmocka_unit_test_setup(a_task_that_does_what_it_may_not_is_caught, begin),
        cmocka_unit_test_setup(threads_get_a_lock_in_turn, begin),
        cmocka_unit_test_setup(a_task_can_start_and_wake_another, begin),
        cmocka_unit_test_setup(there_is_a_most_and_ended_ones_make_room, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
