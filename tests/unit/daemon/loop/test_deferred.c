/* Work that goes on a part at a time beside other work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/loop/deferred.h"

static sd_event *loop;
static struct deferred *parts;
static unsigned parts_done, others_done;

static int begin(void **state)
{
    parts_done = others_done = 0;
    return sd_event_new(&loop) < 0 ? -1 : 0;
}

static int end(void **state)
{
    deferred_free(parts);
    parts = NULL;
    sd_event_unref(loop);
    return 0;
}

static void do_a_part(void *context)
{
    parts_done++;
    deferred_wake(parts);
}

static void count_only(void *context)
{
    parts_done++;
}

static int on_ready(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    others_done++; /* and it stays ready */
    return 0;
}

static void other_work_has_its_turns_beside_work_without_end(void **state)
{
    sd_event_source *other;
    int ready = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(deferred_new(loop, do_a_part, NULL, &parts), 0);
    deferred_wake(parts);
    for (int i = 0; i < 5; i++)
        sd_event_run(loop, 0);
    assert_int_equal(parts_done, 5);
    assert_true(sd_event_add_io(loop, &other, ready, EPOLLIN, on_ready, NULL) >= 0);
    for (int i = 0; i < 20; i++)
        sd_event_run(loop, 0);
    assert_true(others_done >= 9 && others_done <= 11);
    assert_int_equal(parts_done + others_done, 25);
    sd_event_source_disable_unref(other);
    close(ready);
}

static void waking_twice_is_waking_once(void **state)
{
    assert_int_equal(deferred_new(loop, count_only, NULL, &parts), 0);
    assert_int_equal(sd_event_run(loop, 0), 0);
    deferred_wake(parts);
    deferred_wake(parts);
    assert_true(sd_event_run(loop, 0) > 0);
    assert_int_equal(sd_event_run(loop, 0), 0);
    assert_int_equal(parts_done, 1);
    deferred_wake(parts);
    assert_true(sd_event_run(loop, 0) > 0);
    assert_int_equal(parts_done, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(other_work_has_its_turns_beside_work_without_end, begin, end),
        cmocka_unit_test_setup_teardown(waking_twice_is_waking_once, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
