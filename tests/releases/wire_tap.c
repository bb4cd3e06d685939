/* wire_tap - preloaded in front of libgpuslice.so: writes each message between a program and its daemon to the file TAP_FILE,
 * a line each: the descriptor, > or < for what the program sends or receives, and the bytes in hexadecimal. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/wire.h"

#define EXPORT __attribute__((visibility("default")))

static void note(int fd, char way, const struct msghdr *packet, ssize_t length)
{
    char line[32 + 2 * sizeof(struct wire_message)];
    const unsigned char *bytes = packet->msg_iov[0].iov_base;
    uint32_t magic = 0;
    if (length >= (ssize_t)sizeof(struct wire_header) && length <= (ssize_t)sizeof(struct wire_message))
        memcpy(&magic, bytes, sizeof(magic));
    if (magic != WIRE_MAGIC)
        return;
    int at = snprintf(line, sizeof(line), "%d %c ", fd, way);
    for (ssize_t i = 0; i < length; i++)
        at += snprintf(line + at, sizeof(line) - (size_t)at, "%02x", bytes[i]);
    line[at++] = '\n';
    int file = open(getenv("TAP_FILE"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || write(file, line, (size_t)at) != at)
        abort();
    close(file);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *packet, int flags)
{
    ssize_t (*real)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
    ssize_t length = real(fd, packet, flags);
    note(fd, '>', packet, length);
    return length;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *packet, int flags)
{
    ssize_t (*real)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
    ssize_t length = real(fd, packet, flags);
    note(fd, '<', packet, length);
    return length;
}
