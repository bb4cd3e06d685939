/* plugin.h - the SPANK plug-in: its arguments in plugstack.conf, and where things are.
 *
 * prolog, epilog   once for each job and node, as root: make and end the session
 * step             in every step and task: the tasks' environment, and the last check before they start
 *
 * slurmd's own process never talks to the daemon: prolog, epilog and step run in processes of their own. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct plugin {
    const char *runtime_dir; /* the daemon's folder; NULL: the system daemon's */
    const char *library;     /* libgpuslice.so */
    /* for jobs that ask for nothing; NULL: they are left alone; "deny": no GPU memory */
    const char *default_wish;
    bool simulated;
    char records_dir[PATH_MAX];
    char node[256];
};

/* Read plugstack.conf's arguments. */
int plugin_read(struct plugin *plugin, int count, char **arguments, struct error *error);

/* JOB.NODE: the job's name here; the session's is "slurm-JOB.NODE". */
#define PLUGIN_JOB_TEXT 64
void plugin_job_name(const struct plugin *plugin, unsigned job, char name[static PLUGIN_JOB_TEXT]);
/* The job on this node whose session has this name; NULL if it is no such session's. Points into `session`. */
const char *plugin_job_of(const struct plugin *plugin, const char *session);

/* Make the session of a job that asks for `wish` (NULL: nothing), and leave a record of it. A failure goes into the
 * record; the function fails only if the record cannot be written. Before it makes a session, it ends those that
 * earlier jobs left behind. */
int plugin_begin_job(const struct plugin *plugin, const char *job, uid_t owner, const char *wish,
                     struct error *error);
/* End the job's session and remove the record. A session that cannot be ended is left to the next prolog that makes
 * one. */
int plugin_end_job(const struct plugin *plugin, const char *job, struct error *error);
