#include "client/cdi.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/container.h"
#include "client/session_fields.h"

/* Every reader of CDI takes 0.5: podman 4.1, containerd 1.7, docker 25. */
#define CDI_VERSION "0.5.0"

json_t *cdi_specification(const char *kind, const char *const *names, unsigned count, const json_t *parts)
{
    json_t *devices = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(devices, json_pack("{s:s,s:O}", "name", names[i], "containerEdits", parts));
    return json_pack("{s:s,s:s,s:o}", "cdiVersion", CDI_VERSION, "kind", kind, "devices", devices);
}

/* A device's name begins and ends with a letter or digit; the other characters are allowed in between. */
static bool is_device_name(const char *name)
{
    static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-";
    size_t length = strlen(name);
    return length > 0 && name[strspn(name, characters)] == '\0' && isalnum((unsigned char)name[0]) &&
           isalnum((unsigned char)name[length - 1]);
}

json_t *cdi_session(const json_t *session, const json_t *parts)
{
    const char *names[] = {session_text(session, "session_id"), session_text(session, "name")};
    bool has_name = strcmp(names[0], names[1]) != 0 && is_device_name(names[1]);
    return cdi_specification("gpuslice.io/session", names, has_name ? 2 : 1, parts);
}

int cdi_write(const char *folder, const char *name, const json_t *specification, struct error *error)
{
    char path[PATH_MAX], draft[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s.json", folder, name) >= (int)sizeof(path) ||
        snprintf(draft, sizeof(draft), "%s/.%s.%d", folder, name, (int)getpid()) >= (int)sizeof(draft))
        return error_set(error, ENAMETOOLONG, NULL,
                         "the path of %.80s in %.200s is too long; expected fewer than %d bytes", name,
                         folder, PATH_MAX);
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return error_set_errno(error, errno, "cannot make the folder %s", folder);
    unlink(draft); /* left by a killed process that had our pid */
    cleanup_close int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(error, errno, "cannot make %s", draft);
    if (json_dumpfd(specification, fd, JSON_INDENT(2)) < 0 || fsync(fd) < 0 || rename(draft, path) < 0) {
        int reason = errno;
        unlink(draft);
        return error_set_errno(error, reason, "cannot write %s", path);
    }
    return 0;
}

/* --- What is in the way ---------------------------------------------------------------------------- */

static bool has_device(const json_t *specification, const char *name)
{
    const json_t *device;
    size_t i;
    json_array_foreach(json_object_get(specification, "devices"), i, device)
    {
        if (strcmp(session_text(device, "name"), name) == 0)
            return true;
    }
    return false;
}

static bool shares_a_name(const json_t *one, const json_t *other)
{
    const json_t *device;
    size_t i;
    json_array_foreach(json_object_get(one, "devices"), i, device)
    {
        if (has_device(other, session_text(device, "name")))
            return true;
    }
    return false;
}

/* The folder of the session's own socket goes with the session. */
static bool has_ended(const json_t *specification)
{
    const json_t *device = json_array_get(json_object_get(specification, "devices"), 0), *mount;
    const json_t *mounts = json_object_get(json_object_get(device, "containerEdits"), "mounts");
    size_t i;
    json_array_foreach(mounts, i, mount)
    {
        if (strcmp(session_text(mount, "containerPath"), CONTAINER_SOCKET_FOLDER) == 0)
            return access(session_text(mount, "hostPath"), F_OK) < 0 && errno == ENOENT;
    }
    return false;
}

static bool is_file_of_session(const char *file)
{
    size_t length = strlen(file), begin = strlen(CDI_SESSION_FILE), end = strlen(".json");
    return length > begin + end && strncmp(file, CDI_SESSION_FILE, begin) == 0 &&
           strcmp(file + length - end, ".json") == 0;
}

void cdi_sweep(const char *folder, const char *name, const json_t *specification)
{
    char path[PATH_MAX], own[NAME_MAX + 1] = "";
    cleanup_dir DIR *files = opendir(folder);
    if (name)
        snprintf(own, sizeof(own), "%s.json", name);
    for (const struct dirent *file; files && (file = readdir(files));) {
        if (!is_file_of_session(file->d_name) || strcmp(file->d_name, own) == 0 ||
            snprintf(path, sizeof(path), "%s/%s", folder, file->d_name) >= (int)sizeof(path))
            continue;
        json_t *found = json_load_file(path, 0, NULL);
        if (found && (has_ended(found) || shares_a_name(found, specification)))
            unlink(path);
        json_decref(found);
    }
}

int cdi_remove(const char *folder, const char *name, struct error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s.json", folder, name);
    return unlink(path) == 0 || errno == ENOENT ? 0 : error_set_errno(error, errno, "cannot remove %s", path);
}
