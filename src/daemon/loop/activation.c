#include "daemon/loop/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "base/cleanup.h"

struct place {
    const char *name, *path;
    int type;
    const char *directive; /* the unit's directive that makes such a socket */
    int *fd;
};

static int take_socket(const struct place *place, int fd, struct error *error)
{
    if (*place->fd >= 0)
        return error_set(
            error, EINVAL, NULL,
            "the service manager passed two sockets named '%s'; check the units with FileDescriptorName=%s",
            place->name, place->name);
    if (sd_is_socket_unix(fd, place->type, 1, place->path, 0) <= 0)
        return error_set(error, EINVAL, NULL,
                         "the service manager passed another socket named '%s'; expected %s=%s in the unit "
                         "with FileDescriptorName=%s",
                         place->name, place->directive, place->path, place->name);
    /* systemd passes blocking sockets; a client that gives up before accept() would stop the loop. */
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return error_set_errno(error, errno, "cannot use the socket %s", place->path);
    *place->fd = fd;
    return 0;
}

static void free_names(char ***names)
{
    for (char **name = *names; name && *name; name++)
        free(*name);
    free(*names);
}

int activation_take(const struct paths *paths, int *control_fd, int *attach_fd, struct error *error)
{
    int control = -1, attach = -1;
    const struct place places[] = {
        {ACTIVATION_CONTROL, paths->control_socket, SOCK_STREAM, "ListenStream", &control},
        {ACTIVATION_ATTACH, paths->attach_socket, SOCK_SEQPACKET, "ListenSequentialPacket", &attach},
    };
    __attribute__((cleanup(free_names))) char **names = NULL;
    int count = sd_listen_fds_with_names(true, &names);
    if (count < 0)
        return error_set_errno(error, -count, "cannot read LISTEN_FDS and LISTEN_FDNAMES");
    for (int i = 0; i < count; i++) {
        const struct place *place = places, *end = places + sizeof(places) / sizeof(places[0]);
        while (place < end && strcmp(place->name, names[i]) != 0)
            place++;
        if (place == end)
            return error_set(error, EINVAL, NULL,
                             "the service manager passed a socket named '%.80s'; expected " ACTIVATION_CONTROL
                             " or " ACTIVATION_ATTACH "; set FileDescriptorName= in its unit",
                             names[i]);
        int result = take_socket(place, SD_LISTEN_FDS_START + i, error);
        if (result < 0)
            return result;
    }
    *control_fd = control;
    *attach_fd = attach;
    return 0;
}
