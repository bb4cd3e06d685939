#include "daemon/process/device_held.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"

#define DESCRIPTORS_MAX 4096 /* some milliseconds */
#define MAJORS_MAX 8
#define SIMULATED_BEGINS "/dev/shm/fakecuda-"

/* The numbers of the driver's devices. They differ between machines, and a device's path between containers. */
struct majors {
    unsigned all[MAJORS_MAX];
    unsigned count;
};

static struct majors read_majors(void)
{
    struct majors majors = {.count = 0};
    char line[128], name[64];
    unsigned number;
    cleanup_file FILE *file = fopen("/proc/devices", "re");
    while (file && majors.count < MAJORS_MAX && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "Block", 5) == 0)
            break;
        if (sscanf(line, "%u %63s", &number, name) == 2 && strncmp(name, "nvidia", 6) == 0)
            majors.all[majors.count++] = number;
    }
    return majors;
}

static bool is_driver(int folder, const char *descriptor, const struct majors *majors)
{
    struct stat status;
    if (fstatat(folder, descriptor, &status, 0) < 0 || !S_ISCHR(status.st_mode))
        return false;
    for (unsigned i = 0; i < majors->count; i++)
        if (major(status.st_rdev) == majors->all[i])
            return true;
    return false;
}

static bool is_simulated_driver(int folder, const char *descriptor)
{
    char path[PATH_MAX];
    ssize_t length = readlinkat(folder, descriptor, path, sizeof(path));
    return length > (ssize_t)strlen(SIMULATED_BEGINS) &&
           memcmp(path, SIMULATED_BEGINS, strlen(SIMULATED_BEGINS)) == 0;
}

bool device_is_held(pid_t pid, bool is_simulated)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    cleanup_dir DIR *folder = opendir(path);
    const struct majors majors = is_simulated ? (struct majors){.count = 0} : read_majors();
    unsigned seen = 0;
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (is_simulated ? is_simulated_driver(dirfd(folder), entry->d_name)
                         : is_driver(dirfd(folder), entry->d_name, &majors))
            return true;
        if (++seen > DESCRIPTORS_MAX)
            return true;
    }
    return false;
}
