#include "envpath/envpath.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "envpath/merge.h"

static const struct {
    const char *name, *separators;
} lists[] = {
    {"PATH", ":"},
    {"LD_PRELOAD", ": "},
    {"LD_LIBRARY_PATH", ":;"},
};

/* Entries of the first come to stand nearer to the list's own. */
static const struct {
    const char *prefix;
    bool in_front;
} sources[] = {
    {"GPUSLICE_", false},
    {"TF_", false},
    {"GPUSLICE_PREPEND_", true},
    {"TF_PREPEND_", true},
};

void envpath_apply(void)
{
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (size_t j = 0; j < sizeof(sources) / sizeof(sources[0]); j++) {
            char name[64];
            snprintf(name, sizeof(name), "%s%s", sources[j].prefix, lists[i].name);
            const char *more = getenv(name);
            char *merged =
                more ? merge_lists(getenv(lists[i].name), more, lists[i].separators, sources[j].in_front)
                     : NULL;
            if (merged)
                setenv(lists[i].name, merged, 1);
            free(merged);
        }
    }
}
