#include "daemon/session/ledgers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/loop/log.h"

/* Bound on the lines of /proc/PID/maps that the loop reads: a process may have 65,530 mappings, and the kernel takes 2
 * microseconds to write each. */
#define LINES_MAX 1000u
#define BLOCK_BYTES 512 /* the unit of st_blocks */
/* What a file system may use for its own records of a file. */
#define SLACK_BYTES (UINT64_C(64) << 10)

/* Only the loop's thread maps, reads and unmaps usage regions, so a fault in one never happens while this list is being
 * changed. */
static LIST_HEAD(, session_ledger) mapped_ledgers;

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;
    uintptr_t fault = (uintptr_t)info->si_addr;
    struct session_ledger *ledger;
    LIST_FOREACH (ledger, &mapped_ledgers, next) {
        uintptr_t start = (uintptr_t)ledger->usage;
        if (fault < start || fault - start >= ledger_usage_bytes())
            continue;
        if (mmap(ledger->usage, ledger_usage_bytes(), PROT_READ | PROT_WRITE,
                 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            break;
        ledger->broken = true;
        errno = saved;
        return;
    }
    /* Not in one of our regions: the fault comes again, and ends the process. */
    signal(signal_number, SIG_DFL);
}

void ledgers_catch_sigbus(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

/* One line of /proc/PID/maps: "start-end perms offset major:minor inode path". */
static bool parse_maps_line(const char *line, uintptr_t *start, struct ledgers_maps_name *name)
{
    return sscanf(line, "%" SCNxPTR "-%*x %*s %*x %x:%x %lu", start, &name->major, &name->minor,
                  &name->inode) == 4;
}

/* Find out how /proc/self/maps names our own mapping of the file. */
static int find_maps_name(struct session_ledger *ledger)
{
    cleanup_file FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    uintptr_t start;
    while (maps && fgets(line, sizeof(line), maps))
        if (parse_maps_line(line, &start, &ledger->maps_name) && start == (uintptr_t)ledger->usage)
            return 0;
    return -ENOENT;
}

/* An existing file is taken only if it is a plain file, as we make them. */
static int open_usage_file(const char *path, bool existing, bool *is_new, struct error *error)
{
    int fd = existing ? open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    *is_new = fd < 0;
    if (fd < 0 && existing && errno != ENOENT)
        return error_set_errno(error, errno, "cannot open the ledger %s", path);
    if (fd < 0) {
        unlink(path);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return error_set_errno(error, errno, "cannot make the ledger %s", path);
        if (ftruncate(fd, (off_t)ledger_usage_bytes()) < 0) {
            int status = errno;
            close(fd);
            return error_set_errno(error, status, "cannot size the ledger %s", path);
        }
    }
    struct stat status;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return error_set(error, EPERM, NULL, "the ledger %s is not a plain file", path);
    }
    return fd;
}

int ledgers_usage_open(struct session_ledger *ledger, const char *directory, const char *session_id,
                       uint64_t epoch, bool existing, struct error *error)
{
    bool is_new;
    if (asprintf(&ledger->usage_path, "%s/%s", directory, session_id) < 0) {
        ledger->usage_path = NULL;
        return error_set_errno(error, ENOMEM, "cannot open a ledger");
    }
    cleanup_close int fd = open_usage_file(ledger->usage_path, existing, &is_new, error);
    if (fd < 0) {
        free(ledger->usage_path);
        ledger->usage_path = NULL;
        return fd;
    }

    struct ledger_usage *usage = mmap(NULL, ledger_usage_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (usage == MAP_FAILED)
        return error_set_errno(error, errno, "cannot map the ledger %s", ledger->usage_path);
    ledger->usage = usage;
    ledger->usage_fd = steal_fd(&fd);
    ledger->broken = false;
    LIST_INSERT_HEAD(&mapped_ledgers, ledger, next);

    if (find_maps_name(ledger) < 0)
        log_warning(
            "session %s: its ledger is not in /proc/self/maps; the daemon cannot recognise exec'd processes",
            session_id);
    if (is_new)
        ledger_usage_init(usage, epoch);
    else if (!ledgers_check_length(ledger) || !ledger_usage_is_valid(usage, ledger_usage_bytes()))
        ledger->broken = true;
    else if (epoch != LEDGERS_EPOCH_KEPT)
        ledger_epoch_set(usage, epoch);
    return 0;
}

bool ledgers_usage_exists(const char *directory, const char *session_id)
{
    char path[PATH_MAX];
    struct stat status;
    return snprintf(path, sizeof(path), "%s/%s", directory, session_id) < (int)sizeof(path) &&
           lstat(path, &status) == 0;
}

int ledgers_usage_reserve(struct session_ledger *ledger, unsigned gpu_count, struct error *error)
{
    size_t bytes = ledger_usage_touched_bytes(gpu_count);
    int status = posix_fallocate(ledger->usage_fd, 0, (off_t)bytes);
    return status ? error_set_errno(error, status, "no room for %zu bytes of %s", bytes, ledger->usage_path)
                  : 0;
}

bool ledgers_check_length(struct session_ledger *ledger)
{
    struct stat status = {0};
    if (fstat(ledger->usage_fd, &status) < 0 || (uint64_t)status.st_size != ledger_usage_bytes())
        ledger->broken = true;
    return !ledger->broken;
}

bool ledgers_has_excess(const struct session_ledger *ledger, unsigned gpu_count)
{
    struct stat status;
    return fstat(ledger->usage_fd, &status) == 0 &&
           ((uint64_t)status.st_size > ledger_usage_bytes() ||
            (uint64_t)status.st_blocks * BLOCK_BYTES > ledger_usage_touched_bytes(gpu_count) + SLACK_BYTES);
}

void ledgers_free_excess(int usage_fd, unsigned gpu_count, uint64_t most)
{
    const off_t begin = (off_t)ledger_usage_touched_bytes(gpu_count), end = (off_t)ledger_usage_bytes();
    if (most == 0) {
        struct stat status;
        bool is_cut =
            fstat(usage_fd, &status) == 0 && (status.st_size <= end || ftruncate(usage_fd, end) == 0);
        if (is_cut)
            fallocate(usage_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, end - begin);
        return;
    }
    /* A file may be long and have few blocks. */
    off_t data = lseek(usage_fd, begin, SEEK_DATA);
    if (data >= 0)
        fallocate(usage_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data, (off_t)most);
}

void ledgers_usage_close(struct session_ledger *ledger, bool remove)
{
    if (ledger->usage) {
        LIST_REMOVE(ledger, next);
        munmap(ledger->usage, ledger_usage_bytes());
        close(ledger->usage_fd);
        ledger->usage = NULL;
        if (remove)
            unlink(ledger->usage_path);
    }
    free(ledger->usage_path);
    ledger->usage_path = NULL;
}

enum ledgers_mapped ledgers_look_in_maps(const struct ledgers_maps_name *name, pid_t pid, unsigned lines_max)
{
    char path[32], line[512];
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    cleanup_file FILE *maps = fopen(path, "re");
    if (!maps || name->inode == 0)
        return LEDGERS_UNKNOWN;

    unsigned lines = 0;
    bool at_line_start = true;
    while (fgets(line, sizeof(line), maps)) {
        uintptr_t start;
        struct ledgers_maps_name found;
        bool is_start = at_line_start;
        at_line_start = strchr(line, '\n') != NULL;
        if (!is_start || !parse_maps_line(line, &start, &found))
            continue;
        if (found.inode == name->inode && found.major == name->major && found.minor == name->minor)
            return LEDGERS_MAPPED;
        if (++lines == lines_max)
            return LEDGERS_UNKNOWN;
    }
    /* A process that is ending has no mappings left, and a list that broke off proves nothing. */
    return lines && !ferror(maps) ? LEDGERS_NOT_MAPPED : LEDGERS_UNKNOWN;
}

enum ledgers_mapped ledgers_is_mapped_by(const struct session_ledger *ledger, pid_t pid)
{
    return ledgers_look_in_maps(&ledger->maps_name, pid, LINES_MAX);
}
