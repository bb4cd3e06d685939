#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

#define STAT_TEXT 1024

/* Read /proc/PID/stat. `*state`: its field 3. 0 or a negative errno. */
static int read_stat(pid_t pid, char text[static STAT_TEXT], const char **state)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    ssize_t length = read(fd, text, STAT_TEXT - 1);
    int read_error = errno;
    close(fd);
    if (length <= 0)
        return length < 0 ? -read_error : -ESRCH;
    text[length] = '\0';

    /* The name in field 2 may hold blanks and parentheses, so fields are counted from its last ')'. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return -EIO;
    *state = at + 2;
    return 0;
}

/* The number in field `wanted` of it. */
static int read_field(pid_t pid, int wanted, uint64_t *number)
{
    char text[STAT_TEXT];
    const char *at;
    int result = read_stat(pid, text, &at);
    if (result < 0)
        return result;
    if (*at == 'Z' || *at == 'X')
        return -ESRCH;
    for (int field = 3; field < wanted; field++) {
        at = strchr(at, ' ');
        if (!at)
            return -EIO;
        at++;
    }
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    *number = value;
    return 0;
}

int process_start_time(pid_t pid, uint64_t *ticks)
{
    return read_field(pid, 22, ticks);
}

int process_parent(pid_t pid, pid_t *parent)
{
    uint64_t number;
    int result = read_field(pid, 4, &number);
    if (result == 0)
        *parent = (pid_t)number;
    return result;
}

bool process_is_stopped(pid_t pid)
{
    char text[STAT_TEXT];
    const char *state = "";
    return read_stat(pid, text, &state) == 0 && (*state == 'T' || *state == 't');
}

bool process_is_alive(pid_t pid, uint64_t start_ticks)
{
    uint64_t ticks;
    int result = process_start_time(pid, &ticks);
    /* A process whose state cannot be read is not known to be dead. */
    return result == 0 ? ticks == start_ticks : result != -ESRCH;
}

/* How long the name is without the letter that the kernel has cut in two at its end, if it has. */
static size_t without_cut_letter(const char *name, size_t length)
{
    size_t more = 0; /* bytes behind the letter's first one */
    while (more < length && more < 3 && ((unsigned char)name[length - 1 - more] & 0xc0) == 0x80)
        more++;
    unsigned char first = more < length ? (unsigned char)name[length - 1 - more] : 0;
    size_t wanted = first > 0xf4 ? 0 : first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    return wanted > more ? length - 1 - more : length;
}

void process_command(pid_t pid, char *command, size_t bytes)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, command, bytes - 1) : 0;
    if (fd >= 0)
        close(fd);
    if (length > 0 && command[length - 1] == '\n')
        length--;
    command[length > 0 ? without_cut_letter(command, (size_t)length) : 0] = '\0';
    error_make_one_line(command);
}

/* linux/pidfd.h of 6.15. */
struct exit_info {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t status;
};
_Static_assert(sizeof(struct exit_info) == 64, "PIDFD_INFO_SIZE_VER0");
#define EXIT_INFO_ASK _IOWR(0xFF, 11, struct exit_info)
#define EXIT_INFO_STATUS (UINT64_C(1) << 3)

static bool status_of_reaped(int pidfd, int *status)
{
    struct exit_info info = {.mask = EXIT_INFO_STATUS};
    if (ioctl(pidfd, EXIT_INFO_ASK, &info) != 0 || !(info.mask & EXIT_INFO_STATUS))
        return false;
    *status = info.status;
    return true;
}

/* Field 52 of /proc/PID/stat, of a zombie. */
static bool status_of_zombie(pid_t pid, int *status)
{
    char path[32], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *behind = strrchr(text, ')'), *last = strrchr(text, ' ');
    if (!behind || strncmp(behind, ") Z ", 4) != 0 || last < behind)
        return false;
    *status = atoi(last);
    return true;
}

bool process_exit_status(int pidfd, pid_t pid, int *status)
{
    return status_of_reaped(pidfd, status) || status_of_zombie(pid, status) ||
           status_of_reaped(pidfd, status);
}

#define SHORT_SLICE_NS UINT64_C(100000) /* the shortest that Linux takes */

void process_ask_for_short_slices(void)
{
    /* sched_setattr(2): struct sched_attr, first version. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof(attributes)};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0 ||
        attributes.policy != SCHED_OTHER)
        return;
    attributes.runtime = SHORT_SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}
