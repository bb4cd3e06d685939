/* Preloaded into a daemon: a kernel of before SO_PASSRIGHTS (Linux 6.16). */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int option, const void *value,
                                                      socklen_t length)
{
    int (*real)(int, int, int, const void *, socklen_t) =
        (int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
    if (level == SOL_SOCKET && option == SO_PASSRIGHTS) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return real(fd, level, option, value, length);
}

__attribute__((visibility("default"))) int getsockopt(int fd, int level, int option, void *value,
                                                      socklen_t *length)
{
    int (*real)(int, int, int, void *, socklen_t *) =
        (int (*)(int, int, int, void *, socklen_t *))dlsym(RTLD_NEXT, "getsockopt");
    if (level == SOL_SOCKET && option == SO_PASSRIGHTS) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return real(fd, level, option, value, length);
}
