#include "intercept/memory/registrations.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define LOOK_NS UINT64_C(1000000000)

static atomic_bool is_flag_set;

/* The modules by which libibverbs registers a GPU's memory: NVIDIA's, and the one that came before it (nvidia-peermem
 * documentation). */
static const char *const peer_modules[] = {"nvidia_peermem", "nv_peer_mem"};

static bool has_peer_module(const char *modules)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(peer_modules) / sizeof(peer_modules[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", modules, peer_modules[i]);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* Whether the process has mapped a file whose path has `part` in it. A path that two reads share is looked at as a whole: the end of
 * what was read stays before what is read next. */
static bool maps(const char *process, const char *part)
{
    char path[PATH_MAX], text[8192 + 1];
    size_t kept = 0, length = strlen(part);
    snprintf(path, sizeof(path), "%s/maps", process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_found = false;
    ssize_t got = 0;
    while (fd >= 0 && !is_found && (got = read(fd, text + kept, sizeof(text) - 1 - kept)) > 0) {
        size_t have = kept + (size_t)got;
        text[have] = '\0';
        is_found = strstr(text, part) != NULL;
        kept = have < length ? have : length;
        memmove(text, text + have - kept, kept);
    }
    if (fd >= 0)
        close(fd);
    return is_found;
}

/* Whether one of the process's descriptors is of a file with this name, in any folder: a container may have it elsewhere. */
static bool has_open(const char *process, const char *name)
{
    char path[PATH_MAX], target[PATH_MAX];
    snprintf(path, sizeof(path), "%s/fd", process);
    DIR *folder = opendir(path);
    bool is_found = false;
    for (struct dirent *entry; folder && !is_found && (entry = readdir(folder));) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        const char *last = strrchr(target, '/');
        is_found = last && strcmp(last + 1, name) == 0;
    }
    if (folder)
        closedir(folder);
    return is_found;
}

bool registrations_are_possible(const char *process, const char *modules)
{
    return has_open(process, "gdrdrv") || (has_peer_module(modules) && maps(process, "/libibverbs.so"));
}

void registrations_note_flag(void)
{
    atomic_store_explicit(&is_flag_set, true, memory_order_relaxed);
}

bool registrations_may_exist(bool looks)
{
    static uint64_t looked_ns;
    static bool are_possible;
    uint64_t now_ns = monotonic_ns();
    if (looks || !looked_ns || now_ns - looked_ns >= LOOK_NS) {
        looked_ns = now_ns;
        are_possible = registrations_are_possible("/proc/self", "/sys/module");
    }
    return are_possible || atomic_load_explicit(&is_flag_set, memory_order_relaxed);
}
