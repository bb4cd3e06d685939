#include "daemon/loop/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sockets.h"
#include "daemon/loop/activation.h"

#define WAIT_STEP_NS 50000000
#define WAIT_STEPS 100

/* The daemon that wrote its process id into the lock's file; 0: none did. */
static pid_t last_holder(int lock_fd)
{
    char text[16] = "";
    ssize_t length = pread(lock_fd, text, sizeof(text) - 1, 0);
    return length > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* A daemon that died while it was starting a program leaves the lock to that, until the program is executed. */
static bool is_left_over(int lock_fd)
{
    pid_t holder = last_holder(lock_fd);
    return holder > 0 && kill(holder, 0) < 0 && errno == ESRCH;
}

static int busy(struct error *error, int lock_fd, const char *path)
{
    return error_set(error, EBUSY, NULL,
                     "gpusliced already runs in %s as process %d; use that daemon, or end it", path,
                     (int)last_holder(lock_fd));
}

int runtime_lock(struct runtime *runtime, const struct paths *paths, bool wait, struct error *error)
{
    cleanup_close int lock_fd = open(paths->lock_file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    cleanup_close int state_fd = open(paths->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_fd < 0 || state_fd < 0)
        return error_set_errno(error, errno, "cannot open %s",
                               lock_fd < 0 ? paths->lock_file : paths->state_dir);
    for (int steps = WAIT_STEPS; flock(lock_fd, LOCK_EX | LOCK_NB) < 0; steps--) {
        if (errno != EWOULDBLOCK)
            return error_set_errno(error, errno, "cannot lock %s", paths->lock_file);
        if (steps <= 0 || runtime_is_served(paths) || !(wait || is_left_over(lock_fd)))
            return busy(error, lock_fd, paths->runtime_dir);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_STEP_NS}, NULL);
    }
    if (flock(state_fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(
            error, EBUSY, NULL,
            "another gpusliced, of another runtime folder, uses the state folder %s; set GPUSLICE_STATE_DIR "
            "to a folder of its own",
            paths->state_dir);
    if (ftruncate(lock_fd, 0) < 0 || dprintf(lock_fd, "%d\n", (int)getpid()) < 0)
        return error_set_errno(error, errno, "cannot write %s", paths->lock_file);
    *runtime = (struct runtime){.paths = paths, .control_fd = -1, .attach_fd = -1};
    runtime->lock_fd = steal_fd(&lock_fd);
    runtime->state_fd = steal_fd(&state_fd);
    return 0;
}

static void fill_address(struct sockaddr_un *address, const char *path)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    strcpy(address->sun_path, path); /* paths_find() checked the length */
}

bool runtime_is_served(const struct paths *paths)
{
    struct sockaddr_un address;
    fill_address(&address, paths->control_socket);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN);
}

int runtime_make_socket(const char *path, int type, mode_t mode, gid_t group, int *fd_out,
                        struct error *error)
{
    int result = socket_listen(path, type | SOCK_CLOEXEC | SOCK_NONBLOCK, mode, group, fd_out);
    return result < 0 ? error_set_errno(error, -result, "cannot make the socket %s", path) : 0;
}

static ino_t inode_of(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

static int make_sockets(struct runtime *runtime, struct error *error)
{
    const struct paths *paths = runtime->paths;
    const struct group *group = paths->system ? getgrnam("gpuslice") : NULL;
    int result = 0;
    if (!runtime->attach_passed)
        result = runtime_make_socket(paths->attach_socket, SOCK_SEQPACKET, paths->system ? 0666 : 0600,
                                     (gid_t)-1, &runtime->attach_fd, error);
    if (result == 0 && !runtime->control_passed)
        result = runtime_make_socket(paths->control_socket, SOCK_STREAM, paths->system ? 0660 : 0600,
                                     group ? group->gr_gid : (gid_t)-1, &runtime->control_fd, error);
    runtime->attach_inode = inode_of(paths->attach_socket);
    runtime->control_inode = inode_of(paths->control_socket);
    return result;
}

int runtime_listen(struct runtime *runtime, struct error *error)
{
    int result = activation_take(runtime->paths, &runtime->control_fd, &runtime->attach_fd, error);
    runtime->control_passed = runtime->control_fd >= 0;
    runtime->attach_passed = runtime->attach_fd >= 0;
    return result < 0 ? result : make_sockets(runtime, error);
}

bool runtime_is_found(const struct runtime *runtime)
{
    return (runtime->control_passed || inode_of(runtime->paths->control_socket) == runtime->control_inode) &&
           (runtime->attach_passed || inode_of(runtime->paths->attach_socket) == runtime->attach_inode);
}

/* Make sure that we hold the lock of the file that the path names now: take that one if it is another file. */
static int lock_anew(struct runtime *runtime, struct error *error)
{
    const struct paths *paths = runtime->paths;
    struct stat held, found;
    cleanup_close int fd = open(paths->lock_file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &found) < 0 || fstat(runtime->lock_fd, &held) < 0)
        return error_set_errno(error, errno, "cannot open %s", paths->lock_file);
    if (found.st_ino == held.st_ino && found.st_dev == held.st_dev)
        return 0;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return busy(error, fd, paths->runtime_dir);
    if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
        return error_set_errno(error, errno, "cannot write %s", paths->lock_file);
    close(runtime->lock_fd);
    runtime->lock_fd = steal_fd(&fd);
    return 0;
}

int runtime_make_anew(struct runtime *runtime, struct error *error)
{
    mode_t mask = umask(runtime->paths->system ? 0022 : 0077);
    int result = paths_create(runtime->paths, error);
    umask(mask);
    if (result == 0)
        result = lock_anew(runtime, error);
    return result < 0 ? result : make_sockets(runtime, error);
}

bool runtime_retire(struct runtime *runtime)
{
    char aside[PATH_MAX];
    snprintf(aside, sizeof(aside), "%s.old", runtime->paths->control_socket);
    if (rename(runtime->paths->control_socket, aside) < 0)
        return true; /* somebody has removed it: nobody finds us anyway */
    /* A client that connected did so before the rename, and waits in the backlog. */
    struct pollfd waiting = {.fd = runtime->control_fd, .events = POLLIN};
    if (poll(&waiting, 1, 0) > 0) {
        rename(aside, runtime->paths->control_socket);
        return false;
    }
    unlink(aside);
    return true;
}

void runtime_remove_sockets(const struct runtime *runtime)
{
    if (!runtime->control_passed)
        unlink(runtime->paths->control_socket);
    if (!runtime->attach_passed)
        unlink(runtime->paths->attach_socket);
}

void runtime_unlock(const struct runtime *runtime)
{
    flock(runtime->state_fd, LOCK_UN);
    flock(runtime->lock_fd, LOCK_UN);
}
