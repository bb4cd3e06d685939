#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "cli/path_list.h"

static void check_prepended(const char *list, const char *separators, const char *expected)
{
    char *once = NULL, *twice = NULL;
    assert_int_equal(path_list_prepend(&once, list, "/us", separators, NULL), 0);
    assert_string_equal(once, expected);
    assert_int_equal(path_list_prepend(&twice, once, "/us", separators, NULL), 0);
    assert_string_equal(twice, expected);
    free(once);
    free(twice);
}

static void our_library_is_first_once_and_the_others_stay(void **state)
{
    check_prepended(NULL, ": ", "/us");
    check_prepended("", ": ", "/us");
    check_prepended("/other.so", ": ", "/us:/other.so");
    check_prepended("/a.so /b.so:/c.so", ": ", "/us:/a.so /b.so:/c.so");
    check_prepended("/us", ": ", "/us");
    check_prepended("/us /a.so", ": ", "/us /a.so");
    check_prepended("/a.so:/us /b.so", ": ", "/us:/a.so /b.so");
    check_prepended("/us:/us", ": ", "/us");
    check_prepended("/usual.so:/use", ": ", "/us:/usual.so:/use");
}

static void empty_entries_keep_meaning_the_working_folder(void **state)
{
    check_prepended(":/a", ":;", "/us::/a");
    check_prepended("/a::/b", ":;", "/us:/a::/b");
    check_prepended("/a b;/c", ":;", "/us:/a b;/c");
}

static void check_removed(const char *list, const char *expected)
{
    char *result = NULL;
    assert_int_equal(path_list_remove(&result, list, "/us", ":;", NULL), 0);
    assert_string_equal(result, expected);
    free(result);
}

static void ours_is_taken_out_and_the_others_stay(void **state)
{
    check_removed(NULL, "");
    check_removed("/us", "");
    check_removed("/us:/a", "/a");
    check_removed("/a:/us;/b", "/a;/b");
    check_removed("/a:/us", "/a");
    check_removed("/used", "/used");
}

static void what_the_loader_could_not_read_is_refused(void **state)
{
    static const char *const rows[] = {"/my libs/x.so", "/a:b/x.so"};
    for (size_t i = 0; i < 2; i++) {
        char *result = NULL;
        struct error error = {0};
        assert_int_equal(path_list_prepend(&result, NULL, rows[i], ": ", &error), -EINVAL);
        assert_null(result);
        assert_int_equal(error.status, EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_library_is_first_once_and_the_others_stay),
        cmocka_unit_test(empty_entries_keep_meaning_the_working_folder),
        cmocka_unit_test(ours_is_taken_out_and_the_others_stay),
        cmocka_unit_test(what_the_loader_could_not_read_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
