#include "daemon/settings/gslice_environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"

static const struct {
    const char *variable, *instead;
} without_effect[] = {
    {"GPUSLICE_DB_PATH",
     "sessions are kept in state.db of the state folder; GPUSLICE_STATE_DIR names another"},
};

/* Whether `path` is a link that a daemon which was killed left behind: it leads nowhere, or to our own socket. */
static bool is_left_over(const char *path, const char *socket)
{
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    return strcmp(target, socket) == 0 || access(path, F_OK) != 0;
}

void gslice_environment_remember(struct daemon *daemon)
{
    const char *path = getenv("GPUSLICE_IPC_SOCK");
    if (path && *path == '/' && strlen(path) < sizeof(daemon->compat_link) && !daemon->options.on_demand)
        strcpy(daemon->compat_link, path);
}

void gslice_environment_make_link(struct daemon *daemon)
{
    const char *path = daemon->compat_link;
    for (size_t i = 0; i < sizeof(without_effect) / sizeof(without_effect[0]); i++)
        if (getenv(without_effect[i].variable))
            log_info("%s has no effect: %s", without_effect[i].variable, without_effect[i].instead);
    if (!*path)
        return;
    if (is_left_over(path, daemon->paths.attach_socket))
        unlink(path);
    if (symlink(daemon->paths.attach_socket, path) == 0)
        daemon->has_compat_link = true;
    else
        log_warning("cannot link %s (GPUSLICE_IPC_SOCK) to the attach socket: %s", path, strerror(errno));
}

void gslice_environment_remove_link(struct daemon *daemon)
{
    if (daemon->has_compat_link)
        unlink(daemon->compat_link);
    daemon->has_compat_link = false;
}
