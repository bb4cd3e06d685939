/* The log file: bounded, ours alone, one line an event. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/loop/log.h"

static char folder[] = "/tmp/gpuslice-test-XXXXXX";
static char path[64], old_path[64];

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/log", folder);
    snprintf(old_path, sizeof(old_path), "%s/log.1", folder);
    return 0;
}

static int remove_folder(void **state)
{
    unlink(path);
    unlink(old_path);
    return rmdir(folder);
}

static void links_and_files_with_two_names_are_refused(void **state)
{
    struct error error;
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(log_open(path, &error), -EPERM);
    assert_non_null(strstr(error.message, path));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(log_open(path, &error) < 0);
    unlink(path);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(link(path, old_path), 0);
    assert_int_equal(log_open(path, &error), -EPERM);
    unlink(old_path);
    assert_false(log_is_file());
}

static void an_event_is_one_line_whatever_is_in_it(void **state)
{
    struct error error;
    char text[256] = "";
    assert_int_equal(log_open(path, &error), 0);
    log_info("name '%s'", "two\nlines\x1b[31m");
    int fd = open(path, O_RDONLY);
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(length > 0);
    assert_non_null(strstr(text, "Z info: name 'two?lines?[31m'\n"));
    assert_ptr_equal(strchr(text, '\n'), text + length - 1);
}

static void a_long_event_is_cut(void **state)
{
    struct stat before, after;
    char text[3000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    stat(path, &before);
    log_info("%s", text);
    stat(path, &after);
    assert_in_range(after.st_size - before.st_size, 900, 1024);
}

static void the_file_does_not_grow_without_bound(void **state)
{
    struct stat status;
    char text[900];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < 3 * LOG_FILE_BYTES / 900; i++)
        log_info("%s", text);
    assert_int_equal(stat(path, &status), 0);
    assert_in_range(status.st_size, 1, LOG_FILE_BYTES + 1024);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(stat(old_path, &status), 0);
    assert_in_range(status.st_size, LOG_FILE_BYTES, LOG_FILE_BYTES + 1024);
}

static void a_new_file_that_could_not_be_opened_is_tried_again(void **state)
{
    struct stat status;
    struct rlimit before, none;
    char text[900];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (stat(path, &status) == 0)
        log_info("%s", text);
    log_info("%s", text);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    log_info("%s", "there is room again");
    assert_int_equal(stat(path, &status), 0);
    assert_in_range(status.st_size, 1, 1024);
    assert_int_equal(stat(old_path, &status), 0);
    assert_in_range(status.st_size, LOG_FILE_BYTES, LOG_FILE_BYTES + 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_and_files_with_two_names_are_refused),
        cmocka_unit_test(an_event_is_one_line_whatever_is_in_it),
        cmocka_unit_test(a_long_event_is_cut),
        cmocka_unit_test(the_file_does_not_grow_without_bound),
        cmocka_unit_test(a_new_file_that_could_not_be_opened_is_tried_again),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
