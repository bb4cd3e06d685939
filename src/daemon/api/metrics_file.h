/* metrics_file.h - the samples of /metrics in a file, for collectors that read files. config.daemon.metrics_file names the
 * file, and the settings beside it say how it is written.
 *
 * The loop writes the samples into memory piece by piece, and a helper thread adds them to FILE. When FILE would grow above
 * metrics_file_bytes, it becomes FILE.1 first. If the file cannot be written, the daemon says so once, until it can be
 * written again; the samples of that time are lost. */
#pragma once

#include "base/error.h"

struct daemon;

/* Follow the settings from now on. */
int metrics_file_start(struct daemon *daemon, struct error *error);
void metrics_file_stop(struct daemon *daemon);
