#include "base/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define SYSTEM_RUNTIME_DIR "/run/gpuslice"
#define SYSTEM_STATE_DIR "/var/lib/gpuslice"
#define SYSTEM_CONFIG_DIR "/etc/gpuslice"

/* --- Finding --------------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static int join(char *path, size_t size, struct error *error,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, size, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= size)
        return error_set(error, ENAMETOOLONG, NULL,
                         "path '%.200s...' is longer than %zu bytes; set GPUSLICE_RUNTIME_DIR, "
                         "GPUSLICE_STATE_DIR or GPUSLICE_CONFIG_DIR to a shorter one",
                         path, size - 1);
    return 0;
}

/* The value of an environment variable that names a folder; NULL when unset or empty. A relative one would
 * mean different folders to programs started in different places. */
static int folder_from_environment(const char *name, const char **value, struct error *error)
{
    const char *text = getenv(name);
    *value = text && *text ? text : NULL;
    if (*value && **value != '/')
        return error_set(error, EINVAL, NULL,
                         "%s is '%.200s'; expected an absolute path; set it to such a path or unset it", name,
                         text);
    return 0;
}

/* $XDG_RUNTIME_DIR if it is a folder of this user's; else NULL. After `su` or `sudo` it may name another user's
 * folder, or one that no longer exists. */
static const char *xdg_runtime_dir(void)
{
    const char *path = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    if (!path || path[0] != '/' || stat(path, &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != geteuid())
        return NULL;
    return path;
}

static int no_permission(const char *control_socket, struct error *error)
{
    struct stat status;
    const struct group *group = stat(control_socket, &status) == 0 ? getgrgid(status.st_gid) : NULL;
    const char *name = group ? group->gr_name : "gpuslice";
    if (group && group->gr_gid == 0)
        return error_set(
            error, EACCES, "ERR_FORBIDDEN",
            "no permission to use the system daemon's %s; it was started without a group for its users; "
            "as root, run 'groupadd --system gpuslice', add users to it, and start the daemon again",
            control_socket);
    return error_set(error, EACCES, "ERR_FORBIDDEN",
                     "no permission to use the system daemon's %s; expected a member of the group '%s'; run "
                     "'sudo usermod -aG %s USER' and log in again",
                     control_socket, name, name);
}

/* Whether a client can use a running system daemon: 1, 0, or a negative errno. */
static int system_daemon_is_there(const char *suffix, struct error *error)
{
    char control_socket[PATHS_SOCKET_BYTES];
    snprintf(control_socket, sizeof(control_socket), SYSTEM_RUNTIME_DIR "%s/control.sock", suffix);
    if (access(control_socket, R_OK | W_OK) == 0)
        return 1;
    return errno == EACCES ? no_permission(control_socket, error) : 0;
}

static int find_runtime_dir(struct paths *paths, enum paths_role role, const char *suffix,
                            struct error *error)
{
    const char *chosen = NULL;
    int result = folder_from_environment("GPUSLICE_RUNTIME_DIR", &chosen, error);
    if (result < 0)
        return result;

    paths->system = role == PATHS_SYSTEM_DAEMON;
    if (!chosen && role == PATHS_CLIENT) {
        result = system_daemon_is_there(suffix, error);
        if (result < 0)
            return result;
        paths->system = result == 1;
    }
    if (chosen)
        return join(paths->runtime_dir, sizeof(paths->runtime_dir), error, "%s%s", chosen, suffix);
    if (paths->system)
        return join(paths->runtime_dir, sizeof(paths->runtime_dir), error, SYSTEM_RUNTIME_DIR "%s", suffix);
    const char *xdg = xdg_runtime_dir();
    if (xdg)
        return join(paths->runtime_dir, sizeof(paths->runtime_dir), error, "%s/gpuslice%s", xdg, suffix);
    return join(paths->runtime_dir, sizeof(paths->runtime_dir), error, "/tmp/gpuslice-%u%s",
                (unsigned)geteuid(), suffix);
}

/* Where a folder that all of a user's programs share may be: named by GPUSLICE_..., the system's, XDG's, or below
 * the home folder. */
struct user_folder {
    const char *ours, *system, *xdg, *below_home, *use;
};

static int find_user_folder(const struct paths *paths, const struct user_folder *folder, const char *suffix,
                            char path[static PATH_MAX], struct error *error)
{
    const char *chosen = NULL, *xdg = NULL;
    int result = folder_from_environment(folder->ours, &chosen, error);
    if (result < 0)
        return result;
    if (chosen)
        return join(path, PATH_MAX, error, "%s%s", chosen, suffix);
    if (paths->system)
        return join(path, PATH_MAX, error, "%s%s", folder->system, suffix);

    result = folder_from_environment(folder->xdg, &xdg, error);
    if (result < 0)
        return result;
    if (xdg)
        return join(path, PATH_MAX, error, "%s/gpuslice%s", xdg, suffix);

    const char *home = getenv("HOME");
    if (!home || home[0] != '/') {
        const struct passwd *user = getpwuid(geteuid());
        home = user ? user->pw_dir : NULL;
    }
    if (!home)
        return error_set(error, ENOENT, NULL, "user %u has no home folder to keep %s in; set %s to a folder",
                         (unsigned)geteuid(), folder->use, folder->ours);
    return join(path, PATH_MAX, error, "%s/%s/gpuslice%s", home, folder->below_home, suffix);
}

static const struct user_folder state_folder = {
    .ours = "GPUSLICE_STATE_DIR",
    .system = SYSTEM_STATE_DIR,
    .xdg = "XDG_STATE_HOME",
    .below_home = ".local/state",
    .use = "state",
};
static const struct user_folder config_folder = {
    .ours = "GPUSLICE_CONFIG_DIR",
    .system = SYSTEM_CONFIG_DIR,
    .xdg = "XDG_CONFIG_HOME",
    .below_home = ".config",
    .use = "configuration",
};

/* connect(2) and bind(2) take 107 bytes and a zero, whatever the file system allows. */
static int socket_path(char path[static PATHS_SOCKET_BYTES], const char *folder, const char *name,
                       struct error *error)
{
    if (snprintf(path, PATHS_SOCKET_BYTES, "%s/%s", folder, name) < (int)PATHS_SOCKET_BYTES)
        return 0;
    return error_set(
        error, ENAMETOOLONG, NULL,
        "'%.200s/%s' is too long for a socket; expected at most %zu bytes; set GPUSLICE_RUNTIME_DIR to a "
        "shorter path",
        folder, name, PATHS_SOCKET_BYTES - 1);
}

int paths_find(struct paths *paths, enum paths_role role, bool simulated, struct error *error)
{
    const char *suffix = simulated ? "/simulated" : "";
    struct paths found = {.simulated = simulated};
    int result = find_runtime_dir(&found, role, suffix, error);
    if (result < 0 ||
        (result = find_user_folder(&found, &state_folder, suffix, found.state_dir, error)) < 0 ||
        (result = find_user_folder(&found, &config_folder, suffix, found.config_dir, error)) < 0)
        return result;

    const char *runtime = found.runtime_dir, *state = found.state_dir;
    if ((result = socket_path(found.control_socket, runtime, "control.sock", error)) < 0 ||
        (result = socket_path(found.attach_socket, runtime, "attach.sock", error)) < 0 ||
        (result = join(found.lock_file, PATH_MAX, error, "%s/lock", runtime)) < 0 ||
        (result = join(found.ledgers_dir, PATH_MAX, error, "%s/ledgers", runtime)) < 0 ||
        (result = join(found.state_file, PATH_MAX, error, "%s/state.db", state)) < 0 ||
        (result = join(found.log_file, PATH_MAX, error, "%s/gpusliced.log", state)) < 0)
        return result;
    *paths = found;
    return 0;
}

/* --- Creating -------------------------------------------------------------------------------------- */

/* Create the folders above `path` that do not exist. */
static int create_parents(const char *path, mode_t mode, struct error *error)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof(parent), "%s", path);
    for (char *slash = strchr(parent + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(parent, mode) != 0 && errno != EEXIST)
            return error_set_errno(error, errno, "cannot create the folder %s", parent);
        *slash = '/';
    }
    return 0;
}

/* Create `path` and check that it is a folder that only this user can write. */
static int create_folder(const char *path, mode_t mode, bool follow_links, struct error *error)
{
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        return error_set_errno(error, errno, "cannot create the folder %s", path);

    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow_links ? 0 : O_NOFOLLOW));
    struct stat status;
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return error_set(
            error, ENOTDIR, NULL,
            "%s is not a folder; expected one of user %u; remove it, or set GPUSLICE_RUNTIME_DIR", path,
            (unsigned)geteuid());
    if (fd < 0 || fstat(fd, &status) != 0)
        return error_set_errno(error, errno, "cannot use the folder %s", path);
    if (status.st_uid != geteuid())
        return error_set(
            error, EPERM, NULL,
            "%s belongs to user %u; expected user %u; remove it, or set GPUSLICE_RUNTIME_DIR and "
            "GPUSLICE_STATE_DIR to folders of yours",
            path, (unsigned)status.st_uid, (unsigned)geteuid());
    if ((status.st_mode & 0022) != 0)
        return error_set(
            error, EPERM, NULL,
            "%s can be written by others (mode %04o); expected its owner alone; run 'chmod go-w %s'", path,
            (unsigned)(status.st_mode & 07777), path);
    return 0;
}

int paths_create(const struct paths *paths, struct error *error)
{
    const mode_t mode = paths->system ? 0755 : 0700;
    char tmp_fallback[64];
    int length = snprintf(tmp_fallback, sizeof(tmp_fallback), "/tmp/gpuslice-%u", (unsigned)geteuid());
    const char *behind =
        strncmp(paths->runtime_dir, tmp_fallback, (size_t)length) == 0 ? paths->runtime_dir + length : NULL;
    bool fallback = behind && (*behind == '\0' || *behind == '/');
    int result;

    /* Anyone may create names in /tmp, so each part of ours there is checked, and none may be a link. */
    if (fallback && (result = create_folder(tmp_fallback, mode, false, error)) < 0)
        return result;
    if ((result = create_parents(paths->runtime_dir, mode, error)) < 0 ||
        (result = create_folder(paths->runtime_dir, mode, !fallback, error)) < 0 ||
        (result = create_folder(paths->ledgers_dir, 0700, false, error)) < 0 ||
        (result = create_parents(paths->state_dir, mode, error)) < 0)
        return result;
    return create_folder(paths->state_dir, mode, true, error);
}

/* --- The product's own files ----------------------------------------------------------------------- */

/* The folder of this program's file. If the file was replaced while it runs, the link reads "NAME (deleted)", which
 * does not change the folder. */
static int own_folder(char folder[static PATH_MAX], struct error *error)
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length < 0)
        return error_set_errno(error, errno, "cannot read /proc/self/exe to find GPU Slice's own files");
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    return 0;
}

static int installed_file(char path[static PATH_MAX], int access_mode, struct error *error, const char *root,
                          const char *name)
{
    int result = join(path, PATH_MAX, error, "%s/%s", strcmp(root, "/") == 0 ? "" : root, name);
    if (result == 0 && access(path, access_mode) != 0)
        result =
            error_set(error, errno, NULL,
                      "%s is missing; expected it where GPU Slice was installed; install it again", path);
    return result;
}

int paths_library(const char *name, char path[static PATH_MAX], struct error *error)
{
    char folder[PATH_MAX], below[PATH_MAX], found[PATH_MAX];
    int result = own_folder(folder, error);
    if (result < 0)
        return result;
    char *slash = strrchr(folder, '/'); /* PREFIX of PREFIX/bin; the root's parent is the root */
    slash[slash == folder] = '\0';
    if ((result = join(below, sizeof(below), error, "lib/gpuslice/%s", name)) < 0 ||
        (result = installed_file(found, F_OK, error, folder, below)) < 0)
        return result;
    strcpy(path, found);
    return 0;
}

int paths_program(const char *name, char path[static PATH_MAX], struct error *error)
{
    char folder[PATH_MAX], found[PATH_MAX];
    int result = own_folder(folder, error);
    if (result < 0 || (result = installed_file(found, X_OK, error, folder, name)) < 0)
        return result;
    strcpy(path, found);
    return 0;
}
