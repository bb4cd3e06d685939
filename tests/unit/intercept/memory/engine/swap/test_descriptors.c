/* Descriptors that this process hands out to others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "intercept/memory/engine/swap/ipc/descriptors.h"

/* How often accept4() fails from now on, and with what. */
static atomic_int failures_left;
static atomic_int failure;

int __real_accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict bytes, int flags);

int __wrap_accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict bytes, int flags)
{
    if (atomic_load(&failures_left) == 0)
        return __real_accept4(fd, address, bytes, flags);
    atomic_fetch_sub(&failures_left, 1);
    errno = failure;
    return -1;
}

static int open_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void assert_is_null(int fd)
{
    struct stat found, wanted;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &found), 0);
    assert_int_equal(stat("/dev/null", &wanted), 0);
    assert_int_equal(found.st_rdev, wanted.st_rdev);
    close(fd);
}

/* Before any other test: the thread starts with the first descriptor, and the first thing that it does is to fail. */
static void a_moment_without_descriptors_ends_nothing(void **state)
{
    struct descriptor_place place;
    failure = EMFILE;
    failures_left = 3;
    assert_int_equal(descriptors_add(open_null(), &place), 0);
    assert_is_null(descriptors_fetch(&place));
    assert_int_equal(failures_left, 0);
    descriptors_remove(place.number);
}

static void what_is_taken_back_is_not_there_and_others_are(void **state)
{
    struct descriptor_place gone, kept;
    assert_int_equal(descriptors_add(open_null(), &gone), 0);
    assert_int_equal(descriptors_add(open_null(), &kept), 0);
    descriptors_remove(gone.number);
    assert_int_equal(descriptors_fetch(&gone), -ENOENT);
    assert_is_null(descriptors_fetch(&kept));
    kept.secret++;
    assert_int_equal(descriptors_fetch(&kept), -ENOENT);
    kept.secret--;
    descriptors_remove(kept.number);
}

/* As they do in two containers that share a network namespace, where abstract sockets live. */
static void processes_of_one_number_are_told_apart(void **state)
{
    struct descriptor_place place;
    assert_int_equal(descriptors_add(open_null(), &place), 0);
    assert_true(descriptors_is_own(&place));
    place.secret++;
    assert_false(descriptors_is_own(&place));
    place.secret--;
    place.pid++;
    assert_false(descriptors_is_own(&place));
    descriptors_remove(place.number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moment_without_descriptors_ends_nothing),
        cmocka_unit_test(what_is_taken_back_is_not_there_and_others_are),
        cmocka_unit_test(processes_of_one_number_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
