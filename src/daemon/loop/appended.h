/* appended.h - a file that the daemon adds to: the log, the audit file, the metrics.
 *
 * Its path is in a folder that may not be the daemon's alone, so what is found there is looked at before it is used. It
 * must be a plain file of the daemon's user, with one name: no link, no FIFO that nobody reads, no file of another user.
 * It has a largest size. A full one becomes FILE.1, in place of the one before, and FILE begins anew. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Open FILE, or make it with mode 0600. Returns the descriptor, and in `*bytes` how long it is; -EPERM: what is there is
 * not a file of ours. Never waits for another process. */
int appended_open(const char *path, off_t *bytes, struct error *error);

/* FILE becomes FILE.1, and a new FILE is opened. If that fails, a later call tries again: FILE may have its new name by
 * then. */
int appended_open_anew(const char *path, off_t *bytes, struct error *error);

/* Add the whole text to FILE or nothing, so that a reader finds whole lines; a FILE that would grow above `bytes_max`
 * becomes FILE.1 first. Waits for the disk. */
int appended_add(const char *path, uint64_t bytes_max, const char *text, size_t length, struct error *error);
