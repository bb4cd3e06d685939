/* attach.c - a process attaches to a simulated GPU: takes a slot of the shared file, and makes the file if it is the first. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "simgpu/device/checkpoints.h"
#include "simgpu/device/constants.h"
#include "simgpu/device/cuda_release.h"
#include "simgpu/device/profile.h"
#include "simgpu/device/shared_file.h"

#define INITIALISE_DEADLINE_NS UINT64_C(1000000000)

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static int open_fd = -1; /* holds SHARED_LOCK_OPEN; forked children share it */
static bool has_forked;

/* Keep the device open for this process and all that it forks. The descriptor is closed by exec, or never. */
static int open_device(const char *path, uint32_t slot)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SHARED_LOCK_OPEN(slot), .l_len = 1};
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        open_fd = fd;
        return 0;
    }
    int result = -errno;
    close(fd);
    return result;
}

static off_t header_bytes(void)
{
    return (off_t)((sizeof(struct shared_header) + 4095) & ~(size_t)4095);
}

/* What tells one pid namespace from another; 0 without /proc. */
static uint64_t pid_namespace(void)
{
    struct stat file;
    return stat("/proc/self/ns/pid", &file) == 0 ? (uint64_t)file.st_ino : 0;
}

/* Write how the GPU goes from process to process, before it has any work. */
static int rules_write(int fd, unsigned gpu, const double constants[static SIM_CONSTANTS])
{
    const struct timeline_rules rules = {.slice_ns = (uint64_t)constants[SIM_SLICE_NS],
                                         .switch_ns = (uint64_t)constants[SIM_SWITCH_NS],
                                         .switch_idle_ns = (uint64_t)constants[SIM_SWITCH_IDLE_NS]};
    off_t at = header_bytes() + (off_t)gpu * (off_t)sizeof(struct shared_gpu) +
               (off_t)(offsetof(struct shared_gpu, timeline) + offsetof(struct timeline, rules));
    return pwrite(fd, &rules, sizeof(rules), at) == (ssize_t)sizeof(rules) ? 0 : -errno;
}

/* No process lives, and we hold all locks: begin the file anew. */
static int initialise(int fd, struct error *error)
{
    struct device_parameters parameters;
    struct device_shape shapes[DEVICE_GPUS] = {0};
    double constants[SIM_CONSTANTS] = {0};
    int result = settings_read(&parameters, shapes, constants, error);
    if (result < 0)
        return result;
    off_t bytes = header_bytes() + (off_t)parameters.gpu_count * (off_t)sizeof(struct shared_gpu);
    result = ftruncate(fd, 0) < 0 || ftruncate(fd, bytes) < 0 ? -errno : 0;
    for (unsigned gpu = 0; gpu < parameters.gpu_count && result == 0; gpu++)
        result = rules_write(fd, gpu, constants);
    if (result < 0)
        return error_set_errno(error, -result, "cannot size the simulated GPU's file %s/%s",
                               shared_file.folder, shared_file.key);
    struct shared_header *header =
        mmap(NULL, (size_t)header_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED)
        return error_set_errno(error, errno, "cannot map the simulated GPU's file %s/%s", shared_file.folder,
                               shared_file.key);
    header->parameters = parameters;
    memcpy(header->shapes, shapes, sizeof(shapes));
    memcpy(header->constants, constants, sizeof(constants));
    atomic_store_explicit(&header->ready, SHARED_LAYOUT, memory_order_release); /* with is_ready */
    munmap(header, (size_t)header_bytes());
    return 0;
}

static bool is_ready(int fd)
{
    uint32_t ready = 0;
    return pread(fd, &ready, sizeof(ready), 0) == (ssize_t)sizeof(ready) && ready == SHARED_LAYOUT;
}

/* Whether `path` still names the file that `fd` is. */
static bool is_named(int fd, const char *path)
{
    struct stat open_file, named_file;
    return fstat(fd, &open_file) == 0 && stat(path, &named_file) == 0 &&
           open_file.st_ino == named_file.st_ino && open_file.st_dev == named_file.st_dev;
}

enum claim { CLAIM_DONE, CLAIM_AGAIN, CLAIM_FAILED };

/* Own a slot of the file, initialising it if nobody lives. */
static enum claim slot_claim(int fd, uint32_t *slot, struct error *error)
{
    if (shared_lock_take(fd, F_WRLCK, 0, SHARED_LOCK_ALL)) {
        /* Memory that is on its way between processes keeps the GPUs as they are. */
        if (!(is_ready(fd) && shares_are_held()) && initialise(fd, error) < 0)
            return CLAIM_FAILED;
        /* Give the other bytes back; the kernel splits the lock, so that slot 0 is ours without a gap. */
        shared_lock_take(fd, F_UNLCK, SHARED_LOCK_SLOT(1), SHARED_LOCK_ALL - SHARED_LOCK_SLOT(1));
        shared_lock_take(fd, F_UNLCK, 0, 1);
        *slot = 0;
        return CLAIM_DONE;
    }
    if (shared_lock_is_held(fd, 0))
        return CLAIM_AGAIN;
    for (uint32_t index = 0; index < DEVICE_SLOTS; index++)
        if (shared_lock_take(fd, F_WRLCK, SHARED_LOCK_SLOT(index), 1)) {
            if (shared_lock_is_held(fd,
                                    SHARED_LOCK_OPEN(index))) { /* of a dead process whose children live */
                shared_lock_take(fd, F_UNLCK, SHARED_LOCK_SLOT(index), 1);
                continue;
            }
            *slot = index;
            if (is_ready(fd))
                return CLAIM_DONE;
            shared_lock_take(fd, F_UNLCK, SHARED_LOCK_SLOT(index),
                             1); /* the process that began to initialise died at it */
            return CLAIM_AGAIN;
        }
    if (shared_lock_is_held(fd, 0))
        return CLAIM_AGAIN;
    error_set(error, EBUSY, NULL, "the simulated GPU has %u processes already, all it takes; end some",
              DEVICE_SLOTS);
    return CLAIM_FAILED;
}

/* The initialising process holds all locks for some ten microseconds. If it is stopped just then it would
 * keep everybody out: after a while the others leave its file to it, and it finds out by the name (is_named). */
static int slot_open(const char *path, int *fd_out, uint32_t *slot, struct error *error)
{
    uint64_t deadline = monotonic_ns() + INITIALISE_DEADLINE_NS;
    for (;;) {
        cleanup_close int fd = shared_open(path, true);
        if (fd < 0)
            return error_set_errno(error, errno, "cannot open the simulated GPU's file %s", path);
        enum claim claim = slot_claim(fd, slot, error);
        if (claim == CLAIM_FAILED)
            return -error->status;
        if (claim == CLAIM_DONE && is_named(fd, path)) {
            *fd_out = steal_fd(&fd);
            return 0;
        }
        if (claim == CLAIM_AGAIN && monotonic_ns() > deadline && is_named(fd, path)) {
            unlink(path);
            deadline = monotonic_ns() + INITIALISE_DEADLINE_NS;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

/* Drop what the slot's last owner left, before we have anything of our own. */
static void slot_begin(void)
{
    struct shared_slot *slot = &shared_file.view.header->slots[shared_file.view.slot];
    uint64_t generation = atomic_fetch_add(&slot->generation, 1) + 1;
    shared_file.pid_namespace = pid_namespace();
    atomic_store(&slot->owner, shared_owner_word(getpid()));
    for (unsigned gpu = 0; gpu < shared_file.view.header->parameters.gpu_count; gpu++) {
        account_drop(&shared_file.view.gpus[gpu], shared_file.view.slot, generation);
        atomic_store(&slot->hidden_bytes[gpu], 0);
        atomic_store(&slot->paged_bytes[gpu], 0);
        timeline_slot_begin(&shared_file.view.gpus[gpu].timeline, shared_file.view.slot, monotonic_ns());
    }
    checkpoint_begin();
}

static void note_fork(void)
{
    has_forked = true;
}

/* The last process on a simulated machine removes its files. A process that forked leaves them, and so does one
 * that was killed: the next process finds that nobody lives, and begins anew in them. */
__attribute__((destructor)) static void remove_files(void)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 1};
    char path[SHARED_PATH_BYTES];
    if (!device_is_attached() || has_forked || shares_are_held())
        return;
    lock.l_start = SHARED_LOCK_OPEN(shared_file.view.slot);
    if (fcntl(open_fd, F_OFD_SETLK, &lock) != 0 ||
        !shared_lock_take(shared_file.fd, F_WRLCK, 0, SHARED_LOCK_ALL))
        return;
    /* Nobody else lives, and a process that opens the file now sees that it has lost its name (slot_open). */
    if (is_named(shared_file.fd, shared_path("", path))) {
        unlink(path);
        unlink(shared_path(".shares", path));
    }
}

/* A forked child has the parent's memory but not its slot: mappings stay out of it (MADV_DONTFORK), and it
 * attaches anew if it wants to. */
static void forget_in_child(void)
{
    pthread_mutex_init(&attach_lock, NULL);
    account_forget_in_child();
    if (shared_file.fd >= 0)
        close(shared_file.fd);
    shared_file.fd = -1;
    open_fd = -1; /* the descriptor stays open, and with it the device: the lock is ours too */
    has_forked = false;
    atomic_store(&shared_file.is_attached, false);
    shares_forget_in_child();
}

static void prepare_once(void)
{
    pthread_atfork(note_fork, NULL, forget_in_child);
    const char *name = secure_getenv("FAKECUDA_NAME");
    const char *owner = secure_getenv("FAKECUDA_OWNER");
    const char *folder = secure_getenv("FAKECUDA_FOLDER");
    shared_file.is_folder_given = folder && *folder && strlen(folder) < sizeof(shared_file.folder);
    if (shared_file.is_folder_given)
        strcpy(shared_file.folder, folder);
    uint64_t uid;
    shared_file.is_for_all = owner && *owner && units_parse_number(owner, UINT32_MAX, &uid, NULL) == 0;
    shared_file.owner = shared_file.is_for_all ? (uid_t)uid : geteuid();
    snprintf(shared_file.key, sizeof(shared_file.key), "fakecuda-%u-%.200s", (unsigned)shared_file.owner,
             name && *name ? name : "default");
    for (char *at = shared_file.key; *at; at++)
        if (*at == '/')
            *at = '_';
}

static int attach(struct error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare_once);

    char path[SHARED_PATH_BYTES];
    shared_path("", path);
    int fd = -1;
    uint32_t slot = 0;
    int result = slot_open(path, &fd, &slot, error);
    if (result < 0)
        return result;
    if (shared_file.is_for_all)
        shares_make_file();

    struct stat file;
    void *memory = MAP_FAILED;
    result = open_device(path, slot);
    if (result < 0) {
        close(fd);
        return error_set_errno(error, -result, "cannot lock the simulated GPU's file %s", path);
    }
    if (fstat(fd, &file) == 0)
        memory = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED) {
        result = error_set_errno(error, errno, "cannot map the simulated GPU's file %s", path);
        close(fd);
        return result;
    }
    madvise(memory, (size_t)file.st_size, MADV_DONTFORK);
    shared_file.fd = fd;
    shared_file.view = (struct shared_view){
        .header = memory,
        .gpus = (struct shared_gpu *)(void *)((char *)memory + header_bytes()),
        .slot = slot,
    };
    const struct device_profile *card = profile_at(shared_file.view.header->parameters.profile);
    result = cuda_release_check(card->key, card->since, error);
    if (result == 0)
        result = constants_attach(shared_file.view.header->parameters.profile,
                                  shared_file.view.header->constants, error);
    if (result == 0)
        slot_begin();
    return result;
}

int device_attach(struct error *error)
{
    if (device_is_attached())
        return 0;
    struct error why = {0};
    pthread_mutex_lock(&attach_lock);
    int result = 0;
    if (!device_is_attached()) {
        result = attach(&why);
        if (result == 0)
            atomic_store_explicit(&shared_file.is_attached, true,
                                  memory_order_release); /* with device_is_attached */
    }
    pthread_mutex_unlock(&attach_lock);
    if (result < 0 && error)
        *error = why;
    return result;
}
