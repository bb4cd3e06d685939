/* record.h - what the prolog left for a job on a node: RUNTIME_DIR/slurm/JOB.NODE, root's alone.
 *
 * A job's tasks are told by it what they have; whatever a step's own options and environment say is not believed.
 *
 * environment   what to set for the tasks; absent: there is none
 * failure       why the job got no session; its tasks are refused with it
 * ending        the epilog could not end the session; the next prolog tries again */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "slurm/plugin.h"

int record_write(const struct plugin *plugin, const char *job, const json_t *record, struct error *error);
/* NULL: there is none. The caller drops it. */
json_t *record_read(const struct plugin *plugin, const char *job);
void record_remove(const struct plugin *plugin, const char *job);
/* Call `each` with the name, JOB.NODE, of every record of this node. */
void record_for_each(const struct plugin *plugin,
                     void (*each)(const struct plugin *plugin, const char *job, const json_t *record));
