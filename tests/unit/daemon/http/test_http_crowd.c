/* Who has to go for one more over TCP. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/http/http_crowd.h"

/* A connection of which nobody looks at our end. */
struct caller {
    int own, other;
    struct http_guest *guest;
};

static void call_from(struct http_crowd *crowd, uint32_t address, struct caller *caller)
{
    int ends[2];
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    *caller = (struct caller){.own = ends[0], .other = ends[1]};
    caller->guest = http_crowd_enter(crowd, caller->own, (const struct sockaddr *)&from);
    assert_non_null(caller->guest);
}

static bool is_shut_down(const struct caller *caller)
{
    char byte;
    return recv(caller->other, &byte, 1, MSG_DONTWAIT) == 0;
}

static void hang_up(struct caller *caller)
{
    http_crowd_leave(caller->guest);
    close(caller->own);
    close(caller->other);
}

#define HERE UINT32_C(0x7f000001)
#define THERE UINT32_C(0x0a010203)

static void the_user_with_most_guests_loses_the_oldest_silent_one(void **state)
{
    static struct caller many[HTTP_CROWD_MAX - 1], few, late;
    struct http_crowd *crowd = http_crowd_new();
    call_from(crowd, THERE, &few);
    for (unsigned i = 0; i < HTTP_CROWD_MAX - 1; i++)
        call_from(crowd, HERE, &many[i]);
    http_crowd_set_asking(many[0].guest, true);
    call_from(crowd, THERE, &late);
    assert_false(is_shut_down(&many[0]));
    assert_true(is_shut_down(&many[1]));
    assert_false(is_shut_down(&many[2]));
    assert_false(is_shut_down(&few));
    http_crowd_set_asking(many[1].guest, true);  /* too late */
    http_crowd_set_asking(many[0].guest, false); /* the youngest from now on */
    hang_up(&late);
    call_from(crowd, THERE, &late);
    assert_false(is_shut_down(&many[2]));
    for (unsigned i = 2; i < HTTP_CROWD_MAX - 1; i++) {
        struct caller more;
        call_from(crowd, THERE + 1 + i, &more);
        assert_true(is_shut_down(&many[i]));
        assert_false(is_shut_down(&many[0]));
        http_crowd_leave(more.guest);
        close(more.own);
        close(more.other);
        hang_up(&many[i]);
        call_from(crowd, HERE, &many[i]);
    }
    hang_up(&few);
    hang_up(&late);
    for (unsigned i = 0; i < HTTP_CROWD_MAX - 1; i++)
        hang_up(&many[i]);
    http_crowd_free(crowd);
}

static void where_all_ask_the_user_with_most_loses_the_oldest(void **state)
{
    static struct caller many[HTTP_CROWD_MAX - 1], few, late;
    struct http_crowd *crowd = http_crowd_new();
    call_from(crowd, THERE, &few);
    http_crowd_set_asking(few.guest, true);
    for (unsigned i = 0; i < HTTP_CROWD_MAX - 1; i++) {
        call_from(crowd, HERE, &many[i]);
        http_crowd_set_asking(many[i].guest, true);
    }
    call_from(crowd, HERE, &late);
    assert_false(is_shut_down(&few));
    assert_true(is_shut_down(&many[0]));
    assert_false(is_shut_down(&many[1]));
    hang_up(&few);
    hang_up(&late);
    for (unsigned i = 0; i < HTTP_CROWD_MAX - 1; i++)
        hang_up(&many[i]);
    http_crowd_free(crowd);
}

int main(void)
{
    struct rlimit limit; /* each connection has both its ends here */
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_user_with_most_guests_loses_the_oldest_silent_one),
        cmocka_unit_test(where_all_ask_the_user_with_most_loses_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
