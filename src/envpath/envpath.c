#include "envpath/envpath.h"

#include <stddef.h>
#include <stdlib.h>

#include "envpath/merge.h"

/* What shells and container runtimes search when PATH is unset: a PATH of the added entries alone would take it from
 * them. */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Of the rows of a list, a later one's entries stand further from the list's own. */
static const struct {
    const char *list, *separators, *variable;
    bool in_front;
    const char *when_unset; /* what the entries are added to then */
} rows[] = {
    {"PATH", ":", "GPUSLICE_PATH", false, DEFAULT_PATH},
    {"PATH", ":", "TF_PATH", false, DEFAULT_PATH},
    {"PATH", ":", "GPUSLICE_PREPEND_PATH", true, DEFAULT_PATH},
    {"PATH", ":", "TF_PREPEND_PATH", true, DEFAULT_PATH},
    {"LD_PRELOAD", ": ", "GPUSLICE_LD_PRELOAD", false, NULL},
    {"LD_PRELOAD", ": ", "TF_LD_PRELOAD", false, NULL},
    {"LD_PRELOAD", ": ", "GPUSLICE_PREPEND_LD_PRELOAD", true, NULL},
    {"LD_PRELOAD", ": ", "TF_PREPEND_LD_PRELOAD", true, NULL},
    {"LD_LIBRARY_PATH", ":;", "GPUSLICE_LD_LIBRARY_PATH", false, NULL},
    {"LD_LIBRARY_PATH", ":;", "TF_LD_LIBRARY_PATH", false, NULL},
    {"LD_LIBRARY_PATH", ":;", "GPUSLICE_PREPEND_LD_LIBRARY_PATH", true, NULL},
    {"LD_LIBRARY_PATH", ":;", "TF_PREPEND_LD_LIBRARY_PATH", true, NULL},
};

void envpath_apply(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *more = getenv(rows[i].variable);
        if (!more)
            continue;
        const char *list = getenv(rows[i].list);
        char *merged =
            merge_lists(list ? list : rows[i].when_unset, more, rows[i].separators, rows[i].in_front);
        if (merged)
            setenv(rows[i].list, merged, 1);
        free(merged);
    }
}
