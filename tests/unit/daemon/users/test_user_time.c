/* Who floods the loop comes after everybody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/watch.h"
#include "daemon/users/lent_uids.h"
#include "daemon/users/user_time.h"

#define FLOODERS 30u
#define CALL_USEC UINT64_C(1000)
#define LOOKS 20u

static struct daemon daemon_state;

/* A socket in which there is always something. */
struct talker {
    struct paid_source paid;
    sd_event_source *source;
    int fd;
    unsigned calls;
};

static struct talker flooders[FLOODERS], other;
static unsigned since_other, most_since_other;

static int begin(void **state)
{
    daemon_state = (struct daemon){.user_time = NULL};
    since_other = most_since_other = 0;
    return sd_event_new(&daemon_state.loop) < 0 ? -1 : 0;
}

static void spend(uint64_t usec)
{
    uint64_t end = monotonic_ns() + usec * 1000;
    while (monotonic_ns() < end)
        ;
}

static int on_flood(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct talker *talker = userdata;
    if (!user_time_begin(&daemon_state, &talker->paid))
        return 0;
    talker->calls++;
    since_other++;
    spend(CALL_USEC);
    return 0;
}

static int on_other(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct talker *talker = userdata;
    assert_true(user_time_begin(&daemon_state, &talker->paid));
    if (since_other > most_since_other)
        most_since_other = since_other;
    since_other = 0;
    return ++talker->calls == LOOKS ? sd_event_exit(daemon_state.loop, 0) : 0;
}

static void add(struct talker *talker, int64_t priority, uid_t uid, sd_event_io_handler_t on_event)
{
    *talker = (struct talker){.fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
    assert_true(sd_event_add_io(daemon_state.loop, &talker->source, talker->fd, EPOLLIN, on_event, talker) >=
                0);
    user_time_watch(&daemon_state, &talker->paid, talker->source, priority, uid, 0);
}

static void drop(struct talker *talker)
{
    user_time_forget(&talker->paid);
    sd_event_source_disable_unref(talker->source);
    close(talker->fd);
}

static int end(void **state)
{
    for (unsigned i = 0; i < FLOODERS; i++)
        drop(&flooders[i]);
    drop(&other);
    user_time_stop(&daemon_state);
    sd_event_unref(daemon_state.loop);
    lent_uids_free(&daemon_state);
    return 0;
}

/* Thirty sources of a user that go before everything would leave nothing to another's. */
static void a_flood_of_one_user_comes_after_another_users_message(void **state)
{
    for (unsigned i = 0; i < FLOODERS; i++)
        add(&flooders[i], SD_EVENT_PRIORITY_IMPORTANT, 1001, on_flood);
    add(&other, SD_EVENT_PRIORITY_NORMAL, 1002, on_other);
    assert_int_equal(loop_run(&daemon_state), 0);
    assert_int_equal(other.calls, LOOKS);
    assert_true(most_since_other <= 10 + 1); /* its part, and one more that was begun */
}

static int on_last_look(sd_event_source *source, uint64_t usec, void *userdata)
{
    return sd_event_exit(daemon_state.loop, 0);
}

static void a_flood_beside_nobody_is_not_slowed_down(void **state)
{
    for (unsigned i = 0; i < FLOODERS; i++)
        add(&flooders[i], SD_EVENT_PRIORITY_IMPORTANT, 1001, on_flood);
    add(&other, SD_EVENT_PRIORITY_NORMAL, 1002, on_other);
    sd_event_source_set_enabled(other.source, SD_EVENT_OFF);
    sd_event_source *timer;
    sd_event_add_time_relative(daemon_state.loop, &timer, CLOCK_MONOTONIC, 300000, 1000, on_last_look, NULL);
    sd_event_source_set_priority(timer, SD_EVENT_PRIORITY_IMPORTANT);
    assert_int_equal(loop_run(&daemon_state), 0);
    sd_event_source_unref(timer);
    unsigned calls = 0;
    for (unsigned i = 0; i < FLOODERS; i++)
        calls += flooders[i].calls;
    assert_true(calls > 3 * 10 + 10); /* more than its parts of three windows */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_flood_of_one_user_comes_after_another_users_message, begin, end),
        cmocka_unit_test_setup_teardown(a_flood_beside_nobody_is_not_slowed_down, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
