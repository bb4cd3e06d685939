/* merge.h - add entries to lists of paths. */
#pragma once

#include <stdbool.h>

/* `list` (NULL: empty) followed by those entries of `more` that it lacks, or, with `in_front`, preceded by them, in
 * their order. Any of `separators` may separate entries; the first one is written. The entries of `list` stay as
 * they are. Empty entries of `more` are left out, as the loader and the shell take them for the current folder.
 * Returns a string that the caller frees; NULL if nothing is missing or memory is short. */
char *merge_lists(const char *list, const char *more, const char *separators, bool in_front);
