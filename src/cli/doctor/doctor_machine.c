/* Checks of this machine: driver, kernel, other services. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/doctor_run.h"
#include "client/start.h"

#define KERNEL_OF_SEALS "5.1" /* for F_SEAL_FUTURE_WRITE */
#define KERNEL_OF_PIDFD "5.3"
#define KERNEL_OF_MEMBARRIER "4.14"

void doctor_driver(const struct doctor *doctor, struct doctor_finding *finding)
{
    if (doctor->simulated)
        doctor_say(finding, DOCTOR_OK, "", "simulated GPUs need none");
    else if (start_check_driver(false, NULL) < 0)
        doctor_say(finding, DOCTOR_PROBLEM,
                   "install the driver, in a container give it the GPUs, or add --simulated",
                   "no NVIDIA driver: there is no /dev/nvidiactl");
    else
        doctor_say(finding, DOCTOR_OK, "", "it is loaded");
}

void doctor_nvml(const struct doctor *doctor, struct doctor_finding *finding)
{
    char path[PATH_MAX] = "libnvidia-ml.so.1";
    struct error error;
    if (doctor->simulated && paths_library("simulated/libcuda.so.1", path, &error) < 0) {
        doctor_say(finding, DOCTOR_PROBLEM, "", "%s", error.message);
        return;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library)
        doctor_say(finding, DOCTOR_OK, "", "%s loads", path);
    else
        doctor_say(finding, DOCTOR_PROBLEM,
                   "install the driver's libraries; in a container, let its runtime mount them "
                   "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
                   "%s does not load: %s", path, dlerror());
}

/* --- Kernel ---------------------------------------------------------------------------------------- */

static bool has_pidfd(void)
{
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    return fd >= 0;
}

static bool has_seals(void)
{
    cleanup_close int fd = memfd_create("gpuslice-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
}

static bool has_membarrier(void)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return commands >= 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void doctor_kernel(const struct doctor *doctor, struct doctor_finding *finding)
{
    static const char todo[] = "use a newer kernel, or a seccomp profile that allows it";
    if (!has_pidfd())
        doctor_say(finding, DOCTOR_PROBLEM, todo,
                   "pidfd_open fails (%s): the daemon cannot see when processes end; Linux %s has it",
                   strerror(errno), KERNEL_OF_PIDFD);
    else if (!has_seals())
        doctor_say(finding, DOCTOR_PROBLEM, todo,
                   "a memfd cannot be sealed (%s): limits could be written by programs; Linux %s can",
                   strerror(errno), KERNEL_OF_SEALS);
    else if (!has_membarrier())
        doctor_say(
            finding, DOCTOR_WARNING, todo,
            "membarrier does not work: programs submit work more slowly under --compute; Linux %s has it",
            KERNEL_OF_MEMBARRIER);
    else
        doctor_say(finding, DOCTOR_OK, "", "pidfd, sealed memory and membarrier work");
}

/* --- Services -------------------------------------------------------------------------------------- */

/* Compares with /proc/PID/comm, which cuts the name. */
static bool process_runs(const char *root, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/proc", root);
    cleanup_dir DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char comm[32] = "";
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "%s/proc/%.20s/comm", root, entry->d_name);
        cleanup_file FILE *file = fopen(path, "re");
        if (file && fgets(comm, sizeof(comm), file) && strncmp(comm, name, strlen(name)) == 0)
            return true;
    }
    return false;
}

void doctor_mps(const struct doctor *doctor, struct doctor_finding *finding)
{
    if (process_runs(doctor->root, "nvidia-cuda-mps"))
        doctor_say(finding, DOCTOR_WARNING, "end it: echo quit | nvidia-cuda-mps-control",
                   "MPS runs: its server submits work for all clients, so time and the driver's own memory "
                   "cannot be told apart by session");
    else
        doctor_say(finding, DOCTOR_OK, "", "MPS does not run");
}

/* The version after "v" or a space in the output of `program --version`, as major * 100 + minor; -1 without one. */
static int version_of(const char *program)
{
    char text[256];
    char *const words[] = {(char *)program, "--version", NULL};
    unsigned major, minor;
    if (doctor_run(words, DOCTOR_PLAIN, text, sizeof(text)) != 0)
        return -1;
    for (const char *at = text; *at; at++)
        if ((*at == ' ' || *at == 'v') && sscanf(at + 1, "%u.%u", &major, &minor) == 2 && major < 1000)
            return (int)(major * 100 + minor);
    return -1;
}

/* The first version of each runtime that accepts the names of CDI devices; older ones ignore them silently. */
static const struct {
    const char *program;
    int oldest;
    const char *text;
} runtimes[] = {{"containerd", 107, "1.7"}, {"dockerd", 2500, "25.0"}, {"podman", 401, "4.1"}};

void doctor_containers(const struct doctor *doctor, struct doctor_finding *finding)
{
    char seen[128] = "";
    for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
        int version = version_of(runtimes[i].program);
        size_t used = strlen(seen);
        if (version < 0)
            continue;
        if (version < runtimes[i].oldest) {
            doctor_say(finding, DOCTOR_WARNING, "use a newer one, or pass environment and mounts by hand",
                       "%s %d.%d ignores CDI names: containers that ask for a session by such a name run "
                       "without limits; %s accepts them",
                       runtimes[i].program, version / 100, version % 100, runtimes[i].text);
            return;
        }
        snprintf(seen + used, sizeof(seen) - used, "%s%s %d.%d", used ? ", " : "", runtimes[i].program,
                 version / 100, version % 100);
    }
    if (seen[0])
        doctor_say(finding, DOCTOR_OK, "", "%s", seen);
    else
        doctor_say(finding, DOCTOR_OK, "", "none is in PATH");
}
