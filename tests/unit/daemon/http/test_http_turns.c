/* Whose request is taken up next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include <cmocka.h>

#include "daemon/http/http_turns.h"
#include "daemon/loop/daemon.h"

static struct daemon host;
static struct http_turns *turns;
static unsigned taken[8], taken_count;

static void take(void *owner)
{
    if (taken_count < sizeof(taken) / sizeof(taken[0]))
        taken[taken_count] = *(unsigned *)owner;
    taken_count++;
}

static int begin(void **state)
{
    struct error error;
    (void)state;
    taken_count = 0;
    if (sd_event_new(&host.loop) < 0)
        return -1;
    turns = http_turns_start(&host, take, &error);
    return turns ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    http_turns_stop(turns);
    sd_event_unref(host.loop);
    return 0;
}

static void run_loop(void)
{
    for (unsigned i = 0; i < 20; i++)
        sd_event_run(host.loop, 0);
}

static void users_come_one_after_the_other(void **state)
{
    unsigned owners[] = {10, 11, 20};
    struct http_turn waiting[3] = {0};
    (void)state;
    http_turns_join(turns, 1, &waiting[0], &owners[0]);
    http_turns_join(turns, 1, &waiting[1], &owners[1]);
    http_turns_join(turns, 2, &waiting[2], &owners[2]);
    run_loop();
    assert_int_equal(taken_count, 3);
    assert_int_equal(taken[0], 10);
    assert_int_equal(taken[1], 20);
    assert_int_equal(taken[2], 11);
}

/* An answer that goes on, and is woken for something new while it waits to go on. */
static void a_waiting_user_has_one_turn_before_the_others(void **state)
{
    unsigned owners[] = {10, 11};
    struct http_turn waiting[2] = {0};
    (void)state;
    http_turns_join(turns, 1, &waiting[0], &owners[0]);
    http_turns_join(turns, 1, &waiting[0], &owners[0]);
    http_turns_join(turns, 1, &waiting[1], &owners[1]);
    run_loop();
    assert_int_equal(taken_count, 2);
    assert_int_equal(taken[1], 11);
}

static void a_request_that_has_gone_gets_no_turn(void **state)
{
    unsigned owners[] = {10, 11};
    struct http_turn waiting[2] = {0};
    (void)state;
    http_turns_join(turns, 1, &waiting[0], &owners[0]);
    http_turns_join(turns, 1, &waiting[1], &owners[1]);
    http_turns_leave(turns, &waiting[0]);
    http_turns_leave(turns, &waiting[0]);
    http_turns_finish(turns);
    assert_int_equal(taken_count, 1);
    assert_int_equal(taken[0], 11);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(users_come_one_after_the_other),
        TEST(a_waiting_user_has_one_turn_before_the_others),
        TEST(a_request_that_has_gone_gets_no_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
