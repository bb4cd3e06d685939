/* Chunks of host memory: there as a whole, and sealed, wherever they are wanted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
        assert_int_equal(ftruncate(fd, 2 * BYTES), -1);
        assert_int_equal(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                         F_SEAL_GROW | F_SEAL_SEAL);
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
    static const struct {
        uint64_t bytes;
        unsigned threads;
    } chunks[] = {
        {16 * MIB, 0}, {16 * MIB, CHUNK_THREADS_MOST}, {64 * MIB, 1},
        {70 * MIB, 3}, {70 * MIB, CHUNK_THREADS_MOST}, {70 * MIB, 2 * CHUNK_THREADS_MOST},
    };
    for (unsigned i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        struct stat status;
        int fd = chunk_make(chunks[i].bytes, "/sys", -1, chunks[i].threads);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal((uint64_t)status.st_blocks * 512, chunks[i].bytes);
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

/* A chunk, by a descriptor for a process and the daemon's own. */
static void make_two(int *fd, int *own_fd)
{
    *fd = chunk_make(BYTES, "/sys", -1, 1);
    *own_fd = chunk_keep(*fd);
    assert_true(*fd >= 0 && *own_fd >= 0);
    assert_false(chunk_is_unused(*own_fd));
}

/* On its way to somebody who has not received it yet. */
static void post(int socket, int fd)
{
    char byte = 0;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof(fd));
    assert_int_equal(sendmsg(socket, &message, 0), 1);
}

static int open_again(int fd, int flags)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, flags | O_CLOEXEC);
    assert_true(again >= 0);
    return again;
}

static void a_chunk_is_used_as_long_as_anybody_has_it_in_any_way(void **state)
{
    int fd, own_fd, sockets[2], told[2];
    char byte;
    make_two(&fd, &own_fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    assert_int_equal(pipe(told), 0);
    int reader = open_again(fd, O_RDONLY);
    unsigned char *pages = map(fd);
    pid_t child = fork();
    if (child == 0) { /* it has all of them until it is told to end */
        close(told[1]);
        _exit(read(told[0], &byte, 1) != 0);
    }
    post(sockets[0], fd);
    close(fd);
    assert_false(chunk_is_unused(own_fd));
    munmap(pages, BYTES);
    close(reader);
    close(sockets[1]);
    close(sockets[0]);
    assert_false(chunk_is_unused(own_fd));
    close(told[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(chunk_is_unused(own_fd));
    chunk_end(own_fd);
}

/* One thing at a time is enough to have it. */
static void each_way_to_have_a_chunk_counts(void **state)
{
    for (unsigned way = 0; way < 5; way++) {
        int fd, own_fd, sockets[2], copy = -1;
        void *pages = NULL;
        make_two(&fd, &own_fd);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
        if (way == 0)
            copy = dup(fd);
        else if (way == 1)
            copy = open_again(fd, O_RDONLY);
        else if (way == 2)
            pages = map(fd);
        else if (way == 3)
            pages = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
        else
            post(sockets[0], fd);
        close(fd);
        assert_false(chunk_is_unused(own_fd));
        close(copy);
        if (pages)
            munmap(pages, BYTES);
        close(sockets[0]);
        close(sockets[1]);
        assert_true(chunk_is_unused(own_fd));
        chunk_end(own_fd);
    }
}

/* A path alone holds nothing, and opens nothing any more. */
static void a_chunk_that_has_ended_has_no_memory_for_anybody(void **state)
{
    int fd, own_fd;
    struct stat status;
    make_two(&fd, &own_fd);
    unsigned char *pages = map(fd);
    int path = open_again(fd, O_PATH);
    chunk_end(own_fd);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        pages[0] = 1;
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGBUS);
    int again = open_again(path, O_RDWR);
    assert_int_equal(ftruncate(again, BYTES), -1);
    assert_int_equal(fallocate(again, 0, 0, BYTES), -1);
    assert_int_equal(fallocate(again, FALLOC_FL_KEEP_SIZE, 0, BYTES), -1);
    assert_int_equal(write(again, "x", 1), -1);
    assert_int_equal(fstat(again, &status), 0);
    assert_int_equal(status.st_size + status.st_blocks, 0);
    munmap(pages, BYTES);
    close(again);
    close(path);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_there_zero_and_sealed),
        cmocka_unit_test(a_chunk_is_there_as_a_whole_by_many_threads),
        cmocka_unit_test(a_chunk_is_made_near_the_node_that_is_asked_for),
        cmocka_unit_test(a_chunk_is_bound_to_nodes_with_cpus),
        cmocka_unit_test(what_the_machine_does_not_have_is_said),
        cmocka_unit_test(a_chunk_is_used_as_long_as_anybody_has_it_in_any_way),
        cmocka_unit_test(each_way_to_have_a_chunk_counts),
        cmocka_unit_test(a_chunk_that_has_ended_has_no_memory_for_anybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
