/* merge.h - lists of paths with more entries. */
#pragma once

#include <stdbool.h>

/* `list` (NULL: none) with those entries of `more` that it lacks behind it, or, with `in_front`, before it; they keep
 * their order. `separators` may stand between entries, and the first of them is written. Entries of `list` stay as they
 * are; empty ones in `more` are left out, as the loader and the shell take them for the current folder. Returns NULL
 * when nothing is missing (or no memory is to be had), else a string that the caller frees. */
char *merge_lists(const char *list, const char *more, const char *separators, bool in_front);
