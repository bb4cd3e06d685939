/* GET /v1/config: which settings are in force, where each comes from, and what is wrong with the files. */
#include <limits.h>
#include <stdio.h>

#include "daemon/api/api.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/declared.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"
#include "daemon/settings/settings.h"

static json_t *declared_file_json(const struct daemon *daemon)
{
    const char *problem;
    const struct config_sessions *file = declared_file(daemon, &problem);
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/" CONFIG_SESSIONS_FILE, daemon->paths.config_dir);
    return config_file_json(path, file->is_there || problem, problem);
}

static json_t *declared_sessions_json(const struct daemon *daemon)
{
    const char *problem;
    json_t *list = config_sessions_json(declared_file(daemon, &problem)), *element;
    size_t i;
    json_array_foreach(list, i, element)
    {
        const struct session *session = declared_session(daemon, i, &problem);
        json_object_set_new(element, "session_id", session ? json_string(session->id) : json_null());
        json_object_set_new(element, "state",
                            session ? json_string(session_state_name(session)) : json_null());
        json_object_set_new(element, "problem", problem ? json_string(problem) : json_null());
    }
    return list;
}

json_t *api_config_json(const struct daemon *daemon)
{
    json_t *files = json_array();
    json_array_append_new(
        files, config_file_json(daemon->config.path, daemon->config.is_there, settings_problem(daemon)));
    json_array_append_new(files, declared_file_json(daemon));
    return json_pack("{s:b,s:o,s:o,s:o,s:o}", "running", true, "files", files, "warnings",
                     config_warnings_json(&daemon->config), "values", config_json(&daemon->config),
                     "sessions", declared_sessions_json(daemon));
}
