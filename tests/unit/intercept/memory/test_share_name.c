/* Names of descriptors: which memory has one of its own, so that it can be charged once. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "intercept/memory/share_name.h"

static uint64_t name_of(int fd, bool *is_its_own)
{
    uint64_t name = share_name_of_file(fd, is_its_own);
    assert_true(name != 0);
    close(fd);
    return name;
}

static void a_file_in_memory_has_a_name_of_its_own_through_each_of_its_descriptors(void **state)
{
    bool first_own, again_own, second_own;
    int first = memfd_create("first", MFD_CLOEXEC), second = memfd_create("second", MFD_CLOEXEC);
    uint64_t again_name = name_of(dup(first), &again_own), first_name = name_of(first, &first_own);
    assert_true(first_own && again_own && first_name == again_name);
    assert_true(name_of(second, &second_own) != first_name);
    assert_true(second_own);
}

static void a_device_node_and_an_anonymous_inode_stand_for_many(void **state)
{
    bool is_its_own;
    name_of(open("/dev/null", O_RDONLY | O_CLOEXEC), &is_its_own);
    assert_false(is_its_own);
    int first = eventfd(0, EFD_CLOEXEC), second = eventfd(0, EFD_CLOEXEC);
    uint64_t first_name = name_of(first, &is_its_own);
    assert_false(is_its_own);
    assert_true(name_of(second, &is_its_own) == first_name); /* so two memories would be one */
    assert_false(is_its_own);
}

static void what_is_not_a_descriptor_has_no_name(void **state)
{
    bool is_its_own;
    assert_int_equal(share_name_of_file(-1, &is_its_own), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_in_memory_has_a_name_of_its_own_through_each_of_its_descriptors),
        cmocka_unit_test(a_device_node_and_an_anonymous_inode_stand_for_many),
        cmocka_unit_test(what_is_not_a_descriptor_has_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
