#include "envpath/envpath.h"

#include <stddef.h>
#include <stdlib.h>

#include "envpath/merge.h"

/* Of the rows of a list, a later one's entries stand further from the list's own. */
static const struct {
    const char *list, *separators, *variable;
    bool in_front;
} rows[] = {
    {"PATH", ":", "GPUSLICE_PATH", false},
    {"PATH", ":", "TF_PATH", false},
    {"PATH", ":", "GPUSLICE_PREPEND_PATH", true},
    {"PATH", ":", "TF_PREPEND_PATH", true},
    {"LD_PRELOAD", ": ", "GPUSLICE_LD_PRELOAD", false},
    {"LD_PRELOAD", ": ", "TF_LD_PRELOAD", false},
    {"LD_PRELOAD", ": ", "GPUSLICE_PREPEND_LD_PRELOAD", true},
    {"LD_PRELOAD", ": ", "TF_PREPEND_LD_PRELOAD", true},
    {"LD_LIBRARY_PATH", ":;", "GPUSLICE_LD_LIBRARY_PATH", false},
    {"LD_LIBRARY_PATH", ":;", "TF_LD_LIBRARY_PATH", false},
    {"LD_LIBRARY_PATH", ":;", "GPUSLICE_PREPEND_LD_LIBRARY_PATH", true},
    {"LD_LIBRARY_PATH", ":;", "TF_PREPEND_LD_LIBRARY_PATH", true},
};

void envpath_apply(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *more = getenv(rows[i].variable);
        if (!more)
            continue;
        char *merged = merge_lists(getenv(rows[i].list), more, rows[i].separators, rows[i].in_front);
        if (merged)
            setenv(rows[i].list, merged, 1);
        free(merged);
    }
}
