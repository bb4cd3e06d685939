#include "simgpu/memory/shared_descriptor.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int shared_descriptor_make(const struct shared_descriptor *what, int memory, int token)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    int fds[2] = {memory, token};
    size_t fds_bytes = (token < 0 ? 1 : 2) * sizeof(int);
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(fds))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)what, .iov_len = sizeof(*what)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(fds_bytes)};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(fds_bytes);
    memcpy(CMSG_DATA(&control.header), fds, fds_bytes);
    bool sent = sendmsg(ends[1], &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*what);
    close(ends[1]);
    if (sent)
        return ends[0];
    close(ends[0]);
    return -1;
}

bool shared_descriptor_read(int fd, struct shared_descriptor *what, int *memory, int *token)
{
    int fds[2] = {-1, -1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(fds))];
    } control = {0};
    struct iovec part = {.iov_base = what, .iov_len = sizeof(*what)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t got = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return false;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(header),
               header->cmsg_len - CMSG_LEN(0) < sizeof(fds) ? header->cmsg_len - CMSG_LEN(0) : sizeof(fds));
    *memory = fds[0];
    *token = fds[1];
    if (got == (ssize_t)sizeof(*what) && what->magic == SHARED_DESCRIPTOR_MAGIC && *memory >= 0)
        return true;
    for (unsigned i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return false;
}
