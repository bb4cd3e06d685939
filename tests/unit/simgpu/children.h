/* children.h - processes that a test starts, steps and kills one by one; each uses the GPU for itself. */
#pragma once

#include "simulated.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* --- Children that answer one byte at a time: 0 is well -------------------------------------------- */

/* In a child: what has to hold. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

struct child {
    pid_t pid;
    int line; /* to it and from it */
};

static inline bool use_gpu(void)
{
    CUcontext context;
    return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

static inline void say(int line, const void *what, size_t bytes)
{
    if (send(line, what, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        _exit(90);
}

static inline void hear(int line, void *what, size_t bytes)
{
    if (recv(line, what, bytes, 0) != (ssize_t)bytes)
        _exit(91);
}

static inline void say_fd(int line, int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {
        .header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
    char byte = 'f';
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    if (sendmsg(line, &message, MSG_NOSIGNAL) != 1)
        _exit(92);
}

static inline int hear_fd(int line)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd = -1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    if (recvmsg(line, &message, MSG_CMSG_CLOEXEC) == 1 && message.msg_controllen > 0)
        memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
    return fd;
}

static inline struct child start(void (*body)(int line))
{
    struct child child;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    fflush(stdout);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        /* Nothing else of ours: a descriptor of memory holds it, wherever it is. */
        int line = dup2(ends[1], 100);
        for (int fd = 3; fd < 100; fd++)
            close(fd);
        alarm(60);
        body(line);
        _exit(0);
    }
    close(ends[1]);
    child.line = ends[0];
    return child;
}

/* One that does its work and ends well. */
static inline void run(void (*body)(int line))
{
    int status;
    struct child child = start(body);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.line);
    assert_int_equal(status, 0);
}

static inline void killed(struct child child)
{
    kill(child.pid, SIGKILL);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    close(child.line);
}

/* Let the child go on, and hear that it did. */
static inline void step(struct child child)
{
    char byte = 's';
    assert_int_equal(send(child.line, &byte, 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(child.line, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
}

/* In a child: wait for its next step; tell whether the last one went well. */
static inline void done(int line, bool well)
{
    char byte = well ? 0 : 1;
    say(line, &byte, 1);
}

static inline void next(int line)
{
    char byte;
    hear(line, &byte, 1);
}

static inline void tell_free(int line)
{
    size_t bytes = 0, total;
    if (!use_gpu() || cuMemGetInfo_v2(&bytes, &total) != CUDA_SUCCESS)
        bytes = 1;
    say(line, &bytes, sizeof(bytes));
}

/* As another process sees it. */
static inline uint64_t free_bytes(void)
{
    struct child child = start(tell_free);
    size_t bytes = 0;
    assert_int_equal(recv(child.line, &bytes, sizeof(bytes), 0), sizeof(bytes));
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    close(child.line);
    return bytes;
}
