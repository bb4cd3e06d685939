/* path_list.h - values of LD_PRELOAD and LD_LIBRARY_PATH with our own entry first, or without it. */
#pragma once

#include "base/error.h"

/* Write a new list: `entry`, then `list` without any `entry` it had, so that doing it again changes nothing.
 * `separators` are the characters that may stand between entries (LD_PRELOAD: ": ", LD_LIBRARY_PATH: ":;"),
 * the first being the one written behind ours; the order and separators of other entries stay. `list` may be
 * NULL. The caller frees the result. Fails with -EINVAL for an entry that holds a separator: the loader could
 * not read it. */
int path_list_prepend(char **result, const char *list, const char *entry, const char *separators,
                      struct error *error);

/* The same without `entry`: what is left of `list`, possibly "". */
int path_list_remove(char **result, const char *list, const char *entry, const char *separators,
                     struct error *error);
