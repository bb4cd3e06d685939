/* Lines on descriptor 2 that leave the program as it was. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "intercept/resolve/report.h"

static int saved_stderr, pipe_out;

static int catch_stderr(void **state)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    pipe_out = ends[0];
    return 0;
}

static int release_stderr(void **state)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    return pipe_out < 0 ? 0 : close(pipe_out);
}

static void a_line_is_one_write_with_our_name_and_keeps_errno(void **state)
{
    char text[64] = "";
    errno = ENOTTY;
    report_line("%s asked %d", "gpu", 3);
    assert_int_equal(errno, ENOTTY);
    assert_int_equal(read(pipe_out, text, sizeof text - 1), 22);
    assert_string_equal(text, "gpuslice: gpu asked 3\n");
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
    char long_text[3000], text[4096];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    report_line("%s", long_text);
    ssize_t bytes = read(pipe_out, text, sizeof text);
    assert_in_range(bytes, REPORT_LINE_BYTES - 2, REPORT_LINE_BYTES);
    assert_int_equal(text[bytes - 1], '\n');
}

static void once_is_once(void **state)
{
    static atomic_bool said;
    char text[64] = "";
    for (int i = 0; i < 3; i++)
        report_once(&said, "%d", i);
    assert_int_equal(read(pipe_out, text, sizeof text - 1), 12);
    assert_string_equal(text, "gpuslice: 0\n");
}

/* SIGPIPE's default action would end this program. */
static void a_closed_pipe_raises_no_signal(void **state)
{
    close(pipe_out);
    pipe_out = -1;
    report_line("nobody reads this");
    sigset_t pending;
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

static void unknown_pointers_are_counted(void **state)
{
    uint64_t before = report_unknown_pointers();
    report_unknown_pointer("cuMemAlloc_v2");
    report_unknown_pointer("cuMemAlloc_v2");
    assert_int_equal(report_unknown_pointers() - before, 2);
}

int main(void)
{
    unsetenv("GPUSLICE_DEBUG");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_is_one_write_with_our_name_and_keeps_errno, catch_stderr,
                                        release_stderr),
        cmocka_unit_test_setup_teardown(a_long_line_is_cut_and_still_ends, catch_stderr, release_stderr),
        cmocka_unit_test_setup_teardown(once_is_once, catch_stderr, release_stderr),
        cmocka_unit_test_setup_teardown(a_closed_pipe_raises_no_signal, catch_stderr, release_stderr),
        cmocka_unit_test(unknown_pointers_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
