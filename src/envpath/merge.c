#include "envpath/merge.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool list_has(const char *list, const char *entry, size_t length, const char *separators)
{
    while (*list) {
        size_t here = strcspn(list, separators);
        if (here == length && memcmp(list, entry, length) == 0)
            return true;
        list += here;
        list += *list != '\0';
    }
    return false;
}

/* Write to `out` the entries of `more` that `list` lacks, each once. */
static void collect_missing(char *out, const char *list, const char *more, const char *separators)
{
    char *at = out;
    *at = '\0';
    while (*more) {
        size_t length = strcspn(more, separators);
        if (length > 0 && !list_has(list, more, length, separators) &&
            !list_has(out, more, length, separators)) {
            if (at != out)
                *at++ = separators[0];
            memcpy(at, more, length);
            at += length;
            *at = '\0';
        }
        more += length;
        more += *more != '\0';
    }
}

char *merge_lists(const char *list, const char *more, const char *separators, bool in_front)
{
    list = list ? list : "";
    size_t list_bytes = strlen(list), more_bytes = strlen(more);
    char *missing = malloc(more_bytes + 1), *merged = malloc(list_bytes + more_bytes + 2);
    const char between[] = {separators[0], '\0'};
    bool is_changed = false;
    if (missing && merged) {
        collect_missing(missing, list, more, separators);
        is_changed = *missing != '\0';
        strcpy(merged, in_front ? missing : list);
        if (*list)
            strcat(merged, between);
        strcat(merged, in_front ? list : missing);
    }
    free(missing);
    if (is_changed)
        return merged;
    free(merged);
    return NULL;
}
