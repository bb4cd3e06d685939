/* Invariants: GS_CHECK ends a program whose invariant does not hold, and is nothing in release builds. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "check_release.h"
#undef NDEBUG
#include "base/check.h"

static unsigned evaluated;

static int seen(int value)
{
    evaluated++;
    return value;
}

static void what_holds_is_looked_at_once_and_passes(void **state)
{
    evaluated = 0;
    GS_CHECK(seen(1));
    assert_int_equal(evaluated, 1);
}

static void what_does_not_hold_ends_the_program_and_says_where(void **state)
{
    int ends[2], status;
    char said[256] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        GS_CHECK(1 + 1 == 3);
        _exit(0);
    }
    close(ends[1]);
    assert_true(read(ends[0], said, sizeof(said) - 1) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(said, "test_check.c:"));
    assert_non_null(strstr(said, "1 + 1 == 3"));
}

static void a_release_build_evaluates_nothing(void **state)
{
    assert_int_equal(check_release_evaluated(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_holds_is_looked_at_once_and_passes),
        cmocka_unit_test(what_does_not_hold_ends_the_program_and_says_where),
        cmocka_unit_test(a_release_build_evaluates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
