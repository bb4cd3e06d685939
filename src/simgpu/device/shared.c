/* shared.c - the file that the processes on a simulated GPU share: where it is, whose it is, and its locks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "simgpu/device/shared_file.h"

#define OPEN_TRIES 1000u

struct shared_file shared_file = {.fd = -1, .folder = "/dev/shm"};

const struct shared_view *shared_view(void)
{
    return &shared_file.view;
}

bool device_is_attached(void)
{
    return atomic_load_explicit(&shared_file.is_attached, memory_order_acquire);
}

/* --- Locks ------------------------------------------------------------------------------------------ */

bool shared_lock_take(int fd, short type, off_t start, off_t length)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, F_SETLK, &lock) == 0;
}

/* Whether another process has the byte at `start` locked, or that cannot be told; `holder` is its pid where the kernel
 * tells it, else 0 or less. */
static bool lock_is_held_by(int fd, off_t start, pid_t *holder)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
    bool is_told = fcntl(fd, F_GETLK, &lock) == 0;
    *holder = is_told ? lock.l_pid : 0;
    return !is_told || lock.l_type != F_UNLCK;
}

bool shared_lock_is_held(int fd, off_t start)
{
    pid_t holder;
    return lock_is_held_by(fd, start, &holder);
}

/* A process locks a slot before it writes itself in as the owner: until then the owner named there is a dead one. */
bool shared_slot_is_alive(uint32_t slot)
{
    pid_t holder;
    if (slot == shared_file.view.slot)
        return true;
    if (!lock_is_held_by(shared_file.fd, SHARED_LOCK_SLOT(slot), &holder))
        return shared_lock_is_held(shared_file.fd, SHARED_LOCK_OPEN(slot));
    uint64_t owner = atomic_load(&shared_file.view.header->slots[slot].owner);
    return holder <= 0 || owner >> 32 != (shared_file.pid_namespace & UINT32_MAX) ||
           (pid_t)(uint32_t)owner == holder;
}

uint64_t shared_owner_word(pid_t pid)
{
    return shared_file.pid_namespace << 32 | (uint32_t)pid;
}

pid_t shared_slot_pid(uint32_t slot)
{
    _Atomic uint64_t *owner = &shared_file.view.header->slots[slot].owner;
    uint64_t seen = atomic_load(owner);
    pid_t holder, pid = (pid_t)(uint32_t)seen;
    if (pid == 0 || slot == shared_file.view.slot || seen >> 32 == (shared_file.pid_namespace & UINT32_MAX))
        return pid;
    /* The kernel does not tell the pid of a process that we cannot see: whoever noted it was in a namespace around ours. */
    if (!lock_is_held_by(shared_file.fd, SHARED_LOCK_SLOT(slot), &holder) || holder <= 0)
        return pid;
    atomic_compare_exchange_strong(owner, &seen, shared_owner_word(holder));
    return holder;
}

/* --- The file --------------------------------------------------------------------------------------- */

/* Make the file under another name, so that nobody ever opens one that only its maker may use. */
static int make_file(const char *path)
{
    char draft[SHARED_PATH_BYTES + 16];
    snprintf(draft, sizeof(draft), "%s.%d", path, (int)getpid());
    cleanup_close int fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int result = fd >= 0 ? 0 : -1;
    if (result == 0 && shared_file.is_for_all)
        result = fchmod(fd, 0666);
    if (result == 0 && link(draft, path) < 0 && errno != EEXIST)
        result = -1;
    if (fd >= 0)
        unlink(draft);
    return result;
}

int shared_open(const char *path, bool create)
{
    struct stat file;
    cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    /* Another process's file may exist when we link ours, and be gone with its last process when we open it. */
    for (unsigned tries = 0; fd < 0 && errno == ENOENT && tries < OPEN_TRIES; tries++) {
        if (!create || geteuid() != shared_file.owner || make_file(path) < 0)
            return -1;
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &file) == 0 && (file.st_uid == shared_file.owner || shared_file.is_folder_given) &&
        S_ISREG(file.st_mode))
        return steal_fd(&fd);
    errno = EPERM;
    return -1;
}

const char *shared_path(const char *ending, char path[static SHARED_PATH_BYTES])
{
    snprintf(path, SHARED_PATH_BYTES, "%s/%s%s", shared_file.folder, shared_file.key, ending);
    return path;
}
