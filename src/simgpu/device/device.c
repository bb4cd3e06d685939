#include "simgpu/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include "simgpu/device/cuda_release.h"
#include "simgpu/device/faults.h"
#include "simgpu/device/profile.h"
#include "simgpu/device/shared.h"

#define INITIALISE_DEADLINE_NS UINT64_C(1000000000)

#define OPEN_TRIES 1000u

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool attached;
static int shared_fd = -1;
static struct shared_view view;
static char device_key[NAME_MAX]; /* the file's name: what UUIDs derive from */
static char device_folder[PATH_MAX - 64] = "/dev/shm";
static bool
    is_folder_given;     /* in a container, with other users in it: whoever gave it vouches for the files */
static int open_fd = -1; /* holds LOCK_OPEN; forked children share it */
static bool has_forked;
static uint64_t own_namespace;
static uid_t device_owner;     /* whose file it is */
static bool device_is_for_all; /* FAKECUDA_OWNER was given: other users' programs share it */

const struct shared_view *shared_view(void)
{
    return &view;
}

/* --- The file and its locks: byte 0 says that somebody initialises, byte 1 + N is slot N ----------- */

#define LOCK_SLOT(slot) ((off_t)(slot) + 1)
/* Forked children keep the device open, as with a card's device file: this lock is of an open file, which
 * children inherit and exec closes. */
#define LOCK_OPEN(slot) ((off_t)(slot) + 1 + (off_t)DEVICE_SLOTS)
#define LOCK_ALL (2 * (off_t)DEVICE_SLOTS + 1)

static bool lock_take(int fd, short type, off_t start, off_t length)
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

static bool lock_is_held(int fd, off_t start)
{
    pid_t holder;
    return lock_is_held_by(fd, start, &holder);
}

/* A process locks a slot before it writes itself in as the owner: until then the owner named there is a dead one. */
bool shared_slot_is_alive(uint32_t slot)
{
    pid_t holder;
    if (slot == view.slot)
        return true;
    if (!lock_is_held_by(shared_fd, LOCK_SLOT(slot), &holder))
        return lock_is_held(shared_fd, LOCK_OPEN(slot));
    uint64_t owner = atomic_load(&view.header->slots[slot].owner);
    return holder <= 0 || owner >> 32 != (own_namespace & UINT32_MAX) || (pid_t)(uint32_t)owner == holder;
}

/* What tells one pid namespace from another; 0 without /proc. */
static uint64_t pid_namespace(void)
{
    struct stat file;
    return stat("/proc/self/ns/pid", &file) == 0 ? (uint64_t)file.st_ino : 0;
}

static uint64_t owner_word(pid_t pid)
{
    return own_namespace << 32 | (uint32_t)pid;
}

pid_t shared_slot_pid(uint32_t slot)
{
    _Atomic uint64_t *owner = &view.header->slots[slot].owner;
    uint64_t seen = atomic_load(owner);
    pid_t holder, pid = (pid_t)(uint32_t)seen;
    if (pid == 0 || slot == view.slot || seen >> 32 == (own_namespace & UINT32_MAX))
        return pid;
    /* The kernel does not tell the pid of a process that we cannot see: whoever noted it was in a namespace around ours. */
    if (!lock_is_held_by(shared_fd, LOCK_SLOT(slot), &holder) || holder <= 0)
        return pid;
    atomic_compare_exchange_strong(owner, &seen, owner_word(holder));
    return holder;
}

/* Keep the device open for this process and all that it forks. The descriptor is closed by exec, or never. */
static int open_device(const char *path, uint32_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_OPEN(slot), .l_len = 1};
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

/* Make the file under another name, so that nobody ever opens one that only its maker may use. */
static int make_file(const char *path)
{
    char draft[SHARED_PATH_BYTES + 16];
    snprintf(draft, sizeof(draft), "%s.%d", path, (int)getpid());
    cleanup_close int fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int result = fd >= 0 ? 0 : -1;
    if (result == 0 && device_is_for_all)
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
        if (!create || geteuid() != device_owner || make_file(path) < 0)
            return -1;
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &file) == 0 && (file.st_uid == device_owner || is_folder_given) && S_ISREG(file.st_mode))
        return steal_fd(&fd);
    errno = EPERM;
    return -1;
}

const char *shared_path(const char *ending, char path[static SHARED_PATH_BYTES])
{
    snprintf(path, SHARED_PATH_BYTES, "%s/%s%s", device_folder, device_key, ending);
    return path;
}

static off_t header_bytes(void)
{
    return (off_t)((sizeof(struct shared_header) + 4095) & ~(size_t)4095);
}

/* --- Attaching ------------------------------------------------------------------------------------- */

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
        return error_set_errno(error, -result, "cannot size the simulated GPU's file %s/%s", device_folder,
                               device_key);
    struct shared_header *header =
        mmap(NULL, (size_t)header_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED)
        return error_set_errno(error, errno, "cannot map the simulated GPU's file %s/%s", device_folder,
                               device_key);
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
    if (lock_take(fd, F_WRLCK, 0, LOCK_ALL)) {
        /* Memory that is on its way between processes keeps the GPUs as they are. */
        if (!(is_ready(fd) && shares_are_held()) && initialise(fd, error) < 0)
            return CLAIM_FAILED;
        /* Give the other bytes back; the kernel splits the lock, so that slot 0 is ours without a gap. */
        lock_take(fd, F_UNLCK, LOCK_SLOT(1), LOCK_ALL - LOCK_SLOT(1));
        lock_take(fd, F_UNLCK, 0, 1);
        *slot = 0;
        return CLAIM_DONE;
    }
    if (lock_is_held(fd, 0))
        return CLAIM_AGAIN;
    for (uint32_t index = 0; index < DEVICE_SLOTS; index++)
        if (lock_take(fd, F_WRLCK, LOCK_SLOT(index), 1)) {
            if (lock_is_held(fd, LOCK_OPEN(index))) { /* of a dead process whose children live */
                lock_take(fd, F_UNLCK, LOCK_SLOT(index), 1);
                continue;
            }
            *slot = index;
            if (is_ready(fd))
                return CLAIM_DONE;
            lock_take(fd, F_UNLCK, LOCK_SLOT(index), 1); /* the process that began to initialise died at it */
            return CLAIM_AGAIN;
        }
    if (lock_is_held(fd, 0))
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
    struct shared_slot *slot = &view.header->slots[view.slot];
    uint64_t generation = atomic_fetch_add(&slot->generation, 1) + 1;
    own_namespace = pid_namespace();
    atomic_store(&slot->owner, owner_word(getpid()));
    for (unsigned gpu = 0; gpu < view.header->parameters.gpu_count; gpu++) {
        account_drop(&view.gpus[gpu], view.slot, generation);
        atomic_store(&slot->hidden_bytes[gpu], 0);
        atomic_store(&slot->paged_bytes[gpu], 0);
        timeline_slot_begin(&view.gpus[gpu].timeline, view.slot, monotonic_ns());
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
    lock.l_start = LOCK_OPEN(view.slot);
    if (fcntl(open_fd, F_OFD_SETLK, &lock) != 0 || !lock_take(shared_fd, F_WRLCK, 0, LOCK_ALL))
        return;
    /* Nobody else lives, and a process that opens the file now sees that it has lost its name (slot_open). */
    if (is_named(shared_fd, shared_path("", path))) {
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
    if (shared_fd >= 0)
        close(shared_fd);
    shared_fd = -1;
    open_fd = -1; /* the descriptor stays open, and with it the device: the lock is ours too */
    has_forked = false;
    atomic_store(&attached, false);
    shares_forget_in_child();
}

static void prepare_once(void)
{
    pthread_atfork(note_fork, NULL, forget_in_child);
    const char *name = secure_getenv("FAKECUDA_NAME");
    const char *owner = secure_getenv("FAKECUDA_OWNER");
    const char *folder = secure_getenv("FAKECUDA_FOLDER");
    is_folder_given = folder && *folder && strlen(folder) < sizeof(device_folder);
    if (is_folder_given)
        strcpy(device_folder, folder);
    uint64_t uid;
    device_is_for_all = owner && *owner && units_parse_number(owner, UINT32_MAX, &uid, NULL) == 0;
    device_owner = device_is_for_all ? (uid_t)uid : geteuid();
    snprintf(device_key, sizeof(device_key), "fakecuda-%u-%.200s", (unsigned)device_owner,
             name && *name ? name : "default");
    for (char *at = device_key; *at; at++)
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
    if (device_is_for_all)
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
    shared_fd = fd;
    view = (struct shared_view){
        .header = memory,
        .gpus = (struct shared_gpu *)(void *)((char *)memory + header_bytes()),
        .slot = slot,
    };
    const struct device_profile *card = profile_at(view.header->parameters.profile);
    result = cuda_release_check(card->key, card->since, error);
    if (result == 0)
        result = constants_attach(view.header->parameters.profile, view.header->constants, error);
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
            atomic_store_explicit(&attached, true, memory_order_release); /* with device_is_attached */
    }
    pthread_mutex_unlock(&attach_lock);
    if (result < 0 && error)
        *error = why;
    return result;
}

bool device_is_attached(void)
{
    return atomic_load_explicit(&attached, memory_order_acquire);
}

/* --- What the GPUs are ----------------------------------------------------------------------------- */

struct device_parameters device_parameters(void)
{
    return view.header->parameters;
}

const struct device_shape *device_shape(unsigned gpu)
{
    return &view.header->shapes[gpu];
}

bool device_is_instance(unsigned gpu)
{
    return device_shape(gpu)->instance != DEVICE_WHOLE;
}

bool device_reaches(unsigned gpu, unsigned other)
{
    return gpu != other && !device_is_instance(gpu) && !device_is_instance(other);
}

void device_uuid(unsigned gpu, uint8_t uuid[static 16])
{
    const struct device_shape *shape = device_shape(gpu);
    uint64_t number = device_is_instance(gpu) ? (shape->instance + 1) * DEVICE_CARDS + shape->card : gpu;
    /* FNV-1a, twice with different beginnings, over the file's name and the number. */
    for (unsigned half = 0; half < 2; half++) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (half * UINT64_C(0x9e3779b97f4a7c15));
        for (const char *at = device_key; *at; at++)
            hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
        hash = (hash ^ (number + 1)) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
        hash *= UINT64_C(0xbf58476d1ce4e5b9);
        hash ^= hash >> 32;
        memcpy(uuid + half * 8, &hash, sizeof(hash));
    }
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x50); /* RFC 4122: made from a name */
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

unsigned device_pci_bus(unsigned gpu)
{
    return device_shape(gpu)->card + 1;
}

/* --- Lost and hung GPUs ----------------------------------------------------------------------------- */

static _Atomic uint64_t *xids_of(unsigned gpu)
{
    return &view.header->xids[device_shape(gpu)->card];
}

void device_note_xid(unsigned gpu, unsigned number)
{
    uint64_t seen = atomic_load(xids_of(gpu));
    while (!atomic_compare_exchange_weak(xids_of(gpu), &seen, ((seen >> 16) + 1) << 16 | number))
        continue;
}

uint64_t device_xid_count(unsigned gpu)
{
    return atomic_load(xids_of(gpu)) >> 16;
}

unsigned device_xid(unsigned gpu)
{
    return atomic_load(xids_of(gpu)) & 0xffff;
}

void device_lose(unsigned gpu)
{
    atomic_fetch_or(&view.header->lost, 1u << device_shape(gpu)->card);
}

bool device_is_lost(unsigned gpu)
{
    return atomic_load_explicit(&view.header->lost, memory_order_relaxed) >> device_shape(gpu)->card & 1;
}

#define HUNG_GENERATION ((UINT64_C(1) << 48) - 1)

void device_hang(void)
{
    uint64_t generation = atomic_load(&view.header->slots[view.slot].generation);
    atomic_store(&view.header->hung, (uint64_t)(view.slot + 1) << 48 | (generation & HUNG_GENERATION));
}

/* The hang ends with its process, and the slot may have its next owner. */
static bool is_hung(uint64_t hung)
{
    uint32_t slot = (uint32_t)(hung >> 48) - 1;
    return hung && shared_slot_is_alive(slot) &&
           (atomic_load(&view.header->slots[slot].generation) & HUNG_GENERATION) == (hung & HUNG_GENERATION);
}

void device_wait_while_hung(void)
{
    while (is_hung(atomic_load_explicit(&view.header->hung, memory_order_relaxed)))
        usleep(1000);
}
