#include "intercept/memory/engine/swap/ipc/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/sockets.h"
#include "intercept/resolve/guard.h"
#include "intercept/session/attach.h"
#include "intercept/session/private.h"

#define DESCRIPTORS_MAX 65536u
#define STACK_BYTES (64u << 10)
#define SERVED_AT_ONCE 64u
#define SOCKET_PATH_BYTES 108 /* of struct sockaddr_un */
#define SERVED_SECONDS 1      /* how long a caller may take to say what it wants */
#define FETCH_SECONDS 5
#define SETTLED_SECONDS 10
#define NAP_NS 10000000 /* until the process may have a descriptor to spare again */

struct handed_out {
    uint64_t number; /* 0: an unused place */
    struct attach_descriptor descriptor;
};

/* All of this belongs to this process; a forked child starts without it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handed_out *table; /* of DESCRIPTORS_MAX */
static uint32_t end_of_table;
static uint64_t last_number, secret;
static struct attach_descriptor listener;
static atomic_uint being_served; /* connections */

static void forget_parent(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_store_explicit(&being_served, 0, memory_order_relaxed); /* those threads are the parent's */
    attach_let_go(&listener);
    for (uint32_t i = 0; i < end_of_table; i++) {
        if (table[i].number)
            attach_let_go(&table[i].descriptor);
        table[i].number = 0;
    }
    end_of_table = 0;
}

/* --- The socket's name ----------------------------------------------------------------------------- */

#define NAME_BEGINS "gpuslice-memory-"

/* Where sockets are: in the folder that processes share which may pass each other handles of memory; where that cannot
 * be written, in the other one. Both are everybody's, and each socket is open to its user alone. */
static const char *const folders[] = {"/dev/shm", "/tmp"};
enum { FOLDERS = sizeof(folders) / sizeof(folders[0]) };

static void fill_path(char path[static SOCKET_PATH_BYTES], const char *in, int32_t pid, uint64_t of_secret)
{
    snprintf(path, SOCKET_PATH_BYTES, "%s/" NAME_BEGINS "%d-%016" PRIx64, in, (int)pid, of_secret);
}

static int connect_to(int fd, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
}

/* A socket of our user at which nobody listens. */
static bool is_left_over(const char *path)
{
    struct stat status;
    if (lstat(path, &status) < 0 || !S_ISSOCK(status.st_mode) || status.st_uid != geteuid() ||
        time(NULL) - status.st_mtime < SETTLED_SECONDS)
        return false;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_refused = fd >= 0 && connect_to(fd, path) == -ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return is_refused;
}

/* A process that ends leaves its socket's name behind; the next one of its user to listen removes it, unless it is so
 * young that it may only be about to listen. */
static void remove_left_overs(const char *in)
{
    char path[SOCKET_PATH_BYTES];
    DIR *folder = opendir(in);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, NAME_BEGINS, strlen(NAME_BEGINS)) != 0 ||
            snprintf(path, sizeof(path), "%s/%s", in, entry->d_name) >= (int)sizeof(path))
            continue;
        if (is_left_over(path))
            unlink(path);
    }
    if (folder)
        closedir(folder);
}

static bool is_same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void set_patience(int fd, int seconds)
{
    const struct timeval time = {.tv_sec = seconds};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

/* --- The thread ------------------------------------------------------------------------------------ */

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* Send one byte, with a descriptor or (-1) without. */
static void answer(int fd, int handed_out)
{
    union control control = {.bytes = {0}};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (handed_out >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &handed_out, sizeof(int));
    }
    sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void serve(int fd)
{
    uint64_t number = 0;
    set_patience(fd, SERVED_SECONDS);
    if (!is_same_user(fd) || recv(fd, &number, sizeof(number), 0) != (ssize_t)sizeof(number) || !number)
        return;
    pthread_mutex_lock(&lock);
    const struct handed_out *found = NULL;
    for (uint32_t i = 0; i < end_of_table && !found; i++)
        found = table[i].number == number ? &table[i] : NULL;
    answer(fd, found && attach_is_ours(&found->descriptor) ? found->descriptor.fd : -1);
    pthread_mutex_unlock(&lock);
}

static void *serve_one(void *connection)
{
    int fd = (int)(intptr_t)connection;
    prctl(PR_SET_NAME, "gpuslice-memory");
    serve(fd);
    close(fd);
    atomic_fetch_sub_explicit(&being_served, 1, memory_order_relaxed);
    return NULL;
}

static bool start_thread(void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return result == 0;
}

/* Each connection has a thread of its own: it is received from and closed there, and either may take for ever where the
 * kernel lets clients send descriptors along. */
static void *serve_all(void *unused)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void)unused;
    prctl(PR_SET_NAME, "gpuslice-memory");
    /* Until the program closes the socket. A program that has no descriptor or thread to spare has one again later. */
    while (attach_is_ours(&listener)) {
        bool is_full = atomic_load_explicit(&being_served, memory_order_relaxed) >= SERVED_AT_ONCE;
        int fd = is_full ? -1 : accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            nanosleep(&nap, NULL);
            continue;
        }
        atomic_fetch_add_explicit(&being_served, 1, memory_order_relaxed);
        while (!start_thread(serve_one, (void *)(intptr_t)fd))
            nanosleep(&nap, NULL);
    }
    return NULL;
}

static int listen_somewhere(int *fd)
{
    char path[SOCKET_PATH_BYTES];
    int result = -ENOENT;
    for (size_t i = 0; i < FOLDERS; i++) {
        fill_path(path, folders[i], (int32_t)getpid(), secret);
        result = socket_listen(path, SOCK_SEQPACKET | SOCK_CLOEXEC, 0600, (gid_t)-1, fd);
        if (result == 0) {
            remove_left_overs(folders[i]);
            break;
        }
    }
    return result;
}

static int start(void)
{
    static bool knows_forks;
    if (attach_is_ours(&listener))
        return 0;
    if (!knows_forks)
        private_at_fork(forget_parent);
    knows_forks = true;
    if (syscall(SYS_getrandom, &secret, sizeof(secret), 0) != (long)sizeof(secret))
        return -EIO;
    int fd, result = listen_somewhere(&fd);
    if (result < 0)
        return result;
    attach_keep(&listener, fd);
    if (start_thread(serve_all, NULL))
        return 0;
    attach_let_go(&listener);
    return -EAGAIN;
}

/* --- Called from other files ----------------------------------------------------------------------- */

/* A forked child keeps this memory, so that it can close the descriptors that it inherited. */
static bool make_table(void)
{
    void *memory = mmap(NULL, DESCRIPTORS_MAX * sizeof(*table), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    table = memory == MAP_FAILED ? NULL : memory;
    return table != NULL;
}

static int add(int fd, struct descriptor_place *place)
{
    int result = start();
    if (result < 0)
        return result;
    if (!table && !make_table())
        return -ENOMEM;
    uint32_t i = 0;
    while (i < end_of_table && table[i].number)
        i++;
    if (i == DESCRIPTORS_MAX)
        return -ENFILE;
    end_of_table = i == end_of_table ? i + 1 : end_of_table;
    attach_keep(&table[i].descriptor, fd);
    table[i].number = ++last_number;
    *place = (struct descriptor_place){.secret = secret, .number = table[i].number, .pid = (int32_t)getpid()};
    return 0;
}

int descriptors_add(int fd, struct descriptor_place *place)
{
    guard_lock(&lock);
    int result = add(fd, place);
    guard_unlock(&lock);
    if (result < 0)
        close(fd);
    return result;
}

void descriptors_remove(uint64_t number)
{
    guard_lock(&lock);
    for (uint32_t i = 0; i < end_of_table; i++) {
        if (table[i].number != number)
            continue;
        attach_let_go(&table[i].descriptor);
        table[i].number = 0;
        break;
    }
    guard_unlock(&lock);
}

/* In another PID namespace, another process may have the same number. A forked child has its parent's secret. */
bool descriptors_is_own(const struct descriptor_place *place)
{
    guard_lock(&lock);
    bool is_own = place->pid == (int32_t)getpid() && place->secret == secret;
    guard_unlock(&lock);
    return is_own;
}

static int receive_descriptor(int fd)
{
    union control control;
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    int fetched;
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) < 0)
        return -errno;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return -ENOENT;
    memcpy(&fetched, CMSG_DATA(header), sizeof(fetched));
    return fetched;
}

/* Connect to where the process listens. */
static int connect_somewhere(const struct descriptor_place *place, int *fd_out)
{
    char path[SOCKET_PATH_BYTES];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), result = fd < 0 ? -errno : -ENOENT;
    if (fd < 0)
        return result;
    set_patience(fd, FETCH_SECONDS);
    for (size_t i = 0; i < FOLDERS && result < 0; i++) {
        fill_path(path, folders[i], place->pid, place->secret);
        result = connect_to(fd, path);
    }
    if (result == 0)
        *fd_out = fd;
    else
        close(fd);
    return result;
}

int descriptors_fetch(const struct descriptor_place *place)
{
    int fd = -1, result = connect_somewhere(place, &fd);
    if (result < 0)
        return result;
    result = -ECONNREFUSED;
    if (is_same_user(fd) &&
        send(fd, &place->number, sizeof(place->number), MSG_NOSIGNAL) == (ssize_t)sizeof(place->number))
        result = receive_descriptor(fd);
    close(fd);
    return result;
}
