#include "cli/path_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Append the entries of `list` other than `entry` to `out`, which may be empty. */
static void append_others(char *out, const char *list, const char *entry, const char *separators)
{
    size_t entry_length = strlen(entry);
    char before = separators[0], *at = out + strlen(out);
    for (bool any = at != out;;) {
        size_t length = strcspn(list, separators);
        if (length != entry_length || memcmp(list, entry, length) != 0) {
            if (any)
                *at++ = before;
            memcpy(at, list, length);
            at += length;
            any = true;
        }
        list += length;
        if (*list == '\0')
            break;
        before = *list++;
    }
    *at = '\0';
}

static int compose(char **result, const char *first, const char *list, const char *entry,
                   const char *separators, struct error *error)
{
    char *composed = calloc(1, strlen(first) + (list ? strlen(list) : 0) + 2);
    if (!composed)
        return error_set_errno(error, ENOMEM, "cannot compose a list of libraries");
    strcpy(composed, first);
    if (list && *list)
        append_others(composed, list, entry, separators);
    *result = composed;
    return 0;
}

int path_list_prepend(char **result, const char *list, const char *entry, const char *separators,
                      struct error *error)
{
    if (entry[strcspn(entry, separators)] != '\0')
        return error_set(error, EINVAL, NULL,
                         "'%.300s' has a blank, ':' or ';', which ends a name for the loader; install GPU "
                         "Slice in another folder",
                         entry);
    return compose(result, entry, list, entry, separators, error);
}

int path_list_remove(char **result, const char *list, const char *entry, const char *separators,
                     struct error *error)
{
    return compose(result, "", list, entry, separators, error);
}
