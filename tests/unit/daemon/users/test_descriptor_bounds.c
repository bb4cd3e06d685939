/* What each user may hold of the daemon's descriptors, in numbers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/loop/daemon.h"
#include "daemon/users/descriptor_bounds.h"
#include "daemon/users/lent_uids.h"

#define DESCRIPTORS 400u

static uid_t one(void)
{
    return geteuid() + 1000;
}

static int add_if_allowed(struct daemon *daemon, uid_t uid, enum user_holding use, struct error *error)
{
    int result = user_check(daemon, uid, use, error);
    if (result == 0)
        user_add(daemon, uid, use);
    return result;
}

static unsigned add_all(struct daemon *daemon, uid_t uid, enum user_holding use, unsigned most)
{
    unsigned count = 0;
    while (count < most && add_if_allowed(daemon, uid, use, NULL) == 0)
        count++;
    return count;
}

static void remove_all(struct daemon *daemon, uid_t uid, enum user_holding use, unsigned count)
{
    while (count--)
        user_remove(daemon, uid, use);
}

static void set_descriptors(rlim_t count)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void nobody_has_more_than_a_quarter_of_the_descriptors(void **state)
{
    struct daemon daemon = {.session_count = 0};
    struct error error = {0};
    set_descriptors(DESCRIPTORS);
    assert_int_equal(add_all(&daemon, one(), USER_LEDGER, 20), 20);    /* 40 descriptors */
    assert_int_equal(add_all(&daemon, one(), USER_PROCESS, 1000), 20); /* 60 more: 100 of 400 */
    assert_int_equal(user_check(&daemon, one(), USER_RUNNER, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_TOO_MANY");
    assert_non_null(strstr(error.message, "take 100 of the 400"));
    /* Another one does not notice. */
    assert_int_equal(add_all(&daemon, one() + 1, USER_RUNNER, 1000), 100);
    user_remove(&daemon, one(), USER_LEDGER);
    assert_int_equal(add_all(&daemon, one(), USER_RUNNER, 1000), 2);
    remove_all(&daemon, one() + 1, USER_RUNNER, 100);
    remove_all(&daemon, one(), USER_RUNNER, 2);
    remove_all(&daemon, one(), USER_LEDGER, 19);
    remove_all(&daemon, one(), USER_PROCESS, 20);
    assert_true(LIST_EMPTY(&daemon.users));
    lent_uids_free(&daemon);
}

static void the_daemons_own_user_has_all_of_them(void **state)
{
    struct daemon daemon = {.session_count = 0};
    set_descriptors(DESCRIPTORS);
    assert_int_equal(add_all(&daemon, geteuid(), USER_PROCESS, 1000), 1000);
    remove_all(&daemon, geteuid(), USER_PROCESS, 1000);
    assert_true(LIST_EMPTY(&daemon.users));
    lent_uids_free(&daemon);
}

static void connections_that_said_nothing_yet_are_few_for_everybody(void **state)
{
    struct daemon daemon = {.session_count = 0};
    struct error error = {0};
    set_descriptors(20000);
    for (enum user_holding use = USER_REQUEST; use <= USER_SILENT; use++) {
        const unsigned users = USER_ALL_CONNECTIONS_MAX / USER_CONNECTIONS_MAX;
        for (uid_t i = 0; i < users; i++)
            assert_int_equal(add_all(&daemon, one() + i, use, 1000), USER_CONNECTIONS_MAX);
        assert_int_equal(user_check(&daemon, one(), use, &error), -EBUSY);
        assert_non_null(strstr(error.message, "has 256 connections"));
        assert_int_equal(user_check(&daemon, one() + users, use, &error), -EBUSY);
        assert_non_null(strstr(error.message, "there are 2048 connections"));
        /* All together do not keep the daemon's own user out. */
        assert_int_equal(add_all(&daemon, geteuid(), use, 1000), USER_CONNECTIONS_MAX);
        remove_all(&daemon, geteuid(), use, USER_CONNECTIONS_MAX);
        for (uid_t i = 0; i < users; i++)
            remove_all(&daemon, one() + i, use, USER_CONNECTIONS_MAX);
        assert_true(LIST_EMPTY(&daemon.users));
    }
    lent_uids_free(&daemon);
}

/* Make `lines` what /etc/subuid would be. */
static void lend(struct daemon *daemon, const char *lines)
{
    char path[] = "/tmp/test_descriptor_bounds.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, lines, strlen(lines)), strlen(lines));
    close(fd);
    lent_uids_read(daemon, path);
    unlink(path);
}

static void user_ids_that_were_lent_together_count_as_one_user(void **state)
{
    struct daemon daemon = {.session_count = 0};
    set_descriptors(DESCRIPTORS);
    lend(&daemon, "# "
                  "none\nalice:100000:65536\nbob:165536:65536\nalice:500000:10\nwrong:1\nwrong:0:5\nwrong:"
                  "4294967290:9\n");
    assert_int_equal(add_all(&daemon, 100000, USER_RUNNER, 1000), 100);
    assert_int_equal(add_all(&daemon, 165535, USER_RUNNER, 1000), 0);
    assert_int_equal(add_all(&daemon, 500009, USER_RUNNER, 1000), 0);
    assert_int_equal(user_with_most(&daemon, 500009, USER_RUNNER), 100000);
    assert_true(user_is_counted_as(&daemon, 165535, 100000));
    assert_int_equal(add_all(&daemon, 500010, USER_RUNNER, 1000), 100); /* nobody's */
    assert_int_equal(add_all(&daemon, 165536, USER_RUNNER, 1000), 100); /* bob's */
    remove_all(&daemon, 500010, USER_RUNNER, 100);
    remove_all(&daemon, 231071, USER_RUNNER, 100);
    remove_all(&daemon, 120000, USER_RUNNER, 100);
    assert_true(LIST_EMPTY(&daemon.users));
    lent_uids_free(&daemon);
}

static void what_is_counted_is_taken_back_though_the_file_changes(void **state)
{
    struct daemon daemon = {.session_count = 0};
    char user[LENT_UIDS_NAME];
    set_descriptors(DESCRIPTORS);
    lend(&daemon, "");
    assert_int_equal(add_all(&daemon, 100005, USER_RUNNER, 30), 30);
    assert_false(lent_uids_find(&daemon, 100005, user));
    lend(&daemon, "alice:100000:65536\n");
    assert_true(lent_uids_find(&daemon, 100005, user));
    assert_string_equal(user, "alice");
    assert_int_equal(add_all(&daemon, 100006, USER_RUNNER, 30), 30);
    lend(&daemon,
         "bob:100000:65536\ncarol:200000:65536\n"); /* alice is gone, but not what is counted for her */
    remove_all(&daemon, 100005, USER_RUNNER, 30);
    remove_all(&daemon, 100006, USER_RUNNER, 30);
    assert_true(LIST_EMPTY(&daemon.users));
    lent_uids_free(&daemon);
}

static void nobody_lends_root_or_the_daemons_own_user(void **state)
{
    struct daemon daemon = {.session_count = 0};
    char user[LENT_UIDS_NAME];
    lend(&daemon, "mallory:1:4294967294\n");
    assert_false(lent_uids_find(&daemon, 0, user) || lent_uids_find(&daemon, geteuid(), user));
    assert_int_equal(lent_uids_account(&daemon, geteuid()), geteuid());
    lent_uids_free(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_has_more_than_a_quarter_of_the_descriptors),
        cmocka_unit_test(the_daemons_own_user_has_all_of_them),
        cmocka_unit_test(connections_that_said_nothing_yet_are_few_for_everybody),
        cmocka_unit_test(user_ids_that_were_lent_together_count_as_one_user),
        cmocka_unit_test(what_is_counted_is_taken_back_though_the_file_changes),
        cmocka_unit_test(nobody_lends_root_or_the_daemons_own_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
