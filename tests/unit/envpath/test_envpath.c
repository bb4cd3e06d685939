#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "envpath/envpath.h"
#include "envpath/merge.h"

static void check_merged(const char *list, const char *more, const char *separators, bool in_front,
                         const char *expected)
{
    char *merged = merge_lists(list, more, separators, in_front);
    if (!expected) {
        assert_null(merged);
        return;
    }
    assert_non_null(merged);
    assert_string_equal(merged, expected);
    assert_null(merge_lists(merged, more, separators, in_front)); /* once more changes nothing */
    free(merged);
}

static void entries_go_behind_or_before_in_their_order(void **state)
{
    check_merged("/bin", "/a:/b", ":", false, "/bin:/a:/b");
    check_merged("/bin", "/a:/b", ":", true, "/a:/b:/bin");
    check_merged(NULL, "/a", ":", false, "/a");
    check_merged("", "/a:/b", ":", true, "/a:/b");
}

static void an_entry_that_is_there_stays_where_it_is(void **state)
{
    check_merged("/a:/bin", "/bin:/b:/a", ":", false, "/a:/bin:/b");
    check_merged("/a:/bin", "/bin", ":", true, NULL);
    check_merged("/binaries:/b", "/bin", ":", false, "/binaries:/b:/bin");
    check_merged("/x", "/a:/a:/a", ":", true, "/a:/x");
}

static void empty_entries_are_not_added_and_those_that_are_there_stay(void **state)
{
    check_merged("/bin", "", ":", false, NULL);
    check_merged("/bin", ":::", ":", true, NULL);
    check_merged(NULL, "", ":", false, NULL);
    check_merged("/bin", ":/a::", ":", false, "/bin:/a");
    check_merged("::/bin:", "/a", ":", true, "/a:::/bin:");
}

static void each_list_has_its_separators(void **state)
{
    check_merged("/a.so /b.so", "/b.so /c.so:/a.so", ": ", false, "/a.so /b.so:/c.so");
    check_merged("/a;/b", "/b;/c d", ":;", false, "/a;/b:/c d");
    check_merged("/a b", "/a", ":", false, "/a b:/a");
}

static void all_variables_of_both_kinds_count(void **state)
{
    setenv("PATH", "/bin", 1);
    setenv("TF_PATH", "/t:/bin", 1);
    setenv("GPUSLICE_PATH", "/g", 1);
    setenv("TF_PREPEND_PATH", "/tp", 1);
    setenv("GPUSLICE_PREPEND_PATH", "/gp", 1);
    unsetenv("LD_PRELOAD");
    setenv("GPUSLICE_LD_PRELOAD", "/none.so", 1);
    setenv("LD_LIBRARY_PATH", "/lib", 1);
    setenv("TF_PREPEND_LD_LIBRARY_PATH", "/first", 1);
    setenv("TF_LD_LIBRARY_PATH", "", 1);
    for (int i = 0; i < 2; i++) {
        envpath_apply();
        assert_string_equal(getenv("PATH"), "/tp:/gp:/bin:/g:/t");
        assert_string_equal(getenv("LD_PRELOAD"), "/none.so");
        assert_string_equal(getenv("LD_LIBRARY_PATH"), "/first:/lib");
    }
}

static void clear_path(void)
{
    unsetenv("PATH");
    unsetenv("TF_PATH");
    unsetenv("GPUSLICE_PATH");
    unsetenv("TF_PREPEND_PATH");
    unsetenv("GPUSLICE_PREPEND_PATH");
}

static void a_path_that_is_unset_keeps_what_is_searched_without_it(void **state)
{
    clear_path();
    setenv("TF_PATH", "/t", 1);
    setenv("TF_PREPEND_PATH", "/tp", 1);
    envpath_apply();
    assert_string_equal(getenv("PATH"),
                        "/tp:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/t");
}

static void a_path_that_is_unset_stays_so_without_new_entries(void **state)
{
    clear_path();
    setenv("TF_PATH", "/usr/bin::/bin", 1);
    setenv("TF_PREPEND_PATH", "", 1);
    envpath_apply();
    assert_null(getenv("PATH"));
}

static void an_empty_path_has_the_new_entries_alone(void **state)
{
    clear_path();
    setenv("PATH", "", 1);
    setenv("TF_PATH", "/t", 1);
    envpath_apply();
    assert_string_equal(getenv("PATH"), "/t");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_go_behind_or_before_in_their_order),
        cmocka_unit_test(an_entry_that_is_there_stays_where_it_is),
        cmocka_unit_test(empty_entries_are_not_added_and_those_that_are_there_stay),
        cmocka_unit_test(each_list_has_its_separators),
        cmocka_unit_test(all_variables_of_both_kinds_count),
        cmocka_unit_test(a_path_that_is_unset_keeps_what_is_searched_without_it),
        cmocka_unit_test(a_path_that_is_unset_stays_so_without_new_entries),
        cmocka_unit_test(an_empty_path_has_the_new_entries_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
