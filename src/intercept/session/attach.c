#include "intercept/session/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "intercept/resolve/report.h"
#include "intercept/resolve/unknown.h"

/* Outside the private area, so that a forked child can close the copy that it got. */
static struct attach_descriptor connection;
static uint16_t connection_version; /* of the wire: what the daemon answered in */

/* By the system call: glibc's function is a symbol of GLIBC_2.33. */
static int file_status(int fd, struct stat *status)
{
    return (int)syscall(SYS_fstat, fd, status);
}

bool attach_is_ours(const struct attach_descriptor *descriptor)
{
    struct stat status;
    return descriptor->open && file_status(descriptor->fd, &status) == 0 &&
           status.st_dev == descriptor->device && status.st_ino == descriptor->inode;
}

void attach_let_go(struct attach_descriptor *descriptor)
{
    if (attach_is_ours(descriptor))
        close(descriptor->fd);
    descriptor->open = false;
}

void attach_close(void)
{
    attach_let_go(&connection);
}

static bool has_threads(void)
{
    struct stat status;
    return stat("/proc/self/task", &status) != 0 || status.st_nlink > 2 + 1;
}

/* Move a descriptor out of the way of programs that expect low numbers, or that use any number they like. In a
 * program with threads the number stays below 64, for which every process has room: to make room for more, the kernel
 * waits until no thread looks at the old table, 10 ms. */
static int move_up(int fd)
{
    struct rlimit files;
    int lowest = 256;
    if (has_threads())
        lowest = 48;
    else if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= 64)
        lowest = (int)(files.rlim_cur < 1024 ? files.rlim_cur : 1024) - 32;
    int high = fd < lowest ? fcntl(fd, F_DUPFD_CLOEXEC, lowest) : -1;
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

void attach_keep(struct attach_descriptor *descriptor, int fd)
{
    struct stat status;
    descriptor->fd = move_up(fd);
    descriptor->open = file_status(descriptor->fd, &status) == 0;
    descriptor->device = status.st_dev;
    descriptor->inode = status.st_ino;
}

int attach_connect(const struct session_settings *settings, int timeout_ms, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _Static_assert(sizeof(address.sun_path) == sizeof(settings->socket_path), "sun_path");
    memcpy(address.sun_path, settings->socket_path, sizeof(address.sun_path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(error, errno, "cannot make a socket");
    fd = move_up(fd);
    struct timeval wait = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    int result;
    do
        result = connect(fd, (struct sockaddr *)&address, sizeof(address));
    while (result < 0 && errno == EINTR);
    if (result < 0) {
        int status = errno == EAGAIN ? ETIMEDOUT : errno;
        close(fd);
        return error_set_errno(error, status, "cannot reach the daemon at %s", settings->socket_path);
    }
    return fd;
}

/* Map the two regions. If the daemon still uses the file of `previous`'s usage region, that region stays where it is
 * mapped. */
static int map_ledger(const struct wire_welcome *welcome, const int fds[static 2],
                      const struct attachment *previous, struct attachment *attachment, struct error *error)
{
    struct stat usage_file;
    if (welcome->layout != LEDGER_LAYOUT || welcome->slot >= LEDGER_SLOTS ||
        file_status(fds[1], &usage_file) < 0)
        return error_set(
            error, EPROTO, NULL,
            "the daemon's ledger has layout %u, this library knows %u; install both from one release",
            welcome->layout, LEDGER_LAYOUT);
    void *policy = mmap(NULL, welcome->policy_bytes, PROT_READ, MAP_SHARED, fds[0], 0);
    if (policy == MAP_FAILED)
        return error_set_errno(error, errno, "cannot map the session's limits");
    madvise(policy, welcome->policy_bytes, MADV_DONTFORK);

    void *usage = MAP_FAILED;
    if (previous && previous->usage_device == usage_file.st_dev &&
        previous->usage_inode == usage_file.st_ino) {
        usage = previous->slot.ledger.usage;
    } else {
        usage = mmap(NULL, welcome->usage_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
        if (usage == MAP_FAILED) {
            munmap(policy, welcome->policy_bytes);
            return error_set_errno(error, errno, "cannot map the session's ledger");
        }
        madvise(usage, welcome->usage_bytes, MADV_DONTFORK);
    }
    if (!ledger_policy_is_valid(policy, welcome->policy_bytes) ||
        !ledger_usage_is_valid(usage, welcome->usage_bytes)) {
        munmap(policy, welcome->policy_bytes);
        if (!previous || usage != (void *)previous->slot.ledger.usage)
            munmap(usage, welcome->usage_bytes);
        return error_set(error, EPROTO, NULL,
                         "the session's ledger is damaged; release the session and make a new one");
    }
    *attachment = (struct attachment){
        .slot = {.ledger = {policy, usage}, .index = welcome->slot, .generation = welcome->generation},
        .epoch = welcome->epoch,
        .usage_device = usage_file.st_dev,
        .usage_inode = usage_file.st_ino,
    };
    return 0;
}

static int say_hello(int fd, const struct session_settings *settings, const struct attachment *previous,
                     struct attachment *attachment, struct error *error)
{
    struct wire_message message = {.header.type = WIRE_HELLO};
    struct wire_hello *hello = &message.hello;
    hello->version_oldest = WIRE_VERSION_OLDEST;
    hello->version_newest = WIRE_VERSION;
    hello->layout_oldest = LEDGER_LAYOUT;
    hello->layout_newest = LEDGER_LAYOUT;
    hello->slot = previous ? previous->slot.index : WIRE_NO_SLOT;
    hello->generation = previous ? previous->slot.generation : 0;
    memcpy(hello->session_id, settings->session_id, sizeof(hello->session_id));
    memcpy(hello->token, settings->token, sizeof(hello->token));

    int fds[WIRE_FDS_MAX];
    unsigned count = 0;
    int result = wire_send(fd, &message, NULL, 0);
    if (result == 0)
        result = wire_receive(fd, &message, fds, &count);
    if (result < 0)
        return error_set_errno(error, result == -EAGAIN ? ETIMEDOUT : -result,
                               "no answer from the daemon at %s", settings->socket_path);
    if (message.header.type == WIRE_REFUSED) {
        bool is_no_rule = !*settings->session_id && message.refused.reason == WIRE_REFUSED_NO_SESSION;
        result = error_set(error, is_no_rule ? ENOENT : EACCES, NULL, "%s", message.refused.message);
    } else if (message.header.type == WIRE_WELCOME && count == 2)
        result = map_ledger(&message.welcome, fds, previous, attachment, error);
    else
        result =
            error_set(error, EPROTO, NULL, "the daemon at %s gave an answer that this library does not know",
                      settings->socket_path);
    attachment->version = message.header.version;
    while (count)
        close(fds[--count]);
    return result;
}

bool attach_is_nobody_there(int result)
{
    return result == -ENOENT || result == -ENOTDIR || result == -ECONNREFUSED || result == -EACCES ||
           result == -EPERM || result == -EAFNOSUPPORT;
}

int attach_open(const struct session_settings *settings, const struct attachment *previous, int timeout_ms,
                struct attachment *attachment, struct error *error)
{
    attach_close();
    int fd = attach_connect(settings, timeout_ms, error);
    if (fd < 0)
        return !*settings->session_id && attach_is_nobody_there(fd) ? -ENOENT : fd;
    int result = say_hello(fd, settings, previous, attachment, error);
    if (result < 0) {
        close(fd);
        return result;
    }
    attach_keep(&connection, fd);
    connection_version = attachment->version;
    return 0;
}

void attach_notice(const struct wire_notice *notice)
{
    struct wire_message message = {.header = {.type = WIRE_NOTICE, .version = connection_version},
                                   .notice = *notice};
    message.notice.unknown_pointers = (uint32_t)report_unknown_pointers();
    if (attach_is_ours(&connection))
        wire_post(connection.fd, &message);
}

void attach_tell_unknown(void)
{
    struct wire_message message = {.header = {.type = WIRE_UNKNOWN, .version = connection_version}};
    if (unknown_names(message.unknown.names, sizeof(message.unknown.names)) && attach_is_ours(&connection))
        wire_post(connection.fd, &message);
}

uint64_t attach_context_cost(uint32_t gpu, int timeout_ms)
{
    struct wire_message message = {.header = {.type = WIRE_CONTEXT_CREATED, .version = connection_version},
                                   .context_created.gpu = gpu};
    if (!attach_is_ours(&connection) || wire_send(connection.fd, &message, NULL, 0) < 0)
        return 0;
    for (int64_t end = (int64_t)(monotonic_ns() / 1000000) + timeout_ms;;) {
        struct pollfd wait = {.fd = connection.fd, .events = POLLIN};
        int64_t left = end - (int64_t)(monotonic_ns() / 1000000);
        int fds[WIRE_FDS_MAX];
        unsigned count;
        int ready = poll(&wait, 1, left > 0 ? (int)left : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return 0;
        if (wire_receive(connection.fd, &message, fds, &count) < 0) {
            attach_close(); /* the daemon has gone, or sends what we do not know; the ledger stays ours */
            return 0;
        }
        while (count)
            close(fds[--count]);
        /* An answer to an earlier question may come late. */
        if (message.header.type == WIRE_CONTEXT_COST && message.context_cost.gpu == gpu)
            return message.context_cost.bytes;
    }
}
