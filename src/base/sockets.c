#include "base/sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Connections inherit the option from the listening socket. */
void socket_refuse_descriptors(int listening_fd)
{
    int off = 0;
    setsockopt(listening_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

int socket_listen(const char *path, int type, mode_t mode, gid_t group, int *fd_out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, type, 0);
    if (fd < 0)
        return -errno;
    socket_refuse_descriptors(fd);
    unlink(path);
    /* Nobody can connect before listen(), and by then the mode is right. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        (group != (gid_t)-1 && chown(path, (uid_t)-1, group) < 0) || chmod(path, mode) < 0 ||
        listen(fd, SOMAXCONN) < 0) {
        int result = -errno;
        close(fd);
        return result;
    }
    *fd_out = fd;
    return 0;
}
