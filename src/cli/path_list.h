/* path_list.h - values of LD_PRELOAD and LD_LIBRARY_PATH with one entry put first, or taken out. */
#pragma once

#include "base/error.h"

/* Write a new list: `entry`, then `list` without any `entry` it had, so that doing it twice changes nothing.
 * `separators` are the characters that may separate entries (LD_PRELOAD: ": ", LD_LIBRARY_PATH: ":;"); the first
 * one is written after `entry`. The other entries keep their order and separators. `list` may be NULL. The caller
 * frees the result. -EINVAL for an entry that contains a separator, which the loader could not read. */
int path_list_prepend(char **result, const char *list, const char *entry, const char *separators,
                      struct error *error);

/* The same without `entry`: the rest of `list`, possibly "". */
int path_list_remove(char **result, const char *list, const char *entry, const char *separators,
                     struct error *error);
