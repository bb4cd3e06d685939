/* plugin.h - the SPANK plug-in: its arguments in plugstack.conf, and where things are.
 *
 * prolog, epilog   once a job and node, as root: the session is made and ended
 * step             every step and task: what the tasks get, and the last look before they start
 *
 * slurmd's own process never speaks to the daemon: these contexts are processes of their own. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct plugin {
    const char *runtime_dir; /* the daemon's; NULL: the system daemon's */
    const char *library;     /* libgpuslice.so */
    const char
        *default_wish; /* of jobs that ask for nothing; NULL: they are left alone; "deny": no GPU memory */
    bool simulated;
    char records_dir[PATH_MAX];
    char node[256];
};

/* Read plugstack.conf's arguments. */
int plugin_read(struct plugin *plugin, int count, char **arguments, struct error *error);

/* JOB.NODE: what a job is called here, and "slurm-JOB.NODE" its session. */
#define PLUGIN_JOB_TEXT 64
void plugin_job_name(const struct plugin *plugin, unsigned job, char name[static PLUGIN_JOB_TEXT]);

/* Make the session of a job that asks for `wish` (NULL: nothing), and leave the record. What fails is in the record. */
void plugin_begin_job(const struct plugin *plugin, const char *job, uid_t owner, const char *wish);
void plugin_end_job(const struct plugin *plugin, const char *job);
/* End what earlier epilogs could not. */
void plugin_sweep(const struct plugin *plugin);
