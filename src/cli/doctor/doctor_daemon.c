/* Checks of the daemon, and of what the daemon sees. */
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/doctor/doctor.h"
#include "client/session_fields.h"

void doctor_daemon(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *version = session_text(doctor->version, "version");
    if (doctor->no_daemon.status == ENOTCONN && doctor->paths.system)
        doctor_say(finding, DOCTOR_PROBLEM, "run 'systemctl start gpusliced'",
                   "the system daemon does not answer at %s", doctor->paths.control_socket);
    else if (doctor->no_daemon.status == ENOTCONN)
        doctor_say(finding, DOCTOR_OK, "", "no daemon is running; 'gpuslice run' starts one");
    else if (doctor->no_daemon.status)
        doctor_say(finding, DOCTOR_PROBLEM, "", "asking it failed: %s", doctor->no_daemon.message);
    else if (strcmp(version, GPUSLICE_VERSION) != 0)
        doctor_say(finding, DOCTOR_WARNING, "restart it, its sessions stay",
                   "it has version %.40s, and this program has version %s", version, GPUSLICE_VERSION);
    else
        doctor_say(finding, DOCTOR_OK, "", "version %s answers at %s", GPUSLICE_VERSION,
                   doctor->paths.control_socket);
}

/* --- Who may reach it ------------------------------------------------------------------------------ */

/* Whether nobody but the owner could put other files in place of the daemon's. */
static bool folder_is_safe(const char *path, struct doctor_finding *finding)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return true;
    if (!S_ISDIR(status.st_mode))
        doctor_say(finding, DOCTOR_PROBLEM, "remove it, or set GPUSLICE_RUNTIME_DIR", "%s is not a folder",
                   path);
    else if (status.st_uid != 0 && status.st_uid != geteuid())
        doctor_say(finding, DOCTOR_PROBLEM, "set GPUSLICE_RUNTIME_DIR to a folder of yours",
                   "%s belongs to user %u, who can read what you send there", path, (unsigned)status.st_uid);
    else if (status.st_mode & 0022)
        doctor_say(finding, DOCTOR_PROBLEM, "run 'chmod go-w' on it",
                   "%s can be written by others (mode %04o), who can put a socket of theirs there", path,
                   (unsigned)(status.st_mode & 07777));
    else
        return true;
    return false;
}

void doctor_access(const struct doctor *doctor, struct doctor_finding *finding)
{
    struct stat status;
    if (doctor->no_paths.status) {
        doctor_say(finding, DOCTOR_PROBLEM, "", "%s", doctor->no_paths.message);
        return;
    }
    if (!folder_is_safe(doctor->paths.runtime_dir, finding) ||
        !folder_is_safe(doctor->paths.state_dir, finding))
        return;
    if (doctor->no_daemon.status == EACCES || doctor->no_daemon.status == EPERM)
        doctor_say(finding, DOCTOR_PROBLEM, "", "%s", doctor->no_daemon.message);
    else if (doctor->no_daemon.status == 0 && access(doctor->paths.attach_socket, R_OK | W_OK) != 0)
        doctor_say(finding, DOCTOR_PROBLEM, "restart the daemon, its sessions stay",
                   "programs cannot attach: %s: %s", doctor->paths.attach_socket, strerror(errno));
    else if (doctor->paths.system && stat(doctor->paths.control_socket, &status) == 0 && status.st_gid == 0)
        doctor_say(finding, DOCTOR_WARNING,
                   "as root, run 'groupadd --system gpuslice', add users to it, and restart the daemon",
                   "the system daemon has no group for its users: only root can make sessions");
    else
        doctor_say(finding, DOCTOR_OK, "", "only the daemon's user can use %s", doctor->paths.runtime_dir);
}

/* --- Other daemons --------------------------------------------------------------------------------- */

static bool file_has(const char *root, const char *pid, const char *name, const char *wanted)
{
    char path[PATH_MAX], text[4096];
    snprintf(path, sizeof(path), "%s/proc/%.20s/%s", root, pid, name);
    cleanup_file FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    for (size_t i = 0; i < length; i++) /* the words in cmdline end with zeros */
        if (text[i] == '\0')
            text[i] = '\n';
    text[length] = '\0';
    return strstr(text, wanted) != NULL;
}

/* The value of `variable` in the environment that process `pid` was started with; "" where it is not set, or where
 * this user may not read it. */
static void read_environment(const char *root, const char *pid, const char *variable, char *value,
                             size_t room)
{
    char path[PATH_MAX];
    cleanup_free char *word = NULL;
    size_t word_room = 0, length = strlen(variable);
    snprintf(path, sizeof(path), "%s/proc/%.20s/environ", root, pid);
    cleanup_file FILE *file = fopen(path, "re");
    value[0] = '\0';
    while (file && getdelim(&word, &word_room, '\0', file) > 0)
        if (strncmp(word, variable, length) == 0 && word[length] == '=')
            snprintf(value, room, "%s", word + length + 1);
}

/* A daemon is told to be simulated by its command line or by its environment. */
static bool is_simulated(const char *root, const char *pid)
{
    char value[16];
    read_environment(root, pid, "GPUSLICE_SIMULATED", value, sizeof(value));
    return file_has(root, pid, "cmdline", "\n--simulated\n") || (*value && strcmp(value, "0") != 0);
}

/* Whether a simulated daemon has the GPUs that ours would have: a simulated machine is told by its name, owner and
 * folder. */
static bool simulates_our_machine(const char *root, const char *pid)
{
    static const char *const variables[] = {"FAKECUDA_NAME", "FAKECUDA_OWNER", "FAKECUDA_FOLDER"};
    char path[PATH_MAX], theirs[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof(path), "%s/proc/%.20s", root, pid);
    if (stat(path, &status) != 0 || status.st_uid != geteuid())
        return false;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *ours = getenv(variables[i]);
        read_environment(root, pid, variables[i], theirs, sizeof(theirs));
        if (strcmp(theirs, ours ? ours : "") != 0)
            return false;
    }
    return true;
}

void doctor_other_daemons(const struct doctor *doctor, struct doctor_finding *finding)
{
    char path[PATH_MAX], pids[128] = "";
    unsigned count = 0;
    snprintf(path, sizeof(path), "%s/proc", doctor->root);
    cleanup_dir DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || atoi(entry->d_name) == doctor->daemon_pid ||
            !file_has(doctor->root, entry->d_name, "comm", "gpusliced\n") ||
            is_simulated(doctor->root, entry->d_name) != doctor->simulated ||
            (doctor->simulated && !simulates_our_machine(doctor->root, entry->d_name)))
            continue;
        size_t used = strlen(pids);
        snprintf(pids + used, sizeof(pids) - used, "%s%d", used ? ", " : "", atoi(entry->d_name));
        count++;
    }
    if (count)
        doctor_say(finding, DOCTOR_WARNING, "use one system daemon where users share GPUs",
                   "%u other daemon%s run%s here (process %s): new sessions do not count on memory that its "
                   "programs hold, but daemons do not share the GPUs' time by their sessions' shares",
                   count, count == 1 ? "" : "s", count == 1 ? "s" : "", pids);
    else
        doctor_say(finding, DOCTOR_OK, "", "no other daemon runs here");
}

void doctor_linger(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct passwd *user = getpwuid(geteuid());
    char systemd[PATH_MAX], linger[PATH_MAX];
    snprintf(systemd, sizeof(systemd), "%s/run/systemd/system", doctor->root);
    snprintf(linger, sizeof(linger), "%s/var/lib/systemd/linger/%s", doctor->root, user ? user->pw_name : "");
    if (doctor->paths.system)
        doctor_say(finding, DOCTOR_OK, "", "the system daemon belongs to no login");
    else if (access(systemd, F_OK) != 0)
        doctor_say(finding, DOCTOR_OK, "",
                   "systemd, which could end what users leave running, does not run here");
    else if (!user || access(linger, F_OK) != 0)
        doctor_say(finding, DOCTOR_WARNING, "run 'loginctl enable-linger'",
                   "your daemon, its sockets and its sessions go when you log out");
    else
        doctor_say(finding, DOCTOR_OK, "", "user %s lingers", user->pw_name);
}

/* --- What the daemon sees -------------------------------------------------------------------------- */

static bool daemon_is_silent(const struct doctor *doctor, struct doctor_finding *finding)
{
    if (doctor->gpus)
        return false;
    doctor_say(finding, DOCTOR_OK, "", "not known without a daemon");
    return true;
}

void doctor_health(const struct doctor *doctor, struct doctor_finding *finding)
{
    const json_t *gpu;
    size_t i;
    if (daemon_is_silent(doctor, finding))
        return;
    json_array_foreach(doctor->gpus, i, gpu)
    {
        if (!json_is_true(json_object_get(gpu, "healthy"))) {
            doctor_say(finding, DOCTOR_PROBLEM,
                       "look for Xid errors in the kernel's log (dmesg) and at nvidia-smi; if nvidia-smi "
                       "hangs too, restart the machine",
                       "NVML does not answer for GPU %llu: its sessions go on with NVML's last figures",
                       (unsigned long long)session_number(gpu, "index"));
            return;
        }
    }
    doctor_say(finding, DOCTOR_OK, "", "NVML answers for all %zu", json_array_size(doctor->gpus));
}

/* Under WSL the GPU is Windows's, which the kernel shows as one device. */
static bool is_wsl(const struct doctor *doctor)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/dev/dxg", doctor->root);
    return access(path, F_OK) == 0;
}

void doctor_kind(const struct doctor *doctor, struct doctor_finding *finding)
{
    const json_t *gpu, *trait;
    char text[DOCTOR_TEXT_BYTES - 64] = "";
    size_t i, j;
    if (!is_wsl(doctor) && daemon_is_silent(doctor, finding))
        return;
    json_array_foreach(doctor->gpus, i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "traits"), j, trait)
        {
            size_t used = strlen(text);
            if (!strstr(text, session_text(trait, "text"))) /* the first GPU stands for all that are alike */
                snprintf(text + used, sizeof(text) - used, "%sGPU %llu is %s: %s", used ? "; " : "",
                         (unsigned long long)session_number(gpu, "index"), session_text(trait, "trait"),
                         session_text(trait, "text"));
        }
    }
    if (text[0] || is_wsl(doctor))
        doctor_say(finding, DOCTOR_WARNING,
                   "share/doc/gpuslice/machines.md says what works there and what does not", "%s%s%s",
                   is_wsl(doctor) ? "this is WSL2" : "", text[0] && is_wsl(doctor) ? "; " : "", text);
    else
        doctor_say(finding, DOCTOR_OK, "", "each GPU is a card with memory of its own");
}

void doctor_mig(const struct doctor *doctor, struct doctor_finding *finding)
{
    const json_t *gpu;
    size_t i;
    if (daemon_is_silent(doctor, finding))
        return;
    json_array_foreach(doctor->gpus, i, gpu)
    {
        if (json_is_integer(json_object_get(gpu, "mig_index"))) {
            doctor_say(finding, DOCTOR_WARNING, "name an instance for each program, like --gpu 0:1",
                       "GPU %llu is in MIG mode: a program sees one instance of it",
                       (unsigned long long)session_number(gpu, "index"));
            return;
        }
    }
    doctor_say(finding, DOCTOR_OK, "", "none is");
}

void doctor_uncovered(const struct doctor *doctor, struct doctor_finding *finding)
{
    const json_t *gpu, *process;
    char pids[128] = "";
    size_t i, j;
    unsigned count = 0;
    if (daemon_is_silent(doctor, finding))
        return;
    json_array_foreach(doctor->gpus, i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "processes"), j, process)
        {
            size_t used = strlen(pids);
            if (!json_is_null(json_object_get(process, "session_id")))
                continue;
            snprintf(pids + used, sizeof(pids) - used, "%s%llu", used ? ", " : "",
                     (unsigned long long)session_number(process, "pid"));
            count++;
        }
    }
    if (count)
        doctor_say(
            finding, DOCTOR_WARNING, "start them with 'gpuslice run'; no session is charged for their memory",
            "%u GPU process%s outside of all sessions: %s", count, count == 1 ? " is" : "es are", pids);
    else
        doctor_say(finding, DOCTOR_OK, "", "every GPU process is in a session");
}

/* Call `look` with each process of each session until it returns true. Whether it did. */
static bool any_process(const struct doctor *doctor, struct doctor_finding *finding,
                        bool (*look)(const json_t *process, struct doctor_finding *finding))
{
    const json_t *session, *process;
    size_t i, j;
    json_array_foreach(doctor->sessions, i, session)
    {
        json_array_foreach(json_object_get(session, "processes"), j, process)
        {
            if (look(process, finding))
                return true;
        }
    }
    return false;
}

static bool has_new_functions(const json_t *process, struct doctor_finding *finding)
{
    const char *names = session_text(process, "unknown_functions");
    if (!*names)
        return false;
    doctor_say(
        finding, DOCTOR_WARNING,
        "see whether a newer GPU Slice knows them; until then a program that calls one keeps its memory on "
        "the card, and such calls are neither limited nor counted as work",
        "process %llu asked the driver for %s", (unsigned long long)session_number(process, "pid"), names);
    return true;
}

void doctor_functions(const struct doctor *doctor, struct doctor_finding *finding)
{
    if (!daemon_is_silent(doctor, finding) && !any_process(doctor, finding, has_new_functions))
        doctor_say(finding, DOCTOR_OK, "", "no program in a session asked for such a function");
}

static bool has_unknown_pointers(const json_t *process, struct doctor_finding *finding)
{
    unsigned long long count = session_number(process, "unknown_pointers");
    if (!count)
        return false;
    doctor_say(finding, DOCTOR_WARNING, "run it with GPUSLICE_DEBUG=1, which names them, and report that",
               "the driver answered process %llu %llu times with a function that it does not export; "
               "such calls are limited by their name alone",
               (unsigned long long)session_number(process, "pid"), count);
    return true;
}

void doctor_pointers(const struct doctor *doctor, struct doctor_finding *finding)
{
    if (!daemon_is_silent(doctor, finding) && !any_process(doctor, finding, has_unknown_pointers))
        doctor_say(finding, DOCTOR_OK, "", "no program in a session met such a function");
}
