/* paths.h - where the daemon and the command line meet, and where GPU Slice's own files are. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/un.h>

#include "base/error.h"

enum paths_role {
    PATHS_CLIENT,        /* the command line: finds a daemon that runs */
    PATHS_USER_DAEMON,   /* a user's own daemon (root may have one too) */
    PATHS_SYSTEM_DAEMON, /* gpusliced --system */
};

#define PATHS_SOCKET_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)

/* All absolute. */
struct paths {
    bool simulated;
    bool system; /* the runtime folder is the system daemon's */
    char runtime_dir[PATH_MAX];
    char state_dir[PATH_MAX];
    char control_socket[PATHS_SOCKET_BYTES];
    char attach_socket[PATHS_SOCKET_BYTES];
    char lock_file[PATH_MAX];
    char ledgers_dir[PATH_MAX];
    char state_file[PATH_MAX]; /* SQLite */
    char log_file[PATH_MAX];
    char config_dir[PATH_MAX]; /* need not exist */
};

/* Fill `paths` for `role`. Creates nothing. `simulated` appends /simulated to each folder.
 *
 * runtime        GPUSLICE_RUNTIME_DIR; else /run/gpuslice for the system daemon, and for a client if control.sock
 *                exists there (no permission to use it is an error that names the group, never a fallback); else
 *                $XDG_RUNTIME_DIR/gpuslice; else /tmp/gpuslice-UID
 * state          GPUSLICE_STATE_DIR, /var/lib/gpuslice, or $XDG_STATE_HOME/gpuslice (~/.local/state/gpuslice)
 * configuration  GPUSLICE_CONFIG_DIR, /etc/gpuslice, or $XDG_CONFIG_HOME/gpuslice (~/.config/gpuslice)
 *
 * A socket path that does not fit into its 107 bytes is an error that says what to do. */
int paths_find(struct paths *paths, enum paths_role role, bool simulated, struct error *error);

/* Create the runtime and state folders (0755 for the system daemon, else 0700) and `ledgers` (0700). Folders that
 * exist must be folders (in the /tmp fallback no symbolic links), belong to this user, and be writable by nobody
 * else. */
int paths_create(const struct paths *paths, struct error *error);

/* The path of an installed file, BIN/../lib/gpuslice/NAME, found from where this program is, so that an installed
 * tree can be moved: "libgpuslice.so", "simulated", "simulated/libcuda.so.1". Fails when the file does not exist. */
int paths_library(const char *name, char path[static PATH_MAX], struct error *error);

/* The path of another program of GPU Slice's, in the same folder as this one: "gpusliced". */
int paths_program(const char *name, char path[static PATH_MAX], struct error *error);
