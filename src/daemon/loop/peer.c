#include "daemon/loop/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

int peer_credentials(int socket, struct peer *peer)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return -errno;
    *peer = (struct peer){.pid = credentials.pid, .uid = credentials.uid};
    return 0;
}

static bool is_readable(int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    return poll(&poll_fd, 1, 0) > 0;
}

int peer_identity(int socket, struct peer *peer, int *pidfd_out, uint64_t *start_ticks)
{
    int result = peer_credentials(socket, peer);
    if (result < 0)
        return result;
    if (peer->pid <= 0)
        return -ESRCH;

    cleanup_close int pidfd = -1;
    socklen_t length = sizeof(pidfd);
    bool is_exact = getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0;
    if (!is_exact) {
        if (errno != ENOPROTOOPT)
            return errno == EINVAL ? -ESRCH : -errno;
        pidfd = pidfd_open(peer->pid, 0);
        if (pidfd < 0)
            return -errno;
    }
    result = process_start_time(peer->pid, start_ticks);
    if (result < 0)
        return result;
    /* The process was alive after its start time was read, so that time is its own. Without SO_PEERPIDFD the
     * pid may belong to another process since the connection was made; then the peer has gone, and has hung up. */
    if (is_readable(pidfd, POLLIN) || (!is_exact && is_readable(socket, POLLRDHUP)))
        return -ESRCH;
    *pidfd_out = steal_fd(&pidfd);
    return 0;
}

int peer_parent(int socket, struct peer *peer, int *pidfd_out, uint64_t *start_ticks)
{
    cleanup_close int child = -1, parent = -1;
    pid_t pid, again;
    int result = peer_identity(socket, peer, &child, start_ticks);
    if (result == 0)
        result = process_parent(peer->pid, &pid);
    if (result == 0 && pid <= 0)
        result = -ESRCH;
    if (result == 0 && (parent = pidfd_open(pid, 0)) < 0)
        result = -errno;
    if (result == 0)
        result = process_start_time(pid, start_ticks);
    if (result == 0)
        result = process_parent(peer->pid, &again);
    if (result < 0)
        return result;
    /* The child is alive, and has the same parent as before that parent was opened. */
    if (again != pid || is_readable(child, POLLIN) || is_readable(parent, POLLIN))
        return -ESRCH;
    peer->pid = pid;
    *pidfd_out = steal_fd(&parent);
    return 0;
}

int peer_open(pid_t pid, uint64_t start_ticks)
{
    cleanup_close int pidfd = pidfd_open(pid, 0);
    if (pidfd < 0)
        return errno == EINVAL ? -ESRCH : -errno;
    uint64_t ticks;
    int result = process_start_time(pid, &ticks);
    if (result < 0)
        return result;
    if (ticks != start_ticks || is_readable(pidfd, POLLIN))
        return -ESRCH;
    return steal_fd(&pidfd);
}

static bool look_at(const char *path, struct statx *status)
{
    /* Without asking a server of files: the file may be on one of the program's user. */
    return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_NLINK | STATX_UID,
                 status) == 0;
}

/* Whether the file that the program runs is the one at its path. In a mount namespace of its own a user can mount any file
 * there. A file that an upgrade has replaced is gone from there, and its owner and its device are those of the new one. */
static bool runs_executable(const struct config_program *program)
{
    char path[32];
    struct statx found, runs;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)program->pid);
    if (!look_at(program->executable, &found) || !look_at(path, &runs) ||
        found.stx_dev_major != runs.stx_dev_major || found.stx_dev_minor != runs.stx_dev_minor)
        return false;
    return found.stx_ino == runs.stx_ino || (runs.stx_nlink == 0 && found.stx_uid == runs.stx_uid);
}

void peer_program(int socket, pid_t pid, struct config_program *program)
{
    static const char deleted[] = " (deleted)"; /* the suffix in /proc for a file that an upgrade replaced */
    struct ucred credentials = {.uid = UID_OVERFLOW, .gid = UID_OVERFLOW};
    socklen_t length = sizeof(credentials);
    char path[32];
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
    *program = (struct config_program){.uid = credentials.uid,
                                       .groups = {credentials.gid},
                                       .group_count = 1,
                                       .runs_executable = runs_executable,
                                       .pid = pid};
    length = sizeof(program->groups) - sizeof(program->groups[0]);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, program->groups + 1, &length) == 0)
        program->group_count += length / sizeof(program->groups[0]);
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t count = readlink(path, program->executable, sizeof(program->executable) - 1);
    size_t used = count > 0 ? (size_t)count : 0;
    program->executable[used] = '\0';
    if (used > strlen(deleted) && strcmp(program->executable + used - strlen(deleted), deleted) == 0)
        program->executable[used - strlen(deleted)] = '\0';
}
