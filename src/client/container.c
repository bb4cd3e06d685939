#include "client/container.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/session_fields.h"

/* Paths in the container. */
#define INTERCEPTOR "/usr/local/gpuslice/libgpuslice.so" /* the same path is in ld.so.preload */
#define SIMULATED_FOLDER "/run/gpuslice-simulated"

#if defined(__x86_64__)
#define OWN_KIND "x86-64"
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define OWN_KIND "AArch64"
#define MULTIARCH "aarch64-linux-gnu"
#endif

/* Where a C library looks by default: on Debian and its descendants, and on all others. */
static const char *const library_folders[] = {"/usr/lib/" MULTIARCH, "/usr/lib64"};

static void add_environment(json_t *parts, const char *name, const char *value)
{
    json_array_append_new(json_object_get(parts, "env"), json_sprintf("%s=%s", name, value));
}

static void add_mount(json_t *parts, const char *from, const char *to, bool is_writable)
{
    json_array_append_new(json_object_get(parts, "mounts"),
                          json_pack("{s:s,s:s,s:[s,s,s,s]}", "hostPath", from, "containerPath", to, "options",
                                    is_writable ? "rw" : "ro", "nosuid", "nodev", "bind"));
}

/* Add /dev/NAME if the host has it; `devices` is where this process sees the host's /dev. */
static void add_device(json_t *parts, const char *devices, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", devices, name);
    if (access(path, F_OK) == 0)
        json_array_append_new(json_object_get(parts, "deviceNodes"),
                              json_pack("{s:o}", "path", json_sprintf("/dev/%s", name)));
}

/* Mount a library of the host wherever the container's loader may look for it. */
static void add_library(json_t *parts, const char *path)
{
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < sizeof(library_folders) / sizeof(library_folders[0]); i++) {
        char to[PATH_MAX];
        if (snprintf(to, sizeof(to), "%s/%s", library_folders[i], slash ? slash + 1 : path) < (int)sizeof(to))
            add_mount(parts, path, to, false);
    }
}

/* --- The driver ------------------------------------------------------------------------------------ */

json_t *container_driver_libraries(const char *listing)
{
    /* The driver's libraries that computing needs; graphics is left out. */
    static const char *const wanted[] = {"libcuda.so.",           "libcudadebugger.so.",
                                         "libnvidia-ml.so.",      "libnvidia-ptxjitcompiler.so.",
                                         "libnvidia-nvvm",        "libnvidia-gpucomp.so.",
                                         "libnvidia-opencl.so.",  "libnvidia-encode.so.",
                                         "libnvidia-opticalflow", "libnvcuvid.so."};
    json_t *libraries = json_array();
    for (const char *line = listing; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        char name[256], kind[256], path[PATH_MAX];
        /* "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1" */
        if (sscanf(line, " %255s (%255[^)]) => %4095[^\n]", name, kind, path) != 3 || !strstr(kind, OWN_KIND))
            continue;
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
            if (strncmp(name, wanted[i], strlen(wanted[i])) == 0) {
                json_array_append_new(libraries, json_string(path));
                break;
            }
    }
    return libraries;
}

static char *read_linker_cache(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *listing = popen("PATH=/usr/sbin:/sbin:$PATH exec ldconfig -p 2>/dev/null", "re");
    if (!listing)
        return NULL;
    if (getdelim(&text, &bytes, '\0', listing) < 0) {
        free(text);
        text = NULL;
    }
    pclose(listing);
    return text;
}

bool container_mount_is_outdated(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && status.st_nlink == 0;
}

/* The number of a card's device file, as the driver tells it; -1 when unknown. */
static int device_minor(const char *uuid)
{
    static const char folder[] = "/proc/driver/nvidia/gpus";
    cleanup_dir DIR *cards = opendir(folder);
    for (struct dirent *card; cards && (card = readdir(cards));) {
        char path[PATH_MAX], line[256];
        int minor = -1;
        bool is_it = false;
        snprintf(path, sizeof(path), "%s/%s/information", folder, card->d_name);
        cleanup_file FILE *file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file)) {
            sscanf(line, "Device Minor: %d", &minor);
            is_it |= strncmp(line, "GPU UUID:", 9) == 0 && strstr(line, uuid);
        }
        if (is_it)
            return minor;
    }
    return -1;
}

static int add_driver(json_t *parts, const json_t *session, const char *devices, struct error *error)
{
    cleanup_free char *listing = read_linker_cache();
    json_t *libraries = container_driver_libraries(listing), *each;
    size_t i;
    if (json_array_size(libraries) == 0) {
        json_decref(libraries);
        return error_set(
            error, ENOENT, NULL,
            "the linker's cache (ldconfig -p) names no libcuda.so; expected the NVIDIA driver's libraries; "
            "if another device brings the driver, like nvidia.com/gpu, add --without-driver");
    }
    json_array_foreach(libraries, i, each) add_library(parts, json_string_value(each));
    json_decref(libraries);
    add_device(parts, devices, "nvidiactl");
    add_device(parts, devices, "nvidia-uvm");
    add_device(parts, devices, "nvidia-uvm-tools");
    json_array_foreach(json_object_get(session, "gpus"), i, each)
    {
        char name[64];
        const char *uuid = session_text(each, "uuid");
        int minor = device_minor(uuid);
        if (minor < 0)
            return error_set(error, ENODEV, NULL,
                             "the driver does not tell the device file of %.80s%s; use --without-driver "
                             "together with nvidia.com/gpu=%.80s",
                             uuid, strncmp(uuid, "MIG-", 4) == 0 ? ", a MIG instance" : "", uuid);
        snprintf(name, sizeof(name), "nvidia%d", minor);
        add_device(parts, devices, name);
    }
    return 0;
}

static int add_simulated_driver(json_t *parts, const json_t *session, const struct paths *paths,
                                struct error *error)
{
    static const char *const libraries[] = {"simulated/libcuda.so.1", "simulated/libnvidia-ml.so.1"};
    const json_t *environment = json_object_get(session, "environment");
    const char *folder = session_text(environment, "FAKECUDA_FOLDER");
    char path[PATH_MAX], owner[16];
    struct stat status;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        int result = paths_library(libraries[i], path, error);
        if (result < 0)
            return result;
        add_library(parts, path);
    }
    add_mount(parts, *folder ? folder : "/dev/shm", SIMULATED_FOLDER, true);
    add_environment(parts, "FAKECUDA_FOLDER", SIMULATED_FOLDER);
    /* Says who owns the simulated machine: inside the container the user's number is another. */
    if (!*session_text(environment, "FAKECUDA_OWNER") && stat(paths->control_socket, &status) == 0) {
        snprintf(owner, sizeof(owner), "%u", (unsigned)status.st_uid);
        add_environment(parts, "FAKECUDA_OWNER", owner);
    }
    return 0;
}

/* --- All of it ------------------------------------------------------------------------------------- */

static void add_variables(json_t *parts, const json_t *session)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(session, "environment"), name, value)
    {
        if (strcmp(name, "GPUSLICE_IPC_SOCK") != 0 && strcmp(name, "FAKECUDA_FOLDER") != 0)
            add_environment(parts, name, json_string_value(value) ? json_string_value(value) : "");
    }
    add_environment(parts, "GPUSLICE_IPC_SOCK", CONTAINER_SOCKET_FOLDER "/attach.sock");
}

static int add_interceptor(json_t *parts, struct error *error)
{
    char path[PATH_MAX];
    int result = paths_library("libgpuslice.so", path, error);
    if (result < 0)
        return result;
    add_mount(parts, path, INTERCEPTOR, false);
    if ((result = paths_library("container/ld.so.preload", path, error)) < 0)
        return result;
    add_mount(parts, path, "/etc/ld.so.preload", false);
    return 0;
}

static int add_session(json_t *parts, const json_t *session, struct error *error)
{
    char folder[PATH_MAX];
    const char *socket = session_text(session, "own_socket");
    if (*socket != '/')
        return error_set(error, EPROTO, NULL,
                         "session %s has no socket of its own; restart the daemon, its sessions stay",
                         session_text(session, "session_id"));
    snprintf(folder, sizeof(folder), "%s", socket);
    *strrchr(folder, '/') = '\0';
    add_mount(parts, folder, CONTAINER_SOCKET_FOLDER, false);
    add_variables(parts, session);
    return add_interceptor(parts, error);
}

/* The common end of the functions below: `result` is that of the steps before. */
static int finish_parts(json_t *parts, const json_t *session, const struct container_host *host, int result,
                        json_t **parts_out, struct error *error)
{
    if (result == 0 && host->paths->simulated)
        result = add_simulated_driver(parts, session, host->paths, error);
    else if (result == 0 && host->driver == CONTAINER_DRIVER_HOST)
        result = add_driver(parts, session, host->devices, error);
    if (result < 0)
        json_decref(parts);
    else
        *parts_out = parts;
    return result;
}

static json_t *new_parts(void)
{
    return json_pack("{s:[],s:[],s:[]}", "env", "mounts", "deviceNodes");
}

int container_parts(const json_t *session, const struct container_host *host, json_t **parts_out,
                    struct error *error)
{
    json_t *parts = new_parts();
    int result = add_session(parts, session, error);
    return finish_parts(parts, session, host, result, parts_out, error);
}

int container_slice_parts(const json_t *session, const json_t *hook, const struct container_host *host,
                          json_t **parts_out, struct error *error)
{
    json_t *parts = new_parts();
    /* Empty, so that programs are refused where a container runtime ignores the hook. */
    json_array_append_new(json_object_get(parts, "mounts"),
                          json_pack("{s:s,s:s,s:s,s:[s,s,s,s,s]}", "hostPath", "tmpfs", "containerPath",
                                    CONTAINER_SOCKET_FOLDER, "type", "tmpfs", "options", "ro", "nosuid",
                                    "nodev", "noexec", "mode=755"));
    json_object_set_new(parts, "hooks", json_pack("[O]", hook));
    add_variables(parts, session);
    return finish_parts(parts, session, host, add_interceptor(parts, error), parts_out, error);
}

int container_driver_parts(const json_t *gpus, const struct container_host *host, json_t **parts_out,
                           struct error *error)
{
    json_t *nobody = json_pack("{s:O}", "gpus", gpus), *parts = new_parts(), *gpu;
    char visible[4096] = "";
    size_t i, length = 0;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        int more = snprintf(visible + length, sizeof(visible) - length, "%s%s", i ? "," : "",
                            session_text(gpu, "uuid"));
        if (length + (size_t)more < sizeof(visible))
            length += (size_t)more;
    }
    add_environment(parts, "CUDA_VISIBLE_DEVICES", visible);
    int result = finish_parts(parts, nobody, host, 0, parts_out, error);
    json_decref(nobody);
    return result;
}
