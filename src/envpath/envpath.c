#include "envpath/envpath.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "envpath/merge.h"

/* What shells and container runtimes search when PATH is unset. A PATH with only the added entries would replace
 * it. */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const struct {
    const char *list, *separators;
    const char *when_unset; /* the list to add to in that case */
} lists[] = {
    {"PATH", ":", DEFAULT_PATH},
    {"LD_PRELOAD", ": ", NULL},
    {"LD_LIBRARY_PATH", ":;", NULL},
};

/* The variables that add to a list: `before` and the list's name. Entries of a later row are further from the
 * list's own. */
static const struct {
    const char *before;
    bool in_front;
} additions[] = {
    {"GPUSLICE_", false},
    {"TF_", false},
    {"GPUSLICE_PREPEND_", true},
    {"TF_PREPEND_", true},
};

static void add_to(const char *name, const char *separators, const char *when_unset, const char *more,
                   bool in_front)
{
    const char *list = getenv(name);
    char *merged = merge_lists(list ? list : when_unset, more, separators, in_front);
    if (merged)
        setenv(name, merged, 1);
    free(merged);
}

void envpath_apply(void)
{
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (size_t j = 0; j < sizeof(additions) / sizeof(additions[0]); j++) {
            char variable[64];
            snprintf(variable, sizeof(variable), "%s%s", additions[j].before, lists[i].list);
            const char *more = getenv(variable);
            if (more)
                add_to(lists[i].list, lists[i].separators, lists[i].when_unset, more, additions[j].in_front);
        }
}
