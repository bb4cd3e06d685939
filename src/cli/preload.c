#include "cli/preload.h"

#include <limits.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/paths.h"
#include "cli/path_list.h"

#define PRELOAD_SEPARATORS ": "
#define LIBRARY_PATH_SEPARATORS ":;"

/* Put `entry` first in a variable's list, or, with `wanted` false, take it out. */
static int edit_list(const char *variable, const char *entry, const char *separators, bool wanted,
                     struct error *error)
{
    cleanup_free char *list = NULL;
    const char *old = getenv(variable);
    int result = wanted ? path_list_prepend(&list, old, entry, separators, error)
                        : path_list_remove(&list, old, entry, separators, error);
    if (result < 0)
        return result;
    if (wanted || old)
        setenv(variable, list, 1);
    return 0;
}

int preload_set(bool simulated, struct error *error)
{
    char interceptor[PATH_MAX], drivers[PATH_MAX];
    int result = paths_library("libgpuslice.so", interceptor, error);
    if (result < 0 || (result = edit_list("LD_PRELOAD", interceptor, PRELOAD_SEPARATORS, true, error)) < 0)
        return result;
    if (simulated) {
        result = paths_library("simulated", drivers, error);
        return result < 0 ? result
                          : edit_list("LD_LIBRARY_PATH", drivers, LIBRARY_PATH_SEPARATORS, true, error);
    }
    /* A run on real GPUs from within a simulated one must not find the simulated driver. */
    if (paths_library("simulated", drivers, NULL) == 0)
        return edit_list("LD_LIBRARY_PATH", drivers, LIBRARY_PATH_SEPARATORS, false, error);
    return 0;
}
