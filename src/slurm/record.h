/* record.h - what the prolog leaves for a job on a node, in RUNTIME_DIR/slurm/JOB.NODE, which only root can read.
 *
 * It alone decides what a job's tasks get. Options and environment of a step are not trusted.
 *
 * environment   what to set for the tasks; absent: nothing
 * failure       why the job got no session; its tasks are refused with this message
 *
 * A record is written before its session is made, and removed when the epilog has tried to end the session. So a
 * session without a record, and without programs, belongs to a job that has left the node. */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "base/error.h"

/* `folder`: the plug-in's `records_dir`. */
int record_write(const char *folder, const char *job, const json_t *record, struct error *error);
/* Also for a record that cannot be read. */
bool record_exists(const char *folder, const char *job);
/* NULL if there is none that can be read. The caller drops the result. */
json_t *record_read(const char *folder, const char *job);
void record_remove(const char *folder, const char *job);
