#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process.h"

static void a_process_is_known_by_pid_and_start_time(void **state)
{
    uint64_t ticks = 0;
    assert_int_equal(process_start_time(getpid(), &ticks), 0);
    assert_true(process_is_alive(getpid(), ticks));
    assert_false(process_is_alive(getpid(), ticks + 1));
}

static void a_name_with_parentheses_does_not_confuse_the_fields(void **state)
{
    uint64_t before = 0, after = 0;
    assert_int_equal(process_start_time(getpid(), &before), 0);
    assert_int_equal(prctl(PR_SET_NAME, "a) R (b"), 0);
    assert_int_equal(process_start_time(getpid(), &after), 0);
    assert_int_equal(before, after);
}

static void a_zombie_is_dead(void **state)
{
    pid_t child = fork();
    if (child == 0)
        pause();
    uint64_t ticks = 0;
    assert_int_equal(process_start_time(child, &ticks), 0);
    assert_true(process_is_alive(child, ticks));
    kill(child, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_start_time(child, &ticks), -ESRCH);
    assert_false(process_is_alive(child, ticks));
    waitpid(child, NULL, 0);
    assert_false(process_is_alive(child, ticks));
}

static void a_name_is_valid_utf8_and_one_line(void **state)
{
    static const char *const names[][2] = {
        {"plain", "plain"},
        {"two\nlines", "two?lines"},
        {"\xff\x1b[2J", "??[2J"},
        {"\x80\xff", "??"},
        {"12345678901234\xc3\xa9", "12345678901234"}, /* the kernel cuts it in the middle of a letter */
        {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
        {"a\xe2\x80\xae"
         "b\xe2\x80\xa8"
         "c",
         "a???b???c"}, /* right to left; a line's end */
        {"\xd8\x9c\xe2\x81\xa6\xe2\x81\xa9", "????????"},
        {"\xe2\x80\xaf\xe2\x81\xa5", "\xe2\x80\xaf\xe2\x81\xa5"}, /* beside those */
    };
    char command[16];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(prctl(PR_SET_NAME, names[i][0]), 0);
        process_command(getpid(), command, sizeof(command));
        assert_string_equal(command, names[i][1]);
    }
    process_command(-1, command, sizeof(command));
    assert_string_equal(command, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_known_by_pid_and_start_time),
        cmocka_unit_test(a_name_with_parentheses_does_not_confuse_the_fields),
        cmocka_unit_test(a_zombie_is_dead),
        cmocka_unit_test(a_name_is_valid_utf8_and_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
