/* store_backup.h - a copy of the state file, also while a daemon writes it: `gpusliced --backup`. */
#pragma once

#include "base/error.h"
#include "base/paths.h"

/* Make the file `to`, which must not exist, with mode 0600: a whole state file as of one moment. -EEXIST, -ENOENT where there is no
 * state file; on failure there is no file. */
int store_backup(const struct paths *paths, const char *to, struct error *error);
