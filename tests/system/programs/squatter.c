/* squatter - takes the descriptors that it does not know, as daemons and shells do, while it gives the GPU work.
 *
 *   squatter close | replace
 *
 * In each of three rounds it closes every socket that it did not make, or puts one of its own there, which has something to
 * read; goes on with its work; looks whether all that was to be read is still there and nothing has come; and works for
 * longer than it takes until a lost daemon is looked for again. Then it prints how many it took in each round. */
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver_program.h"

#define ROUNDS 3
#define FDS 1024
#define SOME_TIME_NS 300000000L
#define LONGER_NS 1300000000L

static CUfunction kernel;

static void work_for(long ns)
{
    for (long end_ns = now_ns() + ns; now_ns() < end_ns;) {
        for (int i = 0; i < 10; i++)
            CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, STEPS_FOR_US(200), NULL));
        CHECK(cuCtxSynchronize());
    }
}

static bool is_socket(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

static void fail(const char *what)
{
    fprintf(stderr, "squatter: %s\n", what);
    exit(1);
}

/* How many it took. */
static int take_sockets(bool replaces)
{
    int mine[2], taken[FDS], count = 0;
    char bytes[64];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, mine) < 0 || send(mine[0], "mine", 4, 0) != 4)
        fail("no sockets");
    for (int fd = STDERR_FILENO + 1; fd < FDS; fd++) {
        if (fd == mine[0] || fd == mine[1] || !is_socket(fd))
            continue;
        if (replaces)
            dup2(mine[1], fd);
        else
            close(fd);
        taken[count++] = fd;
    }
    work_for(SOME_TIME_NS);
    if (recv(mine[0], bytes, sizeof(bytes), MSG_DONTWAIT) >= 0)
        fail("somebody wrote to its socket");
    if (recv(mine[1], bytes, sizeof(bytes), MSG_DONTWAIT) != 4)
        fail("somebody read from its socket");
    for (int i = 0; replaces && i < count; i++)
        close(taken[i]);
    close(mine[0]);
    close(mine[1]);
    return count;
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    CHECK(cuInit(0));
    use_gpu(0);
    kernel = find_kernel(load_module(PTX(PTX_STEPS)), STEPS_KERNEL);
    work_for(SOME_TIME_NS);
    for (int round = 0; round < ROUNDS; round++) {
        int taken = take_sockets(strcmp(words[1], "replace") == 0);
        work_for(LONGER_NS);
        printf("%d ", taken);
    }
    puts("");
    return 0;
}
