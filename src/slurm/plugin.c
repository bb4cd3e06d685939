#include "slurm/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/session_fields.h"
#include "slurm/record.h"
#include "slurm/wish.h"

#define TIMEOUT_S 10 /* a slow prolog holds the node up */

/* A session that cannot exist: a program that is told to run in it gets no GPU memory. */
#define NO_SESSION "000000000000"

int plugin_read(struct plugin *plugin, int count, char **arguments, struct error *error)
{
    const char *node = getenv("SLURMD_NODENAME");
    *plugin = (struct plugin){.library = GPUSLICE_LIBRARY};
    for (int i = 0; i < count; i++) {
        const char *word = arguments[i];
        if (strncmp(word, "runtime_dir=", 12) == 0)
            plugin->runtime_dir = word + 12;
        else if (strncmp(word, "library=", 8) == 0)
            plugin->library = word + 8;
        else if (strncmp(word, "default=", 8) == 0)
            plugin->default_wish = word + 8;
        else if (strcmp(word, "simulated") == 0)
            plugin->simulated = true;
        else
            return error_set(
                error, EINVAL, NULL,
                "plugstack.conf has the argument '%.80s'; expected runtime_dir=, library=, default= or "
                "simulated",
                word);
    }
    snprintf(plugin->records_dir, sizeof(plugin->records_dir), "%s/slurm",
             plugin->runtime_dir ? plugin->runtime_dir : "/run/gpuslice");
    if (node)
        snprintf(plugin->node, sizeof(plugin->node), "%s", node);
    else if (gethostname(plugin->node, sizeof(plugin->node) - 1) == 0)
        plugin->node[strcspn(plugin->node, ".")] = '\0';
    return 0;
}

/* A long node name is cut from the front: the end tells the nodes of one machine apart. */
void plugin_job_name(const struct plugin *plugin, unsigned job, char name[static PLUGIN_JOB_TEXT])
{
    size_t length = strlen(plugin->node), most = 40;
    snprintf(name, PLUGIN_JOB_TEXT, "%u.%s", job, plugin->node + (length > most ? length - most : 0));
}

/* The process's environment is the job's or slurmd's, so it is restored. */
static int open_client(const struct plugin *plugin, struct client *client, struct error *error)
{
    if (plugin->runtime_dir)
        setenv("GPUSLICE_RUNTIME_DIR", plugin->runtime_dir, 1);
    int result = client_open(client, plugin->simulated, error);
    unsetenv("GPUSLICE_RUNTIME_DIR");
    client->connection.timeout_s = TIMEOUT_S;
    return result;
}

static void session_name(const char *job, char name[static PLUGIN_JOB_TEXT + 8])
{
    snprintf(name, PLUGIN_JOB_TEXT + 8, "slurm-%s", job);
}

const char *plugin_job_of(const struct plugin *plugin, const char *session)
{
    char job[PLUGIN_JOB_TEXT];
    if (strncmp(session, "slurm-", 6) != 0)
        return NULL;
    plugin_job_name(plugin, (unsigned)strtoul(session + 6, NULL, 10), job);
    return strcmp(session + 6, job) == 0 ? session + 6 : NULL;
}

/* 0 also if the session does not exist. By ID: users call their own sessions as they like. */
static int release(struct client *client, const char *session_id, struct error *error)
{
    struct error why = {0};
    int result = client_request_session(client, "DELETE", session_id, "?kill=true", NULL, NULL, &why);
    if (result == 0 || (why.code && strcmp(why.code, "ERR_SESSION_NOT_FOUND") == 0))
        return 0;
    return error_set(error, why.status, why.code, "%s", why.message);
}

/* The job whose session this is; NULL: it is none that the plug-in made. Only root makes managed sessions. */
static const char *job_of(const struct plugin *plugin, const json_t *session)
{
    return json_is_true(json_object_get(session, "managed"))
               ? plugin_job_of(plugin, session_text(session, "name"))
               : NULL;
}

/* End the sessions of jobs that have left this node while nobody could end them, as when the node or the daemon was
 * down: those without a record and without programs. Programs that run are those of a job which is here, whatever has become
 * of its record. What an earlier prolog of `beginning` left is ended with its programs, as after a requeue. Stops when the
 * daemon does not answer, which may have taken TIMEOUT_S. */
static int end_orphans(const struct plugin *plugin, struct client *client, const char *beginning,
                       struct error *error)
{
    json_t *sessions = NULL;
    const json_t *session;
    size_t i;
    int result = client_request(client, "GET", "/v1/sessions", NULL, &sessions, error);
    json_array_foreach(sessions, i, session)
    {
        const char *job = job_of(plugin, session), *id = session_text(session, "session_id");
        if (job && strcmp(job, beginning) == 0)
            result = release(client, id, error);
        else if (job && !record_exists(plugin->records_dir, job))
            result = client_request_session(client, "DELETE", id, "", NULL, NULL, error);
        if (result == -EREMOTEIO && strcmp(job, beginning) != 0)
            result = 0; /* programs run in it */
        if (result < 0)
            break;
    }
    json_decref(sessions);
    return result;
}

static int make_session(const struct plugin *plugin, const char *job, uid_t owner, const char *wish,
                        json_t **session, struct error *error)
{
    struct client client = {.connection = {.fd = -1}};
    char name[PLUGIN_JOB_TEXT + 8];
    json_t *body = NULL;
    session_name(job, name);
    int result = wish_parse(wish, &body, error);
    if (result == 0)
        result = open_client(plugin, &client, error);
    if (result == 0)
        result = end_orphans(plugin, &client, job, error);
    if (result == 0) {
        json_object_set_new(body, "name", json_string(name));
        json_object_set_new(body, "owner_uid", json_integer(owner));
        json_object_set_new(body, "managed", json_true());
        result = client_request(&client, "POST", "/v1/sessions", body, session, error);
    }
    client_close(&client);
    json_decref(body);
    return result;
}

int plugin_begin_job(const struct plugin *plugin, const char *job, uid_t owner, const char *wish,
                     struct error *error)
{
    json_t *record = json_object(), *session = NULL;
    struct error why = {0};
    wish = wish ? wish : plugin->default_wish;
    if (wish && strcmp(wish, "deny") == 0) {
        json_object_set_new(record, "environment", json_pack("{s:s}", "GPUSLICE_SESSION", NO_SESSION));
    } else if (wish) {
        /* Write the record before making the session, so that what a crash leaves can be found. */
        json_object_set_new(record, "failure", json_string("the prolog did not finish"));
        int result = record_write(plugin->records_dir, job, record, &why);
        if (result == 0)
            result = make_session(plugin, job, owner, wish, &session, &why);
        if (result == 0) {
            json_object_del(record, "failure");
            json_object_set(record, "environment", json_object_get(session, "environment"));
        } else {
            json_object_set_new(record, "failure", json_string(why.message));
        }
    }
    /* If this fails, the first record says that the prolog failed, or there is none. */
    int result = json_object_size(record) ? record_write(plugin->records_dir, job, record, error) : 0;
    json_decref(session);
    json_decref(record);
    return result;
}

int plugin_end_job(const struct plugin *plugin, const char *job, struct error *error)
{
    struct client client = {.connection = {.fd = -1}};
    if (!record_exists(plugin->records_dir, job))
        return 0;
    json_t *record = record_read(plugin->records_dir, job);
    const char *id = session_text(json_object_get(record, "environment"), "GPUSLICE_SESSION");
    int result = 0;
    /* Without an ID there is no session, or its making did not come to its end: the next prolog ends it. */
    if (*id && strcmp(id, NO_SESSION) != 0) {
        result = open_client(plugin, &client, error);
        if (result == 0)
            result = release(&client, id, error);
        client_close(&client);
    }
    record_remove(plugin->records_dir, job);
    json_decref(record);
    return result;
}
