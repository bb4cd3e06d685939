/* surroundings.c - what the machine around the card has to be like before anything else is asked of it: modes,
 * figures, huge pages, and a line of PyTorch. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "gpucheck/checks.h"
#include "gpucheck/micro/micro.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"
#include "gpucheck/python.h"

/* --- Modes and figures ------------------------------------------------------------------------------------ */

static const char *compute_mode_name(int mode)
{
    switch (mode) {
    case CU_COMPUTEMODE_DEFAULT:
        return "DEFAULT";
    case CU_COMPUTEMODE_PROHIBITED:
        return "PROHIBITED";
    case CU_COMPUTEMODE_EXCLUSIVE_PROCESS:
        return "EXCLUSIVE_PROCESS";
    default:
        return "one that is not known";
    }
}

/* Asked before any context is made: where the mode forbids sharing, everything else fails for that reason alone. */
void check_modes(const struct check *check)
{
    int mode;
    (void)check;
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    must(cuInit(0));
    must(cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
    figure_text("compute_mode", "%s", compute_mode_name(mode));
    figure_text("persistence", "%s", nvml_persistence());
    if (mode != CU_COMPUTEMODE_DEFAULT)
        fail_and_stop(
            "the GPU's compute mode is %s, and programs share a GPU only in the mode DEFAULT: its owner "
            "sets it with 'nvidia-smi -c DEFAULT'",
            compute_mode_name(mode));
}

/* The word in brackets, of a file like "always [madvise] never". */
static const char *chosen_word(const char *path)
{
    static char line[128];
    FILE *file = fopen(path, "re");
    char *begin = file && fgets(line, sizeof(line), file) ? strchr(line, '[') : NULL;
    char *end = begin ? strchr(begin, ']') : NULL;
    if (file)
        fclose(file);
    if (!end)
        return "not told";
    *end = '\0';
    return begin + 1;
}

/* Bytes of a row of /proc/meminfo. */
static double meminfo(const char *name)
{
    char line[128];
    double kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            kib = strtod(line + strlen(name) + 1, NULL);
    if (file)
        fclose(file);
    return kib * 1024;
}

void check_host_memory(const struct check *check)
{
    (void)check;
    figure("total", meminfo("MemTotal"), "bytes");
    figure("available", meminfo("MemAvailable"), "bytes");
    figure_text("huge_pages_of_shared_memory", "%s",
                chosen_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
    figure_text("huge_pages", "%s", chosen_word("/sys/kernel/mm/transparent_hugepage/enabled"));
}

/* Whether NVML tells what the GPU has and what this process has of it: the daemon's account rests on both. */
void check_memory_figures(const struct check *check)
{
    const size_t held = 64 * MIB;
    uint64_t nvml_total, before = 0, own_before, own;
    CUdeviceptr memory;
    size_t total;
    (void)check;
    open_context();
    must(cuDeviceTotalMem_v2(&total, 0));
    figure("driver_total", (double)total, "bytes");
    bool is_told = nvml_tells_memory(&nvml_total), is_own_told = nvml_own_bytes(&own_before);
    figure_text("of_the_gpu", "%s", yes_or_no(is_told));
    figure_text("of_one_process", "%s", yes_or_no(is_own_told));
    if (is_told)
        before = nvml_used_bytes(0);
    must(cuMemAlloc_v2(&memory, held));
    if (is_told) {
        figure("nvml_total", (double)nvml_total, "bytes");
        figure("nvml_sees_of_64MiB", (double)(int64_t)(nvml_used_bytes(0) - before), "bytes");
    } else {
        could_not_try("nvml_sees_of_64MiB", "NVML does not tell what this GPU has");
    }
    if (is_own_told && nvml_own_bytes(&own))
        figure("nvml_sees_of_the_process", (double)(int64_t)(own - own_before), "bytes");
}

/* --- The command that looks for mistakes --------------------------------------------------------------------- */

void check_doctor(const struct check *check)
{
    static char output[16384];
    char path[PATH_MAX];
    unsigned warnings = 0;
    (void)check;
    find_program("gpuslice", path);
    char *words[] = {path, "doctor", settings.simulated ? "--simulated" : NULL, NULL};
    int status = program_run(words, 0, true, output, sizeof(output));
    for (char *rest = NULL, *line = strtok_r(output, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "problem", 7) == 0)
            fail("%s", line);
        if (strncmp(line, "warning", 7) == 0) {
            char name[32];
            snprintf(name, sizeof(name), "warning_%u", ++warnings);
            detail(name, "%s", line);
        }
    }
    figure("warnings", warnings, "count");
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
        fail("'gpuslice doctor' did not end well");
}

/* --- PyTorch ----------------------------------------------------------------------------------------------- */

#define TORCH_LINE                                                                                           \
    "import sys\n"                                                                                           \
    "try:\n import torch\n"                                                                                  \
    "except ImportError as error:\n print('none', error); sys.exit()\n"                                      \
    "if not torch.cuda.is_available(): print('none', 'it sees no GPU'); sys.exit()\n"                        \
    "print('sum', int(torch.arange(1000, device='cuda').sum()), torch.__version__)\n"

/* Whether PyTorch runs at all in a session, before minutes are spent on what it does there. */
void check_torch_line(const struct check *check)
{
    char output[2048], version[64];
    int sum;
    (void)check;
    need_python();
    char *words[] = {"python3", "-c", TORCH_LINE, NULL};
    if (program_run(words, 0, true, output, sizeof(output)) != 0 || sscanf(output, "sum %d", &sum) != 1)
        not_run("PyTorch does not run here outside of sessions: %.300s", output);
    program_run(words, 2 * CHECK_QUOTA_BYTES, true, output, sizeof(output));
    const char *answer = strstr(output, "sum ");
    if (!answer || sscanf(answer, "sum %d %63s", &sum, version) != 2)
        fail_and_end("in a session PyTorch says: %.600s", output);
    figure_text("version", "%s", version);
    if (sum != 499500)
        fail("in a session PyTorch adds 0 to 999 up to %d", sum);
}
