#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/container.h"

#if defined(__x86_64__)
#define OURS "x86-64"
#define OTHER "AArch64"
#else
#define OURS "AArch64"
#define OTHER "x86-64"
#endif

static void check_libraries(const char *listing, const char *const *expected)
{
    json_t *libraries = container_driver_libraries(listing);
    size_t count = 0;
    for (; expected[count]; count++)
        assert_string_equal(json_string_value(json_array_get(libraries, count)), expected[count]);
    assert_int_equal(json_array_size(libraries), count);
    json_decref(libraries);
}

static void the_drivers_libraries_for_our_kind_of_program_are_found(void **state)
{
    check_libraries("4 libs found in cache `/etc/ld.so.cache'\n"
                    "\tlibnvidia-ml.so.1 (libc6," OURS ") => /lib/a/libnvidia-ml.so.1\n"
                    "\tlibnvidia-glcore.so.550.1 (libc6," OURS ") => /lib/a/libnvidia-glcore.so.550.1\n"
                    "\tlibcuda.so.1 (libc6," OURS ") => /lib/a b/libcuda.so.1\n"
                    "\tlibcuda.so.1 (libc6) => /usr/lib32/libcuda.so.1\n"
                    "\tlibcuda.so.1 (libc6," OTHER ") => /usr/lib/other/libcuda.so.1\n"
                    "\tlibcudart.so.12 (libc6," OURS ") => /usr/local/cuda/lib64/libcudart.so.12\n",
                    (const char *const[]){"/lib/a/libnvidia-ml.so.1", "/lib/a b/libcuda.so.1", NULL});
}

static void a_listing_of_another_form_has_none(void **state)
{
    check_libraries(NULL, (const char *const[]){NULL});
    check_libraries("", (const char *const[]){NULL});
    check_libraries("\n\n\tlibcuda.so.1\n(libcuda.so.1) => x\n", (const char *const[]){NULL});
}

static void a_mount_of_a_file_that_was_replaced_is_outdated(void **state)
{
    char old[] = "/tmp/container-XXXXXX", new[] = "/tmp/container-XXXXXX", mount[64];
    int fd = mkstemp(old);
    assert_true(fd >= 0);
    snprintf(mount, sizeof(mount), "/proc/self/fd/%d", fd); /* leads to the file, as a mount does */
    assert_false(container_mount_is_outdated(mount));
    close(mkstemp(new));
    assert_int_equal(rename(new, old), 0);
    assert_true(container_mount_is_outdated(mount));
    assert_false(container_mount_is_outdated(old));
    unlink(old);
    assert_false(container_mount_is_outdated(old));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drivers_libraries_for_our_kind_of_program_are_found),
        cmocka_unit_test(a_listing_of_another_form_has_none),
        cmocka_unit_test(a_mount_of_a_file_that_was_replaced_is_outdated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
