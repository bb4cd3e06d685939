/* record.h - what the prolog leaves for a job on a node, in RUNTIME_DIR/slurm/JOB.NODE, which only root can read.
 *
 * It alone decides what a job's tasks get. Options and environment of a step are not trusted.
 *
 * environment   what to set for the tasks; absent: nothing
 * failure       why the job got no session; its tasks are refused with this message
 * ending        the epilog could not end the session; the next prolog tries again */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "slurm/plugin.h"

int record_write(const struct plugin *plugin, const char *job, const json_t *record, struct error *error);
/* NULL if there is none. The caller drops the result. */
json_t *record_read(const struct plugin *plugin, const char *job);
void record_remove(const struct plugin *plugin, const char *job);
/* Call `each` with the name, JOB.NODE, of every record of this node. */
void record_for_each(const struct plugin *plugin,
                     void (*each)(const struct plugin *plugin, const char *job, const json_t *record));
