/* Checks of the interceptor's file, and of the program into which it is to be loaded. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/doctor_run.h"
#include "cli/starters.h"
#include "digest_cubins_names.h"

#define SCRIPTS_MAX 4 /* as many interpreters as the kernel follows */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "which ELF machine is this?"
#endif

/* What of the library's code for GPUs was assembled when it was built. */
static const char *code_for_gpus(void)
{
    return *DIGEST_CUBINS_FOR ? "code for compute capability " DIGEST_CUBINS_FOR " is built in"
                              : "drivers compile its code for GPUs";
}

void doctor_library(const struct doctor *doctor, struct doctor_finding *finding)
{
    char path[PATH_MAX];
    struct statvfs system;
    struct error error;
    if (paths_library("libgpuslice.so", path, &error) < 0)
        doctor_say(finding, DOCTOR_PROBLEM, "", "%s", error.message);
    else if (access(path, R_OK) != 0)
        doctor_say(finding, DOCTOR_PROBLEM, "make it and its folders readable for all",
                   "%s cannot be read: %s", path, strerror(errno));
    else if (statvfs(path, &system) == 0 && (system.f_flag & ST_NOEXEC))
        doctor_say(finding, DOCTOR_PROBLEM, "install GPU Slice elsewhere, or mount that without noexec",
                   "%s is on a file system mounted noexec: programs start without it", path);
    else if (strpbrk(path, " :"))
        doctor_say(finding, DOCTOR_PROBLEM, "install GPU Slice in a path without them",
                   "'%s' has a space or a colon, which LD_PRELOAD cannot hold", path);
    else
        doctor_say(finding, DOCTOR_OK, "", "%s; %s", path, code_for_gpus());
}

/* --- Which file is run ----------------------------------------------------------------------------- */

static bool find_in_path(const char *name, char path[static PATH_MAX])
{
    const char *at = getenv("PATH");
    if (strchr(name, '/')) {
        snprintf(path, PATH_MAX, "%s", name);
        return access(path, X_OK) == 0;
    }
    for (at = at ? at : "/usr/local/bin:/usr/bin:/bin"; *at; at += strspn(at, ":")) {
        int length = (int)strcspn(at, ":");
        snprintf(path, PATH_MAX, "%.*s/%s", length, at, name);
        if (access(path, X_OK) == 0)
            return true;
        at += length;
    }
    return false;
}

/* The interpreter from the file's first line; false when the file is not a script. For `env NAME` it is NAME. */
static bool script_interpreter(const char *file, char interpreter[static PATH_MAX])
{
    char line[512], program[256], argument[256];
    cleanup_file FILE *script = fopen(file, "re");
    if (!script || !fgets(line, sizeof(line), script) || strncmp(line, "#!", 2) != 0)
        return false;
    int words = sscanf(line + 2, " %255s %255s", program, argument);
    const char *base = strrchr(program, '/');
    bool is_env = words == 2 && strcmp(base ? base + 1 : program, "env") == 0 && argument[0] != '-';
    return words >= 1 && find_in_path(is_env ? argument : program, interpreter);
}

struct elf {
    bool is_elf, is_own_machine, has_interpreter;
    char interpreter[256];
};

static void read_elf(const char *file, struct elf *elf)
{
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr head;
    *elf = (struct elf){.is_elf = false};
    if (fd < 0 || read(fd, &head, sizeof(head)) != sizeof(head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return;
    elf->is_elf = true;
    elf->is_own_machine = head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_machine == OWN_MACHINE;
    for (unsigned i = 0; elf->is_own_machine && i < head.e_phnum; i++) {
        Elf64_Phdr part;
        ssize_t length = sizeof(elf->interpreter) - 1;
        if (pread(fd, &part, sizeof(part), (off_t)(head.e_phoff + i * sizeof(part))) != sizeof(part))
            return;
        if (part.p_type != PT_INTERP)
            continue;
        elf->has_interpreter = true;
        length = pread(fd, elf->interpreter, part.p_filesz < (size_t)length ? part.p_filesz : (size_t)length,
                       (off_t)part.p_offset);
        elf->interpreter[length > 0 ? length : 0] = '\0';
    }
}

/* --- Whether the loader loads the interceptor ------------------------------------------------------ */

/* Whether `file` holds the text `wanted`. */
static bool file_holds(const char *file, const char *wanted)
{
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0 || status.st_size == 0)
        return false;
    size_t bytes = (size_t)status.st_size;
    void *content = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (content == MAP_FAILED)
        return false;
    bool holds = memmem(content, bytes, wanted, strlen(wanted)) != NULL;
    munmap(content, bytes);
    return holds;
}

/* NVIDIA's CUDA runtime refuses a driver that is not NVIDIA's. Whether the program does without NVIDIA's runtime,
 * as far as can be seen from outside: `loaded` is what the program's loader would load; a runtime that is linked
 * into the program leaves the names of its errors and of the driver's library in its data. */
static bool check_runtime(const char *file, const char *loaded, struct doctor_finding *finding)
{
    char drivers[PATH_MAX];
    const char *shared = strstr(loaded, "libcudart.so");
    const char *path = shared ? strstr(shared, "=> ") : NULL;
    if (path && paths_library("simulated", drivers, NULL) == 0 &&
        strncmp(path + 3, drivers, strlen(drivers)) != 0) {
        doctor_say(finding, DOCTOR_PROBLEM, "remove the run path to NVIDIA's runtime from it (chrpath -d)",
                   "%s loads NVIDIA's CUDA runtime %.*s, which refuses simulated GPUs", file,
                   (int)strcspn(path + 3, " \n"), path + 3);
        return false;
    }
    if (!shared && file_holds(file, "cudaErrorMemoryAllocation") && file_holds(file, "libcuda.so.1")) {
        doctor_say(finding, DOCTOR_PROBLEM, "build it with 'nvcc -cudart shared', or run it on a card",
                   "NVIDIA's CUDA runtime is linked into %s, and refuses simulated GPUs", file);
        return false;
    }
    return true;
}

/* Runs the loader, not the program: with --list the loader ends before any code of the program runs. */
static void try_preload(const struct doctor *doctor, const char *file, const struct elf *elf,
                        struct doctor_finding *finding)
{
    char library[PATH_MAX], text[32768];
    char *const words[] = {(char *)elf->interpreter, "--list", (char *)file, NULL};
    if (paths_library("libgpuslice.so", library, NULL) < 0) {
        doctor_say(finding, DOCTOR_PROBLEM, "install it again", "GPU Slice's interceptor is missing");
        return;
    }
    int status = doctor_run(words, doctor->simulated ? DOCTOR_IN_SIMULATED_SESSION : DOCTOR_IN_SESSION, text,
                            sizeof(text));
    const char *old = strstr(text, "GLIBC_"), *ours = strstr(text, library);
    bool is_refused = strstr(text, "cannot be preloaded") != NULL;
    if (status == 0 && ours && !is_refused && doctor->simulated && !check_runtime(file, text, finding))
        return;
    char *line = strstr(text, "ERROR: ");
    line = line ? line : text;
    line[strcspn(line, "\n")] = '\0';
    if (status == 0 && ours && !is_refused)
        doctor_say(finding, DOCTOR_OK, "", "%s is loaded with the interceptor, as its loader %s says", file,
                   elf->interpreter);
    else if (old && strstr(text, "not found"))
        doctor_say(finding, DOCTOR_PROBLEM, "use a system with glibc 2.17 or newer",
                   "%s has a C library that is too old: %.200s", file, line);
    else
        doctor_say(finding, DOCTOR_PROBLEM, "fix what the loader complains about",
                   "the loader %s does not put the interceptor into %s: %.200s", elf->interpreter, file,
                   line);
}

/* pyenv and its like put a script before each program, which looks for the program itself when it runs. */
static bool is_shim(const char *file)
{
    char text[512];
    cleanup_file FILE *script = fopen(file, "re");
    if (!script)
        return false;
    text[fread(text, 1, sizeof(text) - 1, script)] = '\0';
    return strncmp(text, "#!", 2) == 0 &&
           (strstr(text, "pyenv") || strstr(text, "rbenv") || strstr(text, "asdf"));
}

/* Whether `program` reads a script whose path is its first operand. */
static bool reads_script(const char *program)
{
    static const char *const interpreters[] = {"python", "bash", "sh",   "dash",
                                               "perl",   "ruby", "node", "julia"};
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    for (size_t i = 0; i < sizeof(interpreters) / sizeof(interpreters[0]); i++) {
        size_t length = strlen(interpreters[i]);
        if (strncmp(name, interpreters[i], length) == 0 &&
            name[length + strspn(name + length, "0123456789.")] == '\0')
            return true;
    }
    return false;
}

/* The script that the command names and that does not exist; NULL: there is none. Options may have values of their own, so
 * the script is looked for right behind the program alone. */
static const char *missing_script(char *const *command)
{
    const char *script = command && reads_script(command[0]) ? command[1] : NULL;
    return script && script[0] != '-' && access(script, F_OK) < 0 && errno == ENOENT ? script : NULL;
}

/* Whether the command's programs are started by another than it. */
static bool tell_of_starter(const struct starter *starter, struct doctor_finding *finding)
{
    if (starter && starter->where)
        doctor_say(finding, DOCTOR_PROBLEM, starter->instead,
                   "%s starts programs %s: they run without the interceptor, unlimited", starter->name,
                   starter->where);
    else if (starter)
        doctor_say(finding, DOCTOR_PROBLEM,
                   "run it by 'gpuslice run --container', which gives the container the session",
                   "%s starts programs in containers, which do not get the session by themselves",
                   starter->name);
    return starter != NULL;
}

void doctor_program(const struct doctor *doctor, struct doctor_finding *finding)
{
    char file[PATH_MAX], interpreter[PATH_MAX];
    const char *name = doctor->command ? doctor->command[0] : "sh";
    struct stat status;
    struct elf elf;
    if (doctor->command && tell_of_starter(starter_used(doctor->command), finding))
        return;
    if (!find_in_path(name, file)) {
        doctor_say(finding, DOCTOR_PROBLEM, "give a program in PATH or a path to one",
                   "'%.200s' does not exist or is not executable", name);
        return;
    }
    const char *missing = missing_script(doctor->command);
    if (missing) {
        doctor_say(finding, DOCTOR_PROBLEM, "give its path as seen from this folder",
                   "the script '%.200s' does not exist", missing);
        return;
    }
    if (is_shim(file)) {
        doctor_say(finding, DOCTOR_WARNING,
                   "check the program itself: gpuslice doctor -- \"$(pyenv which PROGRAM)\"",
                   "%s is a script that looks for the program when it runs; it passes the interceptor on",
                   file);
        return;
    }
    for (int i = 0; i < SCRIPTS_MAX && script_interpreter(file, interpreter); i++)
        strcpy(file, interpreter);
    read_elf(file, &elf);
    /* For a file with a capability or another user's rights the kernel sets AT_SECURE, and the loader drops
     * LD_PRELOAD. */
    if (stat(file, &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)))
        doctor_say(finding, DOCTOR_PROBLEM, "run another program",
                   "%s is %s: it runs without the interceptor, unlimited", file,
                   status.st_mode & S_ISUID ? "setuid" : "setgid");
    else if (getxattr(file, "security.capability", NULL, 0) > 0)
        doctor_say(finding, DOCTOR_PROBLEM, "run a program without them (getcap, setcap -r)",
                   "%s has file capabilities: it runs without the interceptor, unlimited", file);
    else if (!elf.is_elf)
        doctor_say(finding, DOCTOR_PROBLEM, "give the program that runs in the end",
                   "%s is neither an ELF program nor a script", file);
    else if (!elf.is_own_machine)
        doctor_say(finding, DOCTOR_PROBLEM, "run a 64-bit program of this machine's kind",
                   "%s is of another architecture: it runs without the interceptor", file);
    else if (!elf.has_interpreter)
        doctor_say(finding, DOCTOR_PROBLEM, "link it dynamically (without -static)",
                   "%s is statically linked: nothing can be preloaded into it, and it runs unlimited", file);
    else if (strstr(elf.interpreter, "musl"))
        doctor_say(finding, DOCTOR_PROBLEM, "use an image with glibc (not Alpine)",
                   "%s uses musl, and the interceptor and NVIDIA's driver need glibc", file);
    else
        try_preload(doctor, file, &elf, finding);
}
