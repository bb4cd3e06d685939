/* Chunks of host memory: there as a whole, and sealed, wherever they are wanted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../base/fake_nodes.h"
#include "daemon/residency/chunk.h"

#define MIB (UINT64_C(1) << 20)
#define BYTES (4 * MIB)
#define MPOL_DEFAULT 0 /* linux/mempolicy.h */
#define MPOL_PREFERRED 1
#define MPOL_BIND 2

static unsigned char *map(int fd)
{
    unsigned char *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    return pages;
}

static void a_chunk_is_there_zero_and_sealed(void **state)
{
    static const int nodes[] = {-1, 0, 63, 1023, 1024, 1 << 30}; /* which no machine has all of */
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        struct stat status;
        int fd = chunk_make(BYTES, "/sys", nodes[i], 1);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal(status.st_size, BYTES);
        assert_true((uint64_t)status.st_blocks * 512 >= BYTES);
        assert_int_equal(ftruncate(fd, 0), -1);
        assert_int_equal(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                         F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        unsigned char *pages = map(fd);
        for (uint64_t at = 0; at < BYTES; at++)
            assert_int_equal(pages[at], 0);
        munmap(pages, BYTES);
        close(fd);
    }
}

/* However many threads share it, and also where parts are not alike. */
static void a_chunk_is_there_as_a_whole_by_many_threads(void **state)
{
    static const uint64_t sizes[] = {16 * MIB, 64 * MIB, 70 * MIB, 256 * MIB};
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (unsigned threads = 0; threads <= 2 * CHUNK_THREADS_MOST; threads += 4) {
            struct stat status;
            int fd = chunk_make(sizes[i], "/sys", -1, threads);
            assert_true(fd >= 0);
            assert_int_equal(fstat(fd, &status), 0);
            assert_int_equal((uint64_t)status.st_blocks * 512, sizes[i]);
            close(fd);
        }
}

static long policy_of(void *pages)
{
    enum { MPOL_F_ADDR = 2 };
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0UL, pages, MPOL_F_ADDR) == 0 ? mode : -errno;
}

/* The node is the file's: whoever maps it afterwards finds it there. */
static void a_chunk_is_made_near_the_node_that_is_asked_for(void **state)
{
    int anywhere = chunk_make(BYTES, "/sys", -1, 1), near = chunk_make(BYTES, "/sys", 0, 1);
    assert_true(anywhere >= 0 && near >= 0);
    unsigned char *pages_anywhere = map(anywhere), *pages_near = map(near);
    if (policy_of(pages_anywhere) != MPOL_DEFAULT)
        skip(); /* a kernel without nodes, or that does not let this process ask */
    assert_int_equal(policy_of(pages_near), MPOL_PREFERRED);
    munmap(pages_anywhere, BYTES);
    munmap(pages_near, BYTES);
    close(anywhere);
    close(near);
}

/* Where a node has no CPUs, as a GPU's on Grace, no chunk may go there, however full the others are. */
static void a_chunk_is_bound_to_nodes_with_cpus(void **state)
{
    char sysfs[FAKE_NODES_PATH];
    assert_int_equal(fake_nodes_begin(sysfs), 0);
    assert_true(fake_nodes_list(sysfs, "has_memory", "0-1\n") && fake_nodes_list(sysfs, "has_cpu", "0\n"));
    assert_true(fake_node(sysfs, 0, 8 << 20, 4 << 20, 0) && fake_node(sysfs, 1, 99 << 20, 99 << 20, 0));
    for (int near = -1; near <= 1; near++) {
        int fd = chunk_make(BYTES, sysfs, near, 1), plain = chunk_make(BYTES, "/sys", -1, 1);
        assert_true(fd >= 0 && plain >= 0);
        unsigned char *pages = map(fd), *plain_pages = map(plain);
        if (policy_of(plain_pages) == MPOL_DEFAULT) /* else as above */
            assert_int_equal(policy_of(pages), MPOL_BIND);
        munmap(pages, BYTES);
        munmap(plain_pages, BYTES);
        close(fd);
        close(plain);
    }
    assert_int_equal(fake_nodes_end(sysfs), 0);
}

static void what_the_machine_does_not_have_is_said(void **state)
{
    assert_true(chunk_make(UINT64_MAX / 2 / 4096 * 4096, "/sys", -1, 1) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_there_zero_and_sealed),
        cmocka_unit_test(a_chunk_is_there_as_a_whole_by_many_threads),
        cmocka_unit_test(a_chunk_is_made_near_the_node_that_is_asked_for),
        cmocka_unit_test(a_chunk_is_bound_to_nodes_with_cpus),
        cmocka_unit_test(what_the_machine_does_not_have_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
