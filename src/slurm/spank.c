/* gpuslice_spank.so: Slurm's calls, each passed on. An error of the prolog or epilog would drain the node and hurt
 * other jobs, so they report failures to the job's own tasks instead. */
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/client.h"
#include "client/session_fields.h"
#include "slurm/plugin.h"
#include "slurm/record.h"
#include "slurm/wish.h"

SPANK_PLUGIN(gpuslice, 1)

/* The environment variable in which Slurm hands a job's option to the prolog: spank_job_control_getenv() crashes in
 * 22.05. */
#define OPTION_VARIABLE "_SLURM_SPANK_OPTION_gpuslice_gpuslice="

static bool has_option; /* this step has the option */

/* Called where the user typed the option, and again in each step. */
static int take_option(int value, const char *text, int is_remote)
{
    json_t *body = NULL;
    struct error error;
    has_option = true;
    if (is_remote)
        return ESPANK_SUCCESS; /* the prolog's record decides */
    if (!text || wish_parse(text, &body, &error) < 0) {
        slurm_error("gpuslice: --gpuslice: %s", text ? error.message : "expected memory=SIZE,...");
        return ESPANK_BAD_ARG;
    }
    json_decref(body);
    return ESPANK_SUCCESS;
}

/* A table of options works only in srun; sbatch and salloc need them registered. */
int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    static struct spank_option option = {
        "gpuslice",
        "memory=SIZE[,compute=SHARE][,priority=LEVEL][,gpu=GPU]",
        "a session on a GPU of each node: its memory, and its share of the GPU's time",
        1,
        0,
        take_option};
    return (int)spank_option_register(spank, &option);
}

/* --- Once for each job and node -------------------------------------------------------------------- */

extern char **environ;

static const char *find_wish(void)
{
    for (char **at = environ; at && *at; at++) {
        const char *found = strstr(*at, OPTION_VARIABLE);
        const char *equals = strchr(*at, '=');
        if (found && equals == found + strlen(OPTION_VARIABLE) - 1)
            return equals + 1;
    }
    return NULL;
}

/* Read the arguments, and the job's name. */
static bool begin_session(spank_t spank, int count, char **arguments, struct plugin *plugin,
                          char job[static PLUGIN_JOB_TEXT])
{
    struct error error;
    uint32_t id = 0;
    if (plugin_read(plugin, count, arguments, &error) < 0) {
        slurm_error("gpuslice: %s", error.message);
        return false;
    }
    if (spank_get_item(spank, S_JOB_ID, &id) != ESPANK_SUCCESS)
        return false;
    plugin_job_name(plugin, id, job);
    return true;
}

int slurm_spank_job_prolog(spank_t spank, int count, char **arguments)
{
    struct plugin plugin;
    char job[PLUGIN_JOB_TEXT];
    struct error error;
    uid_t owner;
    if (begin_session(spank, count, arguments, &plugin, job) &&
        spank_get_item(spank, S_JOB_UID, &owner) == ESPANK_SUCCESS &&
        plugin_begin_job(&plugin, job, owner, find_wish(), &error) < 0)
        slurm_error("gpuslice: job %s has no record of its session: %s", job, error.message);
    return 0;
}

int slurm_spank_job_epilog(spank_t spank, int count, char **arguments)
{
    struct plugin plugin;
    char job[PLUGIN_JOB_TEXT];
    struct error error;
    if (begin_session(spank, count, arguments, &plugin, job) && plugin_end_job(&plugin, job, &error) < 0)
        slurm_error("gpuslice: cannot end the session of job %s; a later prolog will: %s", job,
                    error.message);
    return 0;
}

/* --- Every step ------------------------------------------------------------------------------------ */

/* Put `entry` in front of the variable's value, unless it is there already. */
static void prepend(spank_t spank, const char *variable, const char *entry)
{
    char old[32768] = "";
    cleanup_free char *list = NULL;
    size_t length = strlen(entry);
    if (spank_getenv(spank, variable, old, sizeof(old)) != ESPANK_SUCCESS)
        old[0] = '\0';
    if (strncmp(old, entry, length) == 0 && (old[length] == '\0' || old[length] == ':'))
        return;
    if (asprintf(&list, "%s%s%s", entry, *old ? ":" : "", old) >= 0)
        spank_setenv(spank, variable, list, 1);
}

static void set_session(spank_t spank, const struct plugin *plugin, const json_t *environment)
{
    const char *name;
    json_t *value;
    char simulated[PATH_MAX];
    json_object_foreach((json_t *)environment, name, value)
    {
        if (json_string_value(value))
            spank_setenv(spank, name, json_string_value(value), 1);
    }
    prepend(spank, "LD_PRELOAD", plugin->library);
    if (!plugin->simulated)
        return;
    snprintf(simulated, sizeof(simulated), "%.*ssimulated",
             (int)(strrchr(plugin->library, '/') - plugin->library + 1), plugin->library);
    prepend(spank, "LD_LIBRARY_PATH", simulated);
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
    static const char *const inherited[] = {"GPUSLICE_SESSION", "GPUSLICE_IPC_SOCK", "GPUSLICE_IPC_TOKEN"};
    struct plugin plugin;
    char job[PLUGIN_JOB_TEXT];
    if (!spank_remote(spank) || !begin_session(spank, count, arguments, &plugin, job))
        return 0;
    json_t *record = record_read(plugin.records_dir, job);
    const json_t *environment = json_object_get(record, "environment");
    /* They may come from a session in which the job was submitted, which is not this job's. */
    for (size_t i = 0; i < sizeof(inherited) / sizeof(inherited[0]); i++)
        spank_unsetenv(spank, inherited[i]);
    if (environment)
        set_session(spank, &plugin, environment);
    json_decref(record);
    return 0;
}

/* Why the task must not start; "" if it may. */
static void judge_task(const struct plugin *plugin, const char *job, char reason[static ERROR_MESSAGE_BYTES])
{
    json_t *record = record_read(plugin->records_dir, job);
    reason[0] = '\0';
    if (json_object_get(record, "failure"))
        snprintf(reason, ERROR_MESSAGE_BYTES, "%s", session_text(record, "failure"));
    else if (!record && plugin->default_wish)
        snprintf(
            reason, ERROR_MESSAGE_BYTES,
            "the job's record is missing in %.256s, so the job's limits are unknown; slurmd's log says why",
            plugin->records_dir);
    else if (!record && has_option)
        snprintf(reason, ERROR_MESSAGE_BYTES,
                 "the job was not submitted with --gpuslice, and a step cannot ask for it later; give it to "
                 "sbatch or salloc");
    json_decref(record);
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **arguments)
{
    struct plugin plugin;
    char job[PLUGIN_JOB_TEXT], reason[ERROR_MESSAGE_BYTES];
    if (!begin_session(spank, count, arguments, &plugin, job))
        return -1; /* what the task may use is not known */
    judge_task(&plugin, job, reason);
    if (!reason[0])
        return 0;
    slurm_error("gpuslice: cannot start tasks on %s: %s", plugin.node, reason);
    return -1;
}
