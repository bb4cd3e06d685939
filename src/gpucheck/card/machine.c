/* machine.c - describes this machine, as the figures of all other checks depend on it, and finds out whether entry
 * points are the same functions by both ways to them. */
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"

/* The first line of a file, or "". */
static const char *first_line(const char *path)
{
    static char line[256];
    line[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file && !fgets(line, sizeof(line), file))
        line[0] = '\0';
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* gVisor's kernel is a program of its own, which names itself in its log. */
static bool is_gvisor(void)
{
    enum { READ_ALL = 3 };
    static char log[1 << 16];
    int length = klogctl(READ_ALL, log, sizeof(log) - 1);
    if (length > 0)
        log[length] = '\0';
    return length > 0 && strstr(log, "gVisor");
}

static void tell_library(const char *figure_name, const char *soname, const char *symbol)
{
    Dl_info info;
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL),
         *function = library ? dlsym(library, symbol) : NULL;
    figure_text(figure_name, "%s", function && dladdr(function, &info) ? info.dli_fname : "none");
}

void check_machine(const struct check *check)
{
    struct utsname kernel;
    uname(&kernel);
    figure_text("kernel", "%s %s", kernel.release, kernel.machine);
    figure_text("libc", "%s", gnu_get_libc_version());
    figure("cpus", (double)sysconf(_SC_NPROCESSORS_ONLN), "count");
    figure_text("sandbox", "%s", is_gvisor() ? "gVisor" : "none seen");
    figure_text("in_a_container", "%s",
                access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
                        getenv("KUBERNETES_SERVICE_HOST")
                    ? "yes"
                    : "no sign of one");
    const char *module = first_line("/proc/driver/nvidia/version");
    figure_text("kernel_module", "%s", *module ? module : "none seen");
    tell_library("libcuda", "libcuda.so.1", "cuInit");
    tell_library("libnvidia-ml", "libnvidia-ml.so.1", "nvmlInit_v2");
    figure_text("driver_version", "%s", nvml_driver_version());
}

/* --- Entry points ---------------------------------------------------------------------------------- */

/* The functions of all entry points by the current route. */
static void note_functions(void **functions)
{
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        functions[id] = driver_has((enum cuda_entry_id)id) ? driver_function((enum cuda_entry_id)id) : NULL;
}

/* entries: opens a context, and finds every entry point in both ways. */
void part_entries(const char *argument)
{
    open_context();
    if (driver_open(DRIVER_BY_GET_PROC_ADDRESS))
        part_tell("no cuGetProcAddress");
    else
        part_tell("ready");
    part_listen();
}

void check_entry_points(const struct check *check)
{
    static void *exported[CUDA_ENTRY_COUNT], *resolved[CUDA_ENTRY_COUNT];
    unsigned by_symbol = 0, by_name = 0, differ = 0, only_by_name = 0;
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    note_functions(exported);
    if ((reason = driver_open(DRIVER_BY_GET_PROC_ADDRESS)))
        not_run("%s", reason);
    note_functions(resolved);
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        by_symbol += exported[id] != NULL;
        by_name += resolved[id] != NULL;
        only_by_name += resolved[id] && !exported[id];
        if (exported[id] && resolved[id] && exported[id] != resolved[id]) {
            differ++;
            detail(cuda_entries[id].symbol, "cuGetProcAddress gives another function than dlsym");
        }
    }
    figure("in_our_table", CUDA_ENTRY_COUNT, "count");
    figure("exported", by_symbol, "count");
    figure("by_cuGetProcAddress", by_name, "count");
    figure("by_cuGetProcAddress_alone", only_by_name, "count");
    figure("of_two_addresses", differ, "count");

    struct part part;
    part_start(&part, PART_IN_SESSION, "entries", "");
    part_hear(&part);
    uint64_t unknown = session_unknown_pointers(part.session);
    part_end(&part);
    figure("known_by_name_alone_in_a_session", (double)unknown, "count");
}
