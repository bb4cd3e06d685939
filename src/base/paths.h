/* paths.h - where the daemon and the command line meet, and where the product's own files are. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/un.h>

#include "base/error.h"

enum paths_role {
    PATHS_CLIENT,        /* the command line: finds the daemon that is there */
    PATHS_USER_DAEMON,   /* a user's own daemon (as root too) */
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

/* Fill `paths` for `role` by the rules of the design: GPUSLICE_RUNTIME_DIR; else /run/gpuslice for the system daemon,
 * and for a client if its control.sock exists (no permission there is an error that names the group, never a
 * fallback); else $XDG_RUNTIME_DIR/gpuslice; else /tmp/gpuslice-UID. `simulated` appends /simulated. State:
 * GPUSLICE_STATE_DIR, /var/lib/gpuslice, or $XDG_STATE_HOME/gpuslice (~/.local/state/gpuslice), again with
 * /simulated. Configuration: GPUSLICE_CONFIG_DIR, /etc/gpuslice, or $XDG_CONFIG_HOME/gpuslice (~/.config/gpuslice),
 * with /simulated too. Creates nothing. Fails with what to do when a socket path would not fit its 107 bytes. */
int paths_find(struct paths *paths, enum paths_role role, bool simulated, struct error *error);

/* Create the runtime and state folders (0755 for the system daemon, else 0700, and `ledgers` 0700), and check that
 * those that exist are folders (no symbolic links in a /tmp fallback), and ours. */
int paths_create(const struct paths *paths, struct error *error);

/* An installed file, found from this program's own place (BIN/../lib/gpuslice/NAME), so that a tree can be moved:
 * "libgpuslice.so", "simulated", "simulated/libcuda.so.1". Fails when it is not there. */
int paths_library(const char *name, char path[static PATH_MAX], struct error *error);

/* Another program of the product, beside this one: "gpusliced". */
int paths_program(const char *name, char path[static PATH_MAX], struct error *error);
