/* descriptors.c - a program that closes its sockets, all of them, whenever SIGUSR1 comes; with SIGUSR2 it also has no descriptor left for
 * another. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS 256

static void close_sockets(int signal_number)
{
    struct stat what;
    if (signal_number == SIGUSR2)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, 3});
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        if (fstat(fd, &what) == 0 && S_ISSOCK(what.st_mode))
            close(fd);
}

__attribute__((constructor)) static void begin(void)
{
    signal(SIGUSR1, close_sockets);
    signal(SIGUSR2, close_sockets);
}
