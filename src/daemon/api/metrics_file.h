/* metrics_file.h - the samples of /metrics in a file, for collectors that read files: config.daemon.metrics_file says
 * which, and what goes with it.
 *
 * The loop writes the samples into memory piece by piece. A helper thread adds them to FILE, and when that would be
 * more than metrics_file_bytes, FILE becomes FILE.1 first. A file that cannot be written is told once, until it can
 * be again; those samples are lost. */
#pragma once

#include "base/error.h"

struct daemon;

/* Follow the settings, from now on. */
int metrics_file_start(struct daemon *daemon, struct error *error);
void metrics_file_stop(struct daemon *daemon);
